"""Questions and golds from a JSONL, JSON or Parquet file, or a Hugging Face dataset; every fault names its place."""

import difflib
import importlib
import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.env import is_in_share
from agentrl.errors import DataError, UnknownNameError
from agentrl_math.grading import why_ungradable

QUESTIONS = ("question", "problem", "prompt", "Problem")
ANSWERS = ("answer", "solution", "final_answer", "expected_answer", "Answer")
SUFFIXES = (".jsonl", ".json", ".parquet")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Row:
    """One problem and where it stands, such as `train.jsonl:7`."""

    place: str
    question: str
    answer: str


@dataclass(frozen=True)
class Source:
    """What to read: a file or a dataset id, and the columns ("" for the ones GSM8K, MATH and their kin have)."""

    name: str
    question_column: str = ""
    answer_column: str = ""
    subset: str = ""
    split: str = "train"

    def rows(self) -> list[Row]:
        """Return every gradable row; DataError or UnknownNameError for what cannot be read."""
        records = list(_records(self))
        if not records:
            raise DataError(f"{self.name}: holds no rows")
        columns = list(records[0][1])
        question = _column(self, self.question_column, QUESTIONS, columns, "question_column")
        answer = _column(self, self.answer_column, ANSWERS, columns, "answer_column")
        return _gradable(self.name, [_row(place, record, question, answer) for place, record in records])


def is_held_out(question: str, share: float) -> bool:
    """Whether this question is on the held-out side: by a hash of its text, so that no order or seed moves it."""
    return is_in_share(" ".join(question.split()), share)


def _records(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    path = Path(source.name).expanduser()
    if path.is_file():
        yield from _READERS[_suffix(path)](path)
    elif path.suffix in SUFFIXES or source.name.startswith((".", "/", "~")):
        raise DataError(f"{source.name}: no such file.{_neighbour(path)}")
    else:
        yield from _hub(source)


def _suffix(path: Path) -> str:
    if path.suffix not in SUFFIXES:
        raise DataError(f"{path}: the name must end in one of {', '.join(SUFFIXES)}, to say what it holds")
    return path.suffix


def _neighbour(path: Path) -> str:
    names = [other.name for other in path.parent.iterdir() if other.suffix in SUFFIXES] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=1)
    return f" Did you mean {path.parent / close[0]}?" if close else ""


def _jsonl(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield f"{path.name}:{number}", _parsed(line, path, f"line {number}")


def _json(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        rows = json.loads(path.read_bytes())
    except ValueError as problem:
        raise DataError(f"{path}: not JSON: {problem}") from None
    if not isinstance(rows, list):
        raise DataError(f"{path}: must hold a list of objects, not {type(rows).__name__}")
    for number, row in enumerate(rows, 1):
        yield f"{path.name}:{number}", _object(row, path, f"row {number}")


def _parsed(line: bytes, path: Path, place: str) -> dict[str, Any]:
    try:
        return _object(json.loads(line), path, place)
    except ValueError as problem:
        start = line.decode(errors="replace").strip()[:60]
        raise DataError(f"{path}, {place}: not JSON: {problem}. It begins {start!r}") from None


def _object(row: Any, path: Path, place: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise DataError(f"{path}, {place}: must be an object with named columns, not {type(row).__name__}")
    return row


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    try:
        rows = parquet.read_table(path).to_pylist()
    except (arrow.ArrowException, OSError) as problem:
        raise DataError(f"{path}: not a Parquet file: {problem}") from None
    for number, row in enumerate(rows, 1):
        yield f"{path.name}:{number}", row


def _hub(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise DataError(
            f"{source.name}: no such file. To read it as a Hugging Face dataset, `pip install datasets`"
        ) from None
    try:
        rows = datasets.load_dataset(source.name, source.subset or None, split=source.split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as problem:
        raise DataError(f"{source.name}: neither a file nor a dataset that could be loaded: {problem}") from problem
    for number, row in enumerate(rows, 1):
        yield f"{source.name}/{source.split}:{number}", row


_READERS = {".jsonl": _jsonl, ".json": _json, ".parquet": _parquet}


def _column(source: Source, asked: str, usual: Iterable[str], columns: list[str], key: str) -> str:
    if asked and asked not in columns:
        raise UnknownNameError(f"column of {source.name}", asked, columns)
    found = asked or next((name for name in usual if name in columns), "")
    if not found:
        raise DataError(f"{source.name}: has the columns {', '.join(columns)}; say which one with env.{key}")
    return found


def _row(place: str, record: dict[str, Any], question: str, answer: str) -> Row:
    for column in (question, answer):
        if column not in record:
            raise DataError(f"{place}: has no {column!r}; its columns are {', '.join(record)}")
    return Row(place, str(record[question] or ""), "" if record[answer] is None else str(record[answer]))


def _gradable(name: str, rows: list[Row]) -> list[Row]:
    """Return the rows whose gold can be graded against; the others are counted in a warning, or all are an error."""
    faults = {row.place: why_ungradable(row.answer) or ("" if row.question.strip() else "no question") for row in rows}
    good = [row for row in rows if not faults[row.place]]
    if len(good) < len(rows):
        place, fault = next((place, fault) for place, fault in faults.items() if fault)
        text = f"{name}: {len(rows) - len(good)} of {len(rows)} rows cannot be graded, such as {place}: {fault}"
        if not good:
            raise DataError(text)
        _log.warning("%s. They are left out.", text)
    return good
