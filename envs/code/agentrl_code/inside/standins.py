"""Stand-ins in a test for the objects and classes of the program: every use of them is a question to the program.

Questions go to `frames`, from where an order sends them; answers arrive in `answers`.
"""

from __future__ import annotations

import _thread
import builtins
import sys
from _queue import SimpleQueue

from agentrl_code.inside.arguments import is_changeable, is_in_place, is_tests_own, replace
from agentrl_code.inside.errors import ForeignError, ProgramError, TestError, UnsentError, error_named
from agentrl_code.values import KEYS, LIBRARY, TYPES, UnplainError, from_library, from_tree, to_tree

TYPE_CHECKING = False  # typing is not loaded inside, nor anything that can be avoided
if TYPE_CHECKING:
    from typing import Any

BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
UNARY = (
    "call len iter next reversed contains getitem setitem delitem enter exit int float complex index round abs neg pos "
    "invert format bytes divmod trunc floor ceil"
)
SPECIAL = tuple(
    f"__{name}__" for name in UNARY.split() + [way + name for name in BINARY.split() for way in ("", "r", "i")]
)
"""Special methods that are forwarded to objects of the program that have them; comparisons are not forwarded."""
UNASKED = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__", "__hash__")
COPIES = {"__copy__": "copy", "__deepcopy__": "deepcopy"}
OF_CLASS = ("__class__", "__mro__", "__bases__", "__dict__", "__name__", "__qualname__", "__flags__")
FUNCTION = type(lambda: None)
PLAIN = {*TYPES.values(), bytearray, range, type, object}
asking = _thread.allocate_lock()
"""A test may ask from several threads; only one question is open at a time."""
answers: SimpleQueue[Any] = SimpleQueue()
frames: SimpleQueue[Any] = SimpleQueue()


def of_name(name: str) -> Any:
    """Return what the program calls by this name."""
    value = _ask("name", ["name", name])
    if issubclass(type(value), Class) and name[:1].isupper():  # a class may hide behind the name of a function
        named.add(value)
    if is_function(value):
        return _stand_in(type(value), ["name", name])  # by its name, since the program may rebind it
    return value


def is_function(value: object) -> bool:
    """Return whether a value stands for a plain function of the program."""
    return type(value) in facts and facts[type(value)].known is FUNCTION


class Class(type):
    """Stand-in for a class of the program: calls and attributes are forwarded."""

    def __new__(cls, _: str, bases: tuple[Any, ...], *__: Any, **___: Any) -> Any:
        """Reject `class Own(TheirClass)` in a test, which cannot be sent; a class in an answer may be forged."""
        is_answers = not any(base in named for base in bases)
        raise (UnsentError if is_answers else TestError)("the test derives a class from the program's")

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Call the program's class; an instance that the test makes of a class it names is meant by the test."""
        value = _ask("call", cls, args, kwargs, find=_find)
        if cls in named and cls in type.__getattribute__(type(value), "__mro__"):
            made.add(_number(value))
        return value

    def __getattribute__(cls, name: str) -> Any:
        if name in OF_CLASS:
            return type.__getattribute__(cls, name)
        if name in COPIES:
            return lambda value, *_: _ask("copy", value, (COPIES[name],))
        return _get(cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        _ask("set", cls, (name, value))

    def __delattr__(cls, name: str) -> None:
        _ask("del", cls, (name,))

    def __instancecheck__(cls, value: Any) -> bool:
        return type.__instancecheck__(cls, value) or (
            type(value) in facts and _ask("isinstance", cls, (value,)) is True
        )

    def __repr__(cls) -> str:
        return str(_ask("special", cls, ("__repr__",)))


class Remote:
    """Stand-in for an object of the program with the same special methods. It is never compared.

    An object equals itself and, if its class compares by identity, no other.
    """

    __slots__ = ("_is_true", "_target")  # read only by their descriptors, since every name belongs to the program

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return facts[type(self)].known or type(self)
        if name in UNASKED:
            _refuse(self)
        if name in COPIES:
            return lambda *_: _ask("copy", self, (COPIES[name],))
        return _get(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _ask("set", self, (name, value))

    def __delattr__(self, name: str) -> None:
        _ask("del", self, (name,))

    def __str__(self) -> str:
        return _ask("special", self, ("__str__",))  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return _ask("special", self, ("__repr__",))  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        if self is not other and not (_is_by_identity(self) and _is_by_identity(other)):
            _refuse(self)
        return self is other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return id(self) if _is_by_identity(self) else _refuse(self)

    def _refused(self, *_: object) -> Any:
        _refuse(self)

    def __bool__(self) -> bool:
        if not truth.__get__(self):
            _refuse(self)
        return True

    __lt__ = __le__ = __gt__ = __ge__ = _refused


class Facts:
    """Facts about a class of the program: its reference, the form of its instances, and how they compare."""

    def __init__(self, target: list[Any], form: str, known: type | None, is_by_identity: bool) -> None:
        self.target, self.form, self.known, self.is_by_identity = target, form, known, is_by_identity


facts: dict[type, Facts] = {}
classes: dict[int, type] = {}
metaclasses: dict[tuple[str, ...], type] = {}
remotes: dict[int, Remote] = {}
named: set[type] = set()
"""Classes that the test names, with a capital letter."""
made: set[int] = set()
"""Numbers of objects that the test made by calling named classes."""
checked: set[int] = set()
"""Numbers of objects that the test found to be instances of named classes."""
answered: set[int] = set()
"""Numbers of objects that the program returned: a method may return its own object instead of plain data."""
meant: set[tuple[type, str]] = set()
"""Operations that the test has used on objects that it made."""
methods: dict[int, list[tuple[Any, str]]] = {}
"""Object number -> the owners and names by which the test got it as an attribute."""
coroutines: dict[int, tuple[Any, list[Any]]] = {}
target_of, truth = Remote.__dict__["_target"], Remote.__dict__["_is_true"]


def _refuse(value: Any, what: str = "which is not compared") -> Any:
    raise ForeignError(f"gave an object of its own type {type(value).__name__}, {what}")


def _guard(receiver: Any, name: str, args: list[Any]) -> None:
    """Reject passing data of the test to an object where plain data is possible: it may be the expected result."""
    has_data = not all(type(each) in facts for each in args)
    if has_data and not _is_meant(receiver, name) and name in _plain_names():
        _refuse(receiver, f"whose {name} may not get data of the test, which neither made it nor checked its type")


def _is_meant(receiver: Any, name: str) -> bool:
    """Return whether the test means this object: it made or checked it, or used the same operation on one it made."""
    if issubclass(type(receiver), Class):
        return receiver in named
    number, classes = _number(receiver), type.__getattribute__(type(receiver), "__mro__")
    if number in checked or (number in made and number not in answered):
        meant.update((each, name) for each in classes)
        return True
    return any((each, name) in meant for each in named.intersection(classes))


def is_instance(value: Any, kind: Any) -> bool:
    """Call Python's `isinstance` and record which objects of the program the test has checked."""
    is_one = pythons_isinstance(value, kind)
    if is_one and type(value) in facts and named.intersection(kind if type(kind) is tuple else (kind,)):
        checked.add(_number(value))
    return is_one


pythons_isinstance = isinstance


def _plain_names() -> set[str]:
    """Return the names of all attributes and operators of plain data."""
    if not plain_names:
        kinds = [*PLAIN - {type}, KEYS, *map(from_library, LIBRARY)]
        plain_names.update(*map(dir, kinds), SPECIAL)
        plain_names.discard("__call__")
    return plain_names


plain_names: set[str] = set()


def _is_by_identity(value: object) -> bool:
    return type(value) in facts and facts[type(value)].is_by_identity


def _class(key: int) -> type:
    """Return the stand-in for a class of the program; the first call creates it."""
    if key not in classes:
        target = ["class", key]
        form, name, doc, is_built_in, is_by_identity, methods, of_class, bases = _ask("class", target, (SPECIAL,))
        known = _known().get(name) if is_built_in else None
        form = "coroutine" if known is not None and name == "coroutine" else form
        space = {"__doc__": known.__doc__ if known else doc} | {
            method: _special(method) for method in _known_special(methods)
        }
        metaclass = _metaclass(tuple(_known_special(of_class)))
        made = _made(metaclass, name, _bases(form, bases), space | METHODS.get(form, {"__slots__": ()}))
        facts[made], classes[key] = Facts(target, form, known, is_by_identity), made
    return classes[key]


def _known_special(names: list[Any]) -> list[str]:
    """Keep only methods in SPECIAL: the program may forge its description to have `__eq__` forwarded."""
    return [name for name in SPECIAL if name in names]


def _made(metaclass: type, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> type:
    try:
        return type.__new__(metaclass, name, bases, space)
    except (TypeError, ValueError):  # incompatible classes, or an invalid name
        return type.__new__(Class, "?", bases[:1], space)


def _metaclass(methods: tuple[str, ...]) -> type:
    """Return a metaclass with these special methods, such as those of an Enum."""
    if methods not in metaclasses:
        space = {method: _special(method) for method in methods if method != "__call__"}
        metaclasses[methods] = type("Class", (Class,), space) if space else Class
    return metaclasses[methods]


def _bases(form: str, bases: list[Any]) -> tuple[type, ...]:
    """Return the bases of the same form and, for errors, Python's own exceptions."""
    roots: dict[str, tuple[type, ...]] = {"error": (Exception,), "named": (tuple,)}
    found = [base for base in bases if base in facts and facts[base].form == form]
    if form == "error":
        found += [base for name in bases if type(name) is str and (base := error_named(name))]
    return tuple(found) or roots.get(form, (Remote,))


def _known() -> dict[str, type]:
    """Return Python's own types that are not plain data, such as functions and generators, by name."""
    import types

    everything = [*vars(types).values(), *vars(builtins).values()]
    return {
        kind.__name__: kind
        for kind in everything
        if isinstance(kind, type) and kind not in PLAIN and not issubclass(kind, BaseException)
    }


def _special(name: str) -> Any:
    """Return a special method that is forwarded to the program; `__exit__` does not pass on the block's error."""

    def ask(self: Any, *args: Any) -> Any:
        if args and (name, args) != ("__format__", ("",)):
            _guard(self, name, list(args))
        return _ask("special", self, (name, *args))

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _ask("call", self, args, kwargs)

    def leave(self: Any, kind: Any, *_: Any) -> Any:
        return _ask("special", self, (name, None, None, None)) if kind is None else False

    return {"__call__": call, "__exit__": leave}.get(name, ask)


def _get(self: Any, name: str) -> Any:
    value = _ask("get", self, (name,))
    if (number := _number(value)) is not None:
        methods.setdefault(number, []).append((self, name))
    return value


METHODS: dict[str, dict[str, Any]] = {
    "error": {
        "__getattr__": _get,
        "__str__": _special("__str__"),
        "__repr__": _special("__repr__"),
        "args": property(lambda self: _get(self, "args")),
    },
    "named": {"__getattr__": _get, "__str__": _special("__str__"), "__repr__": _special("__repr__")},
}


async def _awaited(target: list[Any]) -> Any:
    """Run a coroutine of the program to its end, in its sandbox."""
    return _ask("await", target)


def _answer(kind: str, key: int, *rest: Any) -> Any:
    """Return the stand-in for an object in an answer; the test may already have it."""
    if kind != "class":
        answered.add(key)
    return _find(kind, key, *rest)


def _find(kind: str, key: int, _: str = "", of: int = -1, items: Any = ()) -> Any:
    """Return the stand-in for an object of the program, always the same for the same object."""
    if kind == "class":
        return _class(key)
    return remotes[key] if key in remotes else _stand_in(_class(of), ["ref", key], items)


def _stand_in(made: type, target: list[Any], items: Any = ()) -> Any:
    form = facts[made].form
    if form == "coroutine":
        coroutine = _awaited(target)
        coroutines[id(coroutine)] = coroutine, target
        return coroutine
    if form in METHODS:
        values = [items] if form == "named" and type(items) is list else []
        value: Any = type.__getattribute__(made, "__new__")(made, *values)
        value.__dict__["__target__"] = target
        return value
    value = object.__new__(made)
    target_of.__set__(value, target)
    truth.__set__(value, items is True)
    if target[0] == "ref":
        remotes[target[1]] = value
    return value


def _number(value: Any) -> Any:
    """Return the number of an object or class of the program; None if it is known by name or is plain data."""
    is_its = type(value) in facts or issubclass(type(value), Class)
    target = _target(value) if is_its else ["name"]
    return None if target[0] == "name" else target[1]


def _target(value: Any, depth: int = 0) -> list[Any]:
    """Return the reference to an object of the program. Of other non-plain data, a test may pass only slices."""
    kind = type(value)
    if kind is slice:
        return ["slice", *[to_tree(part, _target, depth + 1) for part in (value.start, value.stop, value.step)]]
    if issubclass(kind, Class):
        return facts[value].target
    if kind in facts:
        found: list[Any] = value.__dict__["__target__"] if facts[kind].form in METHODS else target_of.__get__(value)
        return found
    if id(value) in coroutines:
        return coroutines[id(value)][1]
    if kind.__module__ in sys.modules and kind.__module__ in LIBRARY.values():
        raise UnplainError(f"an object of type {kind.__name__}")  # perhaps computed from an answer
    message = f"the test passes the program an object of type {kind.__name__}, which cannot be sent"
    raise (TestError if is_tests_own(value) else UnsentError)(message)


def _ask(
    operation: str, subject: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, find: Any = None
) -> Any:
    """Ask the program and wait for the answer: return the value or raise its exception."""
    values = [*args, *(kwargs or {}).values()]
    for owner, name in methods.get(_number(subject), ()) if operation == "call" else ():
        _guard(owner, name, values)
    may_change = operation == "call" and any(map(is_changeable, values)) and is_in_place()
    try:
        target, trees = subject if type(subject) is list else _target(subject), to_tree(list(args), _target)
        question = ["ask", operation, target, trees, to_tree(kwargs or {}, _target), may_change]
    except UnplainError as problem:
        raise UnsentError(f"the test passes the program {problem}, which cannot be sent") from None
    except TestError as problem:
        if _is_answer(subject):
            raise UnsentError(str(problem)) from None
        raise
    with asking:
        frames.put(question)
        kind, *parts = answers.get()
    if kind == "raised":
        raise _exception(*parts, is_end=operation == "special" and args[0] == "__next__")
    if kind == "refused":
        raise ForeignError(f"gave {parts[0]}")
    if may_change:
        for arg, new in zip(values, from_tree(parts[1], _find), strict=True):
            replace(arg, new)
    return from_tree(parts[0], find or _answer)


def _is_answer(subject: Any) -> bool:
    """Return whether an object, or the owner of a method, came as an answer and so may be forged by the program."""
    number = _number(subject)
    if number is None:
        return False
    owners = methods.get(number)
    if owners:
        return any(map(_is_answer, [owner for owner, _ in owners]))
    return subject not in named if issubclass(type(subject), Class) else number not in made or number in answered


def _exception(name: str, message: str, _: int, tree: Any, args_tree: Any, *, is_end: bool) -> BaseException:
    """Return the exception of this name with the same arguments, or the program's own.

    Only `next` may raise StopIteration: `all(map(f, …))` would treat it as success.
    """
    own = from_tree(tree, _find)
    if isinstance(own, Exception):
        BaseException.args.__set__(own, (message,))  # type: ignore[attr-defined]
        return own
    known = error_named(name, is_end)
    for args in (from_tree(args_tree), (message,)) if known else ():
        try:
            return known(*args)  # type: ignore[misc]
        except (TypeError, ValueError, AttributeError, LookupError):  # it needs other arguments, or they are forged
            continue
    return ProgramError(f"{name}: {message}")
