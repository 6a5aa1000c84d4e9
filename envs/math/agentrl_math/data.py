"""Questions and golds from a JSONL, JSON or Parquet file, or a Hugging Face dataset; errors name the row."""

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
    """One problem and its location, for example `train.jsonl:7`."""

    location: str
    question: str
    answer: str


@dataclass(frozen=True)
class Source:
    """A file or a dataset id with its columns ("" for the usual ones, as in GSM8K and MATH)."""

    name: str
    question_column: str = ""
    answer_column: str = ""
    subset: str = ""
    split: str = "train"

    def rows(self) -> list[Row]:
        """Return every gradable row; DataError or UnknownNameError if the data cannot be read."""
        records = list(_records(self))
        if not records:
            raise DataError(f"{self.name}: there are no rows")
        columns = list(records[0][1])
        question = _column(self, self.question_column, QUESTIONS, columns, "question_column")
        answer = _column(self, self.answer_column, ANSWERS, columns, "answer_column")
        return _gradable(self.name, [_row(location, record, question, answer) for location, record in records])


def is_held_out(question: str, share: float) -> bool:
    """Return whether a question is held out, by a hash of its text, independent of order and seed."""
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
        raise DataError(f"{path}: the name must end in one of {', '.join(SUFFIXES)}, which determines the format")
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
        raise DataError(f"{path}: must contain a list of objects, not {type(rows).__name__}")
    for number, row in enumerate(rows, 1):
        yield f"{path.name}:{number}", _object(row, path, f"row {number}")


def _parsed(line: bytes, path: Path, position: str) -> dict[str, Any]:
    try:
        return _object(json.loads(line), path, position)
    except ValueError as problem:
        start = line.decode(errors="replace").strip()[:60]
        raise DataError(f"{path}, {position}: not JSON: {problem}. It begins with {start!r}") from None


def _object(row: Any, path: Path, position: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise DataError(f"{path}, {position}: must be an object with named columns, not {type(row).__name__}")
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
        raise DataError(f"{source.name}: neither a file nor a loadable dataset: {problem}") from problem
    for number, row in enumerate(rows, 1):
        yield f"{source.name}/{source.split}:{number}", row


_READERS = {".jsonl": _jsonl, ".json": _json, ".parquet": _parquet}


def _column(source: Source, column: str, usual: Iterable[str], columns: list[str], key: str) -> str:
    if column and column not in columns:
        raise UnknownNameError(f"column of {source.name}", column, columns)
    found = column or next((name for name in usual if name in columns), "")
    if not found:
        raise DataError(f"{source.name}: the columns are {', '.join(columns)}; choose one with env.{key}")
    return found


def _row(location: str, record: dict[str, Any], question: str, answer: str) -> Row:
    for column in (question, answer):
        if column not in record:
            raise DataError(f"{location}: has no {column!r}; its columns are {', '.join(record)}")
    return Row(location, str(record[question] or ""), "" if record[answer] is None else str(record[answer]))


def _gradable(name: str, rows: list[Row]) -> list[Row]:
    """Return the rows with a usable gold; a warning counts the others; DataError if there is none."""
    faults = {
        row.location: why_ungradable(row.answer) or ("" if row.question.strip() else "no question") for row in rows
    }
    good = [row for row in rows if not faults[row.location]]
    if len(good) < len(rows):
        location, fault = next((location, fault) for location, fault in faults.items() if fault)
        text = f"{name}: {len(rows) - len(good)} of {len(rows)} rows cannot be graded, for example {location}: {fault}"
        if not good:
            raise DataError(text)
        _log.warning("%s. They are skipped.", text)
    return good
