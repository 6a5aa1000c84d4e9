"""Beside the program, in its own interpreter: loads it and does what is asked of it.

The program can find and change everything here. It gains nothing by it: expectations are not here, and a forged answer
is an answer that it could have given.
"""

from __future__ import annotations

import builtins
import marshal
import sys

from agentrl_code.inside.channel import Channel, text
from agentrl_code.values import UnplainError, UnreadableError, from_tree, to_tree

TYPE_CHECKING = False  # typing is not loaded inside
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FILE = "<program>"
MODULE = "solution"
MOST_BYTES = 1 << 20
MOST_TEXT = 500
channel = Channel()
kept: list[object] = []
names: dict[str, object] = {}


def load(nonce: bytes, source: str) -> None:
    """Run the program's text as a module, and tell how that went."""
    global names
    module = sys.modules[MODULE] = type(sys)(MODULE)
    names = module.__dict__
    names["__builtins__"] = builtins
    channel.say(nonce, text(_caught(_execute, source)))


def serve(nonce: bytes, requests: bytes) -> None:
    """Answer requests in order, each when it is done, so that what was answered before an end is known."""
    for request in marshal.loads(requests):
        answer = text(_caught(_perform, *request))
        if len(answer) > MOST_BYTES:
            answer = text(["refused", f"a value that takes {len(answer)} bytes; {MOST_BYTES} are read"])
        channel.say(nonce, answer)


def _execute(source: str) -> tuple[None, None]:
    exec(compile(source, FILE, "exec"), names)  # noqa: S102
    return None, None


def _caught(work: Callable[..., tuple[Any, Any]], *args: Any) -> list[Any]:
    """["value", tree, arguments], or what stands in its place. A time that is over ends the order instead."""
    try:
        return ["value", *work(*args)]
    except KeyboardInterrupt:
        raise
    except (UnplainError, UnreadableError) as problem:
        return ["refused", str(problem)]
    except BaseException as error:  # noqa: BLE001  (the outermost frame of the program)
        return ["raised", type(error).__name__, _said(error), _line(error)]


def _perform(operation: str, target: Any, args: Any, kwargs: Any, is_in_place: bool) -> tuple[Any, Any]:
    subject, values = from_tree(target, _find), from_tree(args, _find)
    given = OPERATIONS[operation](subject, values, from_tree(kwargs, _find))
    return to_tree(given, _refer), to_tree(values, _refer) if is_in_place else None


OPERATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "call": lambda subject, args, kwargs: subject(*args, **kwargs),
    "get": lambda subject, args, _: getattr(subject, *args),
    "set": lambda subject, args, _: setattr(subject, *args),
    "item": lambda subject, args, _: subject[args[0]],
    "len": lambda subject, _, __: len(subject),
    "iter": lambda subject, _, __: iter(subject),
    "next": lambda subject, _, __: next(subject),
    "str": lambda subject, _, __: str(subject),
}


def _find(kind: str, key: Any, *_: Any) -> Any:
    if kind == "ref":
        return kept[key]
    if key in names:
        return names[key]
    raise NameError(f"the program defines no {key!r}")


def _refer(value: object) -> list[Any]:
    """What is no plain data stays here; the other side gets its number and its type's name."""
    kept.append(value)
    return ["ref", len(kept) - 1, type(value).__name__[:MOST_TEXT]]


def _said(error: BaseException) -> str:
    """The plain words of the error, without asking the program's own `__str__`."""
    args = BaseException.args.__get__(error)  # type: ignore[attr-defined]
    return ", ".join(str(arg) for arg in args if type(arg) is str or type(arg) is int)[:MOST_TEXT]


def _line(error: BaseException) -> int:
    """The last line of the program on the way to the error; 0 when there is none."""
    if isinstance(error, SyntaxError) and error.filename == FILE:
        return error.lineno or 0
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
