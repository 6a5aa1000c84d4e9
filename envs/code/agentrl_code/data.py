"""Problems from a JSONL file with the columns of HumanEval, of MBPP, or of the general form; errors name the line."""

import ast
import difflib
import doctest
import gzip
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agentrl.errors import DataError
from agentrl_code.cases import MISSING, Assert, Call, Io, Test, why_unusable
from agentrl_code.extract import defines
from agentrl_code.problem import Problem
from agentrl_code.scripts import parse

SUFFIXES = (".jsonl", ".jsonl.gz")
FORMS = "HumanEval's prompt, entry_point, test; MBPP's text or prompt, test_list; or prompt, tests"
_COMPLETE = (
    "Complete this Python function. Answer with the whole function in one ```python block.\n\n```python\n{code}\n```"
)
_WRITE = "{text}\n\nAnswer with one ```python block.{examples}"
_log = logging.getLogger(__name__)


def load(name: str) -> list[Problem]:
    """Return the problems of a file that can be graded, in order; a warning counts the others.

    Raises DataError if the file cannot be read or no problem can be graded.
    """
    path = Path(name).expanduser()
    read = [(row, _problem(row, columns)) for row, columns in _rows(path)]
    if not read:
        raise DataError(f"{name}: the file has no rows")
    faults = {row: _fault(problem) for row, problem in read}
    if bad := [f"{row}: {fault}" for row, fault in faults.items() if fault]:
        text = f"{name}: {len(bad)} of {len(read)} rows cannot be graded, for example {bad[0]}"
        if len(bad) == len(read):
            raise DataError(text)
        _log.warning("%s. They are skipped.", text)
    return [problem for row, problem in read if not faults[row]]


def _fault(problem: Problem) -> str:
    if not problem.key.strip():
        return "no question"
    return why_unusable(problem.hidden, problem.setup) or (
        why_unusable(problem.public, problem.setup) if problem.public else ""
    )


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if not path.is_file():
        raise DataError(f"{path}: no such file.{_neighbour(path)}")
    if not path.name.endswith(SUFFIXES):
        raise DataError(f"{path}: the name must end in {' or '.join(SUFFIXES)}, which determines the format")
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"{path.name}:{number}", _object(line, f"{path}, line {number}")
    except (OSError, EOFError) as problem:
        raise DataError(f"{path}: cannot be read: {problem}") from None


def _neighbour(path: Path) -> str:
    names = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=1)
    return f" Did you mean {path.parent / near[0]}?" if near else ""


def _object(line: bytes, source: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as problem:
        raise DataError(f"{source}: not JSON: {problem}") from None
    if not isinstance(row, dict):
        raise DataError(f"{source}: must be an object with named columns, not {type(row).__name__}")
    return row


def _problem(source: str, row: dict[str, Any]) -> Problem:
    for columns, make in _FORMS:
        if all(any(name in row for name in column.split("|")) for column in columns):
            try:
                return make(row)
            except (KeyError, TypeError, ValueError) as problem:
                raise DataError(f"{source}: {type(problem).__name__}: {problem}") from None
    raise DataError(f"{source}: unknown columns {', '.join(row)}; expected {FORMS}")


def _humaneval(row: dict[str, Any]) -> Problem:
    prompt, entry = _text(row, "prompt"), _text(row, "entry_point")
    solution = row.get("canonical_solution") or ""
    examples = doctest.DocTestParser().get_examples(prompt)
    return Problem(
        key=prompt,
        question=_COMPLETE.format(code=prompt.rstrip()),
        public=tuple(Assert(source) for example in examples if (source := _example(entry, example))),
        hidden=(Assert(f"{_text(row, 'test')}\ncheck({entry})\n"),),
        entry=entry,
        setup=f"{prompt}\n    pass\n" if not _is_python(prompt) else prompt,
        opening=prompt,
        solution=prompt + solution if solution else "",
    )


def _example(entry: str, example: doctest.Example) -> str:
    """Return a doctest as an assertion; '' unless it calls the entry and has a literal result."""
    try:
        call = ast.parse(example.source, mode="eval").body
        wanted = ast.literal_eval(example.want.strip())
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return ""
    is_of_entry = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == entry
    return f"assert {ast.unparse(call)} == {wanted!r}" if is_of_entry else ""


def _mbpp(row: dict[str, Any]) -> Problem:
    text = _text(row, "text" if "text" in row else "prompt")
    hidden = tuple(map(Assert, _texts(row, "test_list")))
    setup = row.get("test_setup_code") or "\n".join(row.get("test_imports") or ())
    solution = row.get("code") or ""
    return Problem(
        key=text,
        question=_question(text, hidden[:1]),
        hidden=hidden,
        public=hidden[:1],
        entry=_entry(hidden, solution),
        setup=setup,
        solution=solution,
    )


def _general(row: dict[str, Any]) -> Problem:
    text, entry = _text(row, "prompt"), row.get("entry_point") or ""
    public = tuple(_test(test, entry) for test in row.get("public_tests") or ())
    return Problem(
        key=text,
        question=_question(text, public),
        hidden=tuple(_test(test, entry) for test in row["tests"]),
        public=public,
        entry=entry,
        setup=row.get("setup") or "",
        solution=row.get("solution") or "",
    )


_FORMS: tuple[tuple[tuple[str, ...], Callable[[dict[str, Any]], Problem]], ...] = (
    (("prompt", "entry_point", "test"), _humaneval),
    (("text|prompt", "test_list"), _mbpp),
    (("prompt", "tests"), _general),
)


def _test(test: Any, entry: str) -> Test:
    """Parse a test of the general form: asserts as text, `stdin` with `expected_stdout`, or `args` with `expected`."""
    if isinstance(test, str):
        return Assert(test)
    if "stdin" in test:
        return Io(_text(test, "stdin"), str(test.get("expected_stdout") or ""))
    function = test.get("function") or entry
    if not function:
        raise ValueError("a test with `args` needs a `function`, or its row an `entry_point`")
    return Call(function, test["args"], test.get("kwargs") or {}, test.get("expected", MISSING))


def _question(text: str, public: tuple[Test, ...]) -> str:
    examples = [test.source.strip() for test in public if isinstance(test, Assert)]
    shown = "\n\nYour code must pass such tests:\n\n" + "\n".join(examples) if examples else ""
    return _WRITE.format(text=text.strip(), examples=shown)


def _entry(tests: tuple[Assert, ...], solution: str) -> str:
    """Return the function of the reference that the first test calls; '' if it cannot be determined."""
    if not tests or not _is_python(tests[0].source):
        return ""
    called = [node.func.id for node in ast.walk(parse(tests[0].source))
              if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]  # fmt: skip
    return next((name for name in called if defines(solution, name)), "")


def _is_python(text: str) -> bool:
    try:
        parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _text(row: dict[str, Any], column: str) -> str:
    if not isinstance(row[column], str):
        raise ValueError(f"{column} must be a string, not {type(row[column]).__name__}")
    return str(row[column])


def _texts(row: dict[str, Any], column: str) -> list[str]:
    if not isinstance(row[column], list) or not all(isinstance(text, str) for text in row[column]):
        raise ValueError(f"{column} must be a list of strings")
    return list(row[column])
