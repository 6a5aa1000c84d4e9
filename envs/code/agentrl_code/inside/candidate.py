"""Server in the program's own interpreter: loads the program and answers requests.

The program can find and change everything here but gains nothing: there are no expectations here, and it could have
given a forged answer itself.
"""

from __future__ import annotations

import builtins
import marshal
import sys

from agentrl_code.inside.channel import Channel, text
from agentrl_code.inside.trace import last_line
from agentrl_code.values import (
    MOST_BYTES,
    MOST_WEIGHT,
    ON_HEAP,
    UnplainError,
    UnreadableError,
    from_tree,
    to_tree,
    weight,
)

TYPE_CHECKING = False  # typing is not loaded inside
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FILE = "<program>"
MODULE = "solution"
MOST_TEXT = 500
channel = Channel()
AS_TUPLE = (
    "__eq__",
    "__ne__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
    "__hash__",
    "__iter__",
    "__len__",
    "__getitem__",
)
NUMBERS = (bool, int, float, complex)
kept: list[object] = []
keys: dict[int, int] = {}
names: dict[str, object] = {}


def load(nonce: bytes, source: str) -> None:
    """Execute the program as a module and report the outcome."""
    global names
    module = sys.modules[MODULE] = type(sys)(MODULE)
    names = module.__dict__
    names |= {"__builtins__": builtins, "__file__": FILE}
    channel.say(nonce, text(_caught(_execute, source)))


def serve(nonce: bytes, requests: bytes) -> None:
    """Answer requests in order, each at once, so that answers before a crash are not lost."""
    heft = 0
    for request in marshal.loads(requests):
        answer = text(_caught(_perform, *request))
        if len(answer) > MOST_BYTES:
            answer = text(["refused", f"a value of {len(answer)} bytes; the limit is {MOST_BYTES}"])
        elif (heft := heft + weight(answer.encode("ascii"))) > MOST_WEIGHT:
            answer = text(["refused", "too many values"])
        channel.say(nonce, answer)


def _execute(source: str) -> tuple[None, None]:
    exec(compile(source, FILE, "exec", dont_inherit=True), names)  # noqa: S102
    return None, None


def _caught(work: Callable[..., tuple[Any, Any]], *args: Any) -> list[Any]:
    """Return ["value", tree, arguments], or the error. The interrupt of a timeout passes through and ends the order."""
    try:
        return ["value", *work(*args)]
    except KeyboardInterrupt:
        raise
    except (UnplainError, UnreadableError) as problem:
        return ["refused", str(problem)]
    except BaseException as error:  # noqa: BLE001  (the outermost frame of the program)
        return ["raised", type(error).__name__, _message(error), _line(error), _own(error), _args(error)]


def _perform(operation: str, target: Any, args: Any, kwargs: Any, is_in_place: bool) -> tuple[Any, Any]:
    subject, values, named = from_tree(target, _find), from_tree(args, _find), from_tree(kwargs, _find)
    result = OPERATIONS[operation](subject, values, named)
    return to_tree(result, _refer), to_tree([*values, *named.values()], _refer) if is_in_place else None


OPERATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "call": lambda subject, args, kwargs: subject(*args, **kwargs),
    "get": lambda subject, args, _: getattr(subject, *args),
    "set": lambda subject, args, _: setattr(subject, *args),
    "del": lambda subject, args, _: delattr(subject, *args),
    "special": lambda subject, args, _: getattr(type(subject), args[0])(subject, *args[1:]),
    "isinstance": lambda subject, args, _: isinstance(args[0], subject),
    "copy": lambda subject, args, _: getattr(__import__("copy"), args[0])(subject),
    "await": lambda subject, _, __: __import__("asyncio").run(subject),
    "name": lambda subject, _, __: subject,
    "class": lambda subject, args, _: _described(subject, *args),
}


def _described(kind: Any, special: tuple[str, ...]) -> list[Any]:
    """Describe a class for the judge's stand-in, including the special methods that it has."""
    form = "error" if issubclass(kind, BaseException) else "named" if _is_named(kind) else "object"
    plain = (object, type, tuple) if form == "named" else (object, type)
    bases = [base.__name__ if _is_pythons(base) else base for base in kind.__bases__]
    if form == "error" and _is_librarys(kind):
        bases.insert(0, f"{kind.__module__}.{kind.__name__}")
    is_built_in = kind.__module__ == "builtins" and not kind.__flags__ & ON_HEAP
    doc = kind.__doc__ if type(kind.__doc__) is str and not is_built_in else None
    methods, of_class = ([name for name in special if _has(each, name, plain)] for each in (kind, type(kind)))
    return [form, kind.__name__, doc, is_built_in, kind.__eq__ is object.__eq__, methods, of_class, bases]


def _has(kind: Any, name: str, plain: tuple[type, ...]) -> bool:
    """Return whether a class or one of its bases, except the plain ones, defines a method."""
    found = [base.__dict__[name] for base in kind.__mro__ if base not in plain and name in base.__dict__]
    return bool(found) and found[0] is not None


def _is_named(kind: Any) -> bool:
    """Return whether its instances are named tuples that behave like tuples."""
    is_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return is_tuple and all(getattr(kind, name) is getattr(tuple, name) for name in AS_TUPLE)


def _find(kind: str, key: Any, *rest: Any) -> Any:
    if kind == "slice":
        return slice(*[from_tree(part, _find) for part in (key, *rest)])
    if kind != "name":
        return kept[key]
    if key in names:
        return names[key]
    raise NameError(f"the program defines no {key!r}")


def _refer(value: Any, depth: int = 0) -> Any:
    """Return a reference to an object, which stays here: its number, its type's name and its type's number.

    For an instance it adds whether that is true by default, having neither `__bool__` nor `__len__`. A numpy number
    becomes a plain number.
    """
    kind = type(value)
    numpy = sys.modules.get("numpy")
    if numpy and kind.__module__ == "numpy" and issubclass(kind, (numpy.number, numpy.bool_)):
        plain = value.item()
        if type(plain) in NUMBERS:
            return to_tree(plain)
    if issubclass(kind, type):
        return ["class", _keep(value), kind.__name__[:MOST_TEXT]]
    reference = [_keep(value), kind.__name__[:MOST_TEXT], _keep(kind)]
    if _is_named(kind):
        return ["named", *reference, *[to_tree(item, _refer, depth + 1) for item in value]]
    return ["ref", *reference, not _has(kind, "__bool__", ()) and not _has(kind, "__len__", ())]


def _keep(value: object) -> int:
    """Keep an object and return its number, which is always the same."""
    key = keys.setdefault(id(value), len(kept))
    if key == len(kept):
        kept.append(value)
    return key


def _own(error: BaseException) -> list[Any] | None:
    """Return a reference to an error unless it is a Python builtin."""
    return None if _is_pythons(type(error)) else _refer(error)


def _args(error: BaseException) -> Any:
    """Return the tree of the error's arguments; None if they are not plain data."""
    try:
        return to_tree(BaseException.args.__get__(error))  # type: ignore[attr-defined]
    except UnplainError:
        return None


def _is_pythons(kind: type) -> bool:
    return getattr(builtins, kind.__name__, None) is kind


def _is_librarys(kind: type) -> bool:
    """Return whether it is a class of the standard library, under its stated module and name."""
    module = kind.__module__
    is_librarys = module.partition(".")[0] in sys.stdlib_module_names
    return is_librarys and vars(sys.modules.get(module, sys)).get(kind.__name__) is kind


def _message(error: BaseException) -> str:
    """Return the plain arguments of the error as text, without calling the program's `__str__`."""
    args = BaseException.args.__get__(error)  # type: ignore[attr-defined]
    return ", ".join(str(arg) for arg in args if type(arg) is str or type(arg) is int)[:MOST_TEXT]


def _line(error: BaseException) -> int:
    """Return the last line of the program in the traceback; 0 if there is none."""
    if isinstance(error, SyntaxError) and error.filename == FILE:
        return error.lineno or 0
    return last_line(error, FILE)
