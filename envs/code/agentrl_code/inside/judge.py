"""The tests' own interpreter, in a sandbox that never sees the program: what they call is asked of the other one.

The tests run in a thread. Whenever they need something of the program the thread waits, and the order that resumed it
ends with the question; the next order brings the answer.
"""

from __future__ import annotations

import _thread
import builtins
import marshal
import sys
from _collections_abc import Iterator, MutableMapping, MutableSequence, MutableSet
from _queue import SimpleQueue

from agentrl_code.inside.channel import Channel, text
from agentrl_code.values import UnplainError, UnreadableError, from_tree, to_tree

TYPE_CHECKING = False  # typing is not loaded inside, nor what can be had without
if TYPE_CHECKING:
    from typing import Any

FILE = "<test>"
MOST_TEXT = 500
ENDS = ("StopIteration", "StopAsyncIteration")
channel = Channel()
answers: SimpleQueue[Any] = SimpleQueue()
frames: SimpleQueue[Any] = SimpleQueue()
asserted = 0
refusal = ""


class ForeignError(BaseException):
    """A test did with an object of the program's what would let the program decide. A test that catches it fails."""

    def __init__(self, said: str) -> None:
        global refusal
        super().__init__(said)
        refusal = said


class TestError(BaseException):
    """A test sent what cannot be sent."""


class ProgramError(Exception):
    """The program raised something that Python does not know by name."""


def begin(nonce: bytes, order: bytes) -> None:
    """Start one test; its first question, or its outcome, goes into the frame."""
    global asserted, refusal
    asserted, refusal = 0, ""
    _thread.start_new_thread(_run, tuple(marshal.loads(order)))
    channel.say(nonce, text(frames.get()))


def resume(nonce: bytes, answer: bytes) -> None:
    """Bring the answer to the last question."""
    answers.put(marshal.loads(answer))
    channel.say(nonce, text(frames.get()))


def _run(setup: str, source: str, entry: str, modules: list[str], in_place: list[int] | bool) -> None:
    scope = Scope(entry)
    scope |= {"__builtins__": builtins, "__asserted__": _count, "__in_place__": in_place}
    try:
        for name in modules:
            scope[name] = __import__(name)
        exec(compile(setup, "<setup>", "exec"), scope)  # noqa: S102
        if entry:
            scope[entry] = Remote(["name", entry])
        exec(compile(source, FILE, "exec"), scope)  # noqa: S102
        if refusal:
            raise ForeignError(refusal)
    except BaseException as error:  # noqa: BLE001  (the outermost frame of the test)
        frames.put(["done", *_outcome(error), _line(error), asserted])
        return
    frames.put(["done", "passed", "", 0, asserted])


def _count() -> None:
    global asserted
    asserted += 1


def _outcome(error: BaseException) -> tuple[str, str]:
    if isinstance(error, (TestError, UnreadableError)):
        return "invalid", str(error)
    if isinstance(error, ForeignError):
        return "failed", str(error)
    if isinstance(error, AssertionError):
        return "failed", ""
    said = f"{error}"[:MOST_TEXT] if isinstance(error, ProgramError) else f"{type(error).__name__}: {error}"[:MOST_TEXT]
    return "raised", said


def _line(error: BaseException) -> int:
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


class Scope(dict):  # type: ignore[type-arg]
    """The names of a test: its own, Python's, and for all others the program's."""

    def __init__(self, entry: str) -> None:
        super().__init__()
        self._entry = entry

    def __missing__(self, name: str) -> Any:
        if name != self._entry and hasattr(builtins, name):
            raise KeyError(name)
        return Remote(["name", name])


class Remote:
    """Something of the program's. It can be called, read, set and gone through; it is never compared."""

    def __init__(self, target: list[Any], kind: str = "") -> None:
        object.__setattr__(self, "_target", target)
        object.__setattr__(self, "_kind", kind)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the program's own gives."""
        return _ask("call", self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _ask("get", self, (name,))

    def __setattr__(self, name: str, value: Any) -> None:
        _ask("set", self, (name, value))

    def __getitem__(self, key: Any) -> Any:
        return _ask("item", self, (key,))

    def __len__(self) -> int:
        return int(_ask("len", self))

    def __iter__(self) -> Iterator[Any]:
        return iter(_Iteration(_ask("iter", self)))

    def __next__(self) -> Any:
        return _ask("next", self)

    def __str__(self) -> str:
        return str(_ask("str", self))

    def _refused(self, *_: object) -> Any:
        raise ForeignError(f"gave an object of its own type {self._kind or '?'}, which is not compared")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __hash__ = _refused


class _Iteration:
    """A pass through something of the program's."""

    def __init__(self, source: Remote) -> None:
        self._source = source

    def __iter__(self) -> _Iteration:
        return self

    def __next__(self) -> Any:
        return _ask("next", self._source)


def _ask(operation: str, remote: Remote, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """Ask the program, and wait for the answer: a value, or its exception, by Python's name for it."""
    is_in_place = operation == "call" and any(_is_changeable(arg) for arg in args) and _is_in_place()
    try:
        target, trees = _target(remote), to_tree(list(args), _target)
        frames.put(["ask", operation, target, trees, to_tree(kwargs or {}, _target), is_in_place])
    except UnplainError as problem:
        raise TestError(f"the test gives the program {problem}, which cannot be sent") from None
    kind, *parts = answers.get()
    if kind == "raised":
        raise _exception(*parts, is_end=operation == "next")
    if kind == "refused":
        raise ForeignError(f"gave {parts[0]}")
    if is_in_place:
        for arg, new in zip(args, from_tree(parts[1], _find), strict=True):
            _replace(arg, new)
    return from_tree(parts[0], _find)


def _is_in_place() -> bool:
    """Whether the line that calls is one whose calls may change the test's own arguments."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename != FILE:
        frame = frame.f_back
    lines = frame.f_globals.get("__in_place__", ())
    return frame.f_lineno in lines if isinstance(lines, list) else bool(lines)


def _is_changeable(value: object) -> bool:
    return isinstance(value, MutableSequence | MutableMapping | MutableSet)


def _replace(old: Any, new: Any) -> None:
    """Give a list, dict or set the content that the program left in its copy."""
    if type(old) is not type(new) or not _is_changeable(old):
        return
    old.clear()
    if isinstance(old, MutableSequence):
        old.extend(new)
    else:
        old.update(new)


def _target(value: Any) -> list[Any]:
    if type(value) is not Remote:
        raise UnplainError(f"an object of type {type(value).__name__}")
    target: list[Any] = object.__getattribute__(value, "_target")
    return target


def _find(kind: str, key: Any, *name: str) -> Remote:
    return Remote([kind, key], *name)


def _exception(name: str, message: str, _: int, *, is_end: bool) -> BaseException:
    """The exception of that name. Only `next` may end an iteration: `all(map(f, …))` takes that for success."""
    known = getattr(builtins, name, None)
    if isinstance(known, type) and issubclass(known, Exception) and (is_end or name not in ENDS):
        try:
            return known(message)
        except TypeError:  # some take more than a message
            pass
    return ProgramError(f"{name}: {message}")
