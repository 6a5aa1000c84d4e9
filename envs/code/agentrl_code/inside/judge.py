"""Server in the tests' own interpreter, whose sandbox never sees the program; calls are forwarded to the candidate.

The tests run in a thread. Whenever they need the program, the thread waits and the current order ends with the
question; the next order brings the answer.
"""

from __future__ import annotations

import _thread
import builtins
import marshal
import sys

from agentrl_code.inside.arguments import FILE, SETUP_FILE
from agentrl_code.inside.channel import Channel, text
from agentrl_code.inside.errors import ForeignError, ProgramError, TestError, UnsentError, refusals
from agentrl_code.inside.references import facts, is_function
from agentrl_code.inside.standins import answers, frames, of_name
from agentrl_code.inside.trace import last_line
from agentrl_code.inside.trust import is_instance
from agentrl_code.values import UnreadableError

TYPE_CHECKING = False  # typing is not loaded inside
if TYPE_CHECKING:
    from typing import Any

MODULE = "solution"
"""Name under which a test may import the program."""
MOST_TEXT = 500
channel = Channel()
asserted = 0
builtins.isinstance = is_instance


def begin(nonce: bytes, order: bytes) -> None:
    """Start one test; write its first question or its outcome as a frame."""
    global asserted
    asserted = 0
    refusals.clear()
    _thread.start_new_thread(_run, tuple(marshal.loads(order)))
    channel.say(nonce, text(frames.get()))


def resume(nonce: bytes, answer: bytes) -> None:
    """Continue with the answer to the last question."""
    answers.put(marshal.loads(answer))
    channel.say(nonce, text(frames.get()))


def _run(setup: str, source: str, entry: str, modules: list[str], in_place: list[int] | bool) -> None:
    scope, sys.modules[MODULE] = Scope(entry), Program(MODULE)
    scope |= {"__builtins__": builtins, "__asserted__": _count, "__in_place__": in_place}
    try:
        for name in modules:
            scope[name] = __import__(name)
        exec(compile(setup, SETUP_FILE, "exec", dont_inherit=True), scope)  # noqa: S102
        scope.pop(entry, None)  # a stub; the test means the program's function
        exec(compile(source, FILE, "exec", dont_inherit=True), scope)  # noqa: S102
        if refusals:
            raise ForeignError(refusals[-1])
    except BaseException as error:  # noqa: BLE001  (the outermost frame of the test)
        frames.put(["done", *_outcome(error), last_line(error, FILE), asserted])
        return
    frames.put(["done", "passed", "", 0, asserted])


def _count() -> None:
    global asserted
    asserted += 1


def _outcome(error: BaseException) -> tuple[str, str]:
    if isinstance(error, TestError):
        return "task", str(error)
    if isinstance(error, (UnsentError, UnreadableError)):
        return "invalid", str(error)
    if isinstance(error, ForeignError):
        return "failed", str(error)
    if isinstance(error, AssertionError):
        return "failed", ""
    message = BaseException.args.__get__(error)[0] if type(error) in facts else str(error)  # type: ignore[attr-defined]
    return "raised", (message if isinstance(error, ProgramError) else f"{type(error).__name__}: {message}")[:MOST_TEXT]


class Scope(dict):  # type: ignore[type-arg]
    """Names of a test: its own, then Python's, then the program's."""

    def __init__(self, entry: str) -> None:
        super().__init__()
        self._entry = entry

    def __missing__(self, name: str) -> Any:
        if name != self._entry and (hasattr(builtins, name) or (name[:2] == name[-2:] == "__")):
            raise KeyError(name)
        value = of_name(name)
        if is_function(value):
            self[name] = value
        return value


class Program(type(sys)):  # type: ignore[misc]
    """Module that stands for the program in tests that import it."""

    def __getattr__(self, name: str) -> Any:
        if name[:2] == name[-2:] == "__":
            raise AttributeError(name)
        return of_name(name)
