"""Where an author's code failed: the relevant line, and the whole traceback."""

from __future__ import annotations

import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentrl.errors import AgentRLError, ConfigError, ExitedError, as_text, catch_exit

MAX_CHARS = 20_000
FRAMEWORK = str(Path(__file__).parents[1])
STANDARD = sysconfig.get_paths()["stdlib"]


def describe_error(error: BaseException, called: object = None) -> str:
    """'KeyError: 'x' (env.py:12)': an error with the innermost line of the author's own code.

    If none of that code was reached, it is the line where `called` is defined.
    """
    error = error.raised if isinstance(error, ExitedError) else error
    frame = authors_frame(error)
    where = f" ({Path(frame.filename).name}:{frame.lineno})" if frame else ""
    is_reached = frame is not None and is_foreign(frame.filename)
    return f"{type(error).__name__}: {as_text(error, str)}{where if is_reached else defined_at(called) or where}"


def call_author(
    failure: str,
    function: Callable[..., Any],
    *args: Any,
    at: object = None,
    kind: Callable[[str], AgentRLError] = ConfigError,
) -> Any:
    """Call an author's code. Errors of agentrl are raised as they are, all others as a `kind` that says `failure`.

    `at` is the function whose line the error names where none of the author's code was reached.
    """
    outcome = catch_exit(function, *args)
    if isinstance(outcome.error, AgentRLError):
        raise outcome.error
    if outcome.error:
        raise kind(f"{failure}: {describe_error(outcome.error, at)}") from outcome.error
    return outcome.value


def defined_at(function: object) -> str:
    """' (env.py:12)' for an author's function or class, '' for anything else."""
    if isinstance(function, type):
        with suppress(OSError, TypeError):  # a class without a file
            file, line = inspect.getfile(function), inspect.getsourcelines(function)[1]
            return f" ({Path(file).name}:{line})" if is_foreign(file) else ""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    is_authors = code is not None and is_foreign(code.co_filename)
    return f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code and is_authors else ""


def traced(error: BaseException) -> str:
    """Return the traceback of an error and of its causes; the middle of a very long one is left out."""
    text = "".join(traceback.format_exception(error))
    half = MAX_CHARS // 2
    return text if len(text) <= MAX_CHARS else f"{text[:half]}\n[…]\n{text[-half:]}"


def authors_traceback(error: BaseException) -> str:
    """Return what a terminal shows of an error: the traceback of its root cause, beginning in the author's own code."""
    while error.__cause__ is not None:
        error = error.__cause__
    whole = traceback.TracebackException.from_exception(error)
    first = next((index for index, frame in enumerate(whole.stack) if is_foreign(frame.filename)), 0)
    del whole.stack[:first]
    return "".join(whole.format()).rstrip()


def authors_frame(error: BaseException) -> traceback.FrameSummary | None:
    """Return the innermost frame in the package of the first author's frame, so that a library it calls is not named.

    Frames of agentrl and of the standard library count only if there are no others.
    """
    frames = list(traceback.extract_tb(error.__traceback__))
    first = next((frame for frame in frames if is_foreign(frame.filename)), None)
    if first is None:
        return frames[-1] if frames else None
    home = home_of(Path(first.filename))
    return [frame for frame in frames if Path(frame.filename).is_relative_to(home)][-1]


def is_foreign(filename: str) -> bool:
    """True for a file that is neither agentrl's nor the standard library's."""
    path = Path(filename)
    is_standard = path.is_relative_to(STANDARD) and "site-packages" not in path.parts
    return not (path.is_relative_to(FRAMEWORK) or is_standard or filename.startswith("<"))


def is_foreign_class(kind: type) -> bool:
    """True for a class that is not from agentrl, Gymnasium or the standard library."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return bool(file) and is_foreign(str(file)) and kind.__module__.partition(".")[0] != "gymnasium"


def home_of(file: Path) -> Path:
    """Return the outermost package that contains a file, or the file itself if it is in no package."""
    home = file
    while (home.parent / "__init__.py").is_file():
        home = home.parent
    return home
