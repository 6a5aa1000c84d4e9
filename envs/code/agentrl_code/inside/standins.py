"""What stands in a test for the objects and classes of the program: whatever is done with them is asked of the program.

A question waits in `frames` for the order that brings it out; the answer comes into `answers`.
"""

from __future__ import annotations

import _thread
import builtins
import sys
from _collections_abc import MutableMapping, MutableSequence, MutableSet
from _queue import SimpleQueue

from agentrl_code.values import KEYS, LIBRARY, ON_HEAP, TYPES, UnplainError, from_library, from_tree, to_tree

TYPE_CHECKING = False  # typing is not loaded inside, nor what can be had without
if TYPE_CHECKING:
    from typing import Any

FILE = "<test>"
ENDS = ("StopIteration", "StopAsyncIteration")
BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
UNARY = (
    "call len iter next reversed contains getitem setitem delitem enter exit int float complex index round abs neg pos "
    "invert format bytes divmod trunc floor ceil"
)
SPECIAL = tuple(
    f"__{name}__" for name in UNARY.split() + [way + name for name in BINARY.split() for way in ("", "r", "i")]
)
"""The special methods that are asked of the program's objects which have them: not those that compare."""
UNASKED = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__", "__hash__")
COPIES = {"__copy__": "copy", "__deepcopy__": "deepcopy"}
OF_CLASS = ("__class__", "__mro__", "__bases__", "__dict__", "__name__", "__qualname__", "__flags__")
FUNCTION = type(lambda: None)
PLAIN = {*TYPES.values(), bytearray, range, type, object}
asking = _thread.allocate_lock()
"""A test may ask in several threads; one question is under way at a time."""
answers: SimpleQueue[Any] = SimpleQueue()
frames: SimpleQueue[Any] = SimpleQueue()
refusals: list[str] = []
"""What the test did that would have let the program decide, whether it caught that or not."""


class ForeignError(BaseException):
    """A test did with an object of the program's what would let the program decide. A test that catches it fails."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        refusals.append(said)


class TestError(BaseException):
    """A test does what no program can be asked for."""


class UnsentError(BaseException):
    """A test sent data that cannot be sent; it may have it from the program."""


class ProgramError(Exception):
    """The program raised something that Python does not know by name."""


def of_name(name: str) -> Any:
    """What the program calls so."""
    value = _ask("name", ["name", name])
    if issubclass(type(value), Class) and name[:1].isupper():  # a function's name may be given to a class
        named.add(value)
    if is_function(value):
        return _stand_in(type(value), ["name", name])  # by its name, for the program may rebind it
    return value


def is_function(value: object) -> bool:
    """Return whether this stands for a plain function of the program's."""
    return type(value) in facts and facts[type(value)].known is FUNCTION


class Class(type):
    """What stands for a class of the program's: calling it, and whatever it holds, is asked of the program."""

    def __new__(cls, _: str, bases: tuple[Any, ...], *__: Any, **___: Any) -> Any:
        """A test's `class Own(TheirClass)`: the program cannot be given one. Of an answer it may be a forged one."""
        is_answers = not any(base in named for base in bases)
        raise (UnsentError if is_answers else TestError)("the test derives a class from the program's")

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """What the program's own gives; the test means what it makes of a class that it names."""
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
    """Something of the program's: its stand-in has the special methods that it has. It is never compared.

    What is known to be one object is equal to itself, and where its class compares by identity, to no other.
    """

    __slots__ = ("_is_true", "_target")  # read through their descriptors alone: every name is the program's

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
    """What is known of a class of the program's: where it is, what its instances are made as, and how they compare."""

    def __init__(self, target: list[Any], form: str, known: type | None, is_by_identity: bool) -> None:
        self.target, self.form, self.known, self.is_by_identity = target, form, known, is_by_identity


facts: dict[type, Facts] = {}
classes: dict[int, type] = {}
metaclasses: dict[tuple[str, ...], type] = {}
remotes: dict[int, Remote] = {}
named: set[type] = set()
"""Classes that the test names; a class is named with a capital."""
made: set[int] = set()
"""The numbers of the objects that the test made of them, by calling them."""
checked: set[int] = set()
"""Of those that it found to be instances of them."""
answered: set[int] = set()
"""Of those that the program has answered with: a method may answer with its own object in the place of plain data."""
meant: set[tuple[type, str]] = set()
"""The operations that a test has asked of objects that it made."""
methods: dict[int, list[tuple[Any, str]]] = {}
"""As whose attributes a test got hold of an object, by the object's number."""
coroutines: dict[int, tuple[Any, list[Any]]] = {}
place, truth = Remote.__dict__["_target"], Remote.__dict__["_is_true"]


def _refuse(value: Any, what: str = "which is not compared") -> Any:
    raise ForeignError(f"gave an object of its own type {type(value).__name__}, {what}")


def _guard(receiver: Any, name: str, given: list[Any]) -> None:
    """Refuse to hand an answer what plain data in its place would be handed: that may be what is expected."""
    is_told = not all(type(each) in facts for each in given)
    if is_told and not _is_meant(receiver, name) and name in _plain_names():
        _refuse(receiver, f"whose {name} is handed nothing of the test's: it neither made it nor checked what it is")


def _is_meant(receiver: Any, name: str) -> bool:
    """Whether the test knows this object: it made it, and asks the same once the program has answered with it."""
    if issubclass(type(receiver), Class):
        return receiver in named
    number, classes = _number(receiver), type.__getattribute__(type(receiver), "__mro__")
    if number in checked or (number in made and number not in answered):
        meant.update((each, name) for each in classes)
        return True
    return any((each, name) in meant for each in named.intersection(classes))


def is_instance(value: Any, kind: Any) -> bool:
    """Python's `isinstance`, which takes down what a test has found an object of the program's to be."""
    is_one = pythons_isinstance(value, kind)
    if is_one and type(value) in facts and named.intersection(kind if type(kind) is tuple else (kind,)):
        checked.add(_number(value))
    return is_one


pythons_isinstance = isinstance


def _plain_names() -> set[str]:
    """What plain data can be asked, with operators or by name."""
    if not plain_names:
        kinds = [*PLAIN - {type}, KEYS, *map(from_library, LIBRARY)]
        plain_names.update(*map(dir, kinds), SPECIAL)
        plain_names.discard("__call__")
    return plain_names


plain_names: set[str] = set()


def _is_by_identity(value: object) -> bool:
    return type(value) in facts and facts[type(value)].is_by_identity


def _class(key: int) -> type:
    """Return the stand-in for a class of the program's, made when it is first met."""
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
    """Those that are asked: the program can forge what it says of a class, and would have `__eq__` asked of it."""
    return [name for name in SPECIAL if name in names]


def _made(metaclass: type, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> type:
    try:
        return type.__new__(metaclass, name, bases, space)
    except (TypeError, ValueError):  # classes that do not go together, a name that is none
        return type.__new__(Class, "?", bases[:1], space)


def _metaclass(methods: tuple[str, ...]) -> type:
    """Return a class of classes with these special methods, such as those of an Enum."""
    if methods not in metaclasses:
        space = {method: _special(method) for method in methods if method != "__call__"}
        metaclasses[methods] = type("Class", (Class,), space) if space else Class
    return metaclasses[methods]


def _bases(form: str, bases: list[Any]) -> tuple[type, ...]:
    """Those of its bases that are made as it is, and of Python's own those that errors have."""
    roots: dict[str, tuple[type, ...]] = {"error": (Exception,), "named": (tuple,)}
    found = [base for base in bases if base in facts and facts[base].form == form]
    if form == "error":
        found += [base for name in bases if type(name) is str and (base := _error_named(name))]
    return tuple(found) or roots.get(form, (Remote,))


def _known() -> dict[str, type]:
    """Python's own types that are no plain data, such as those of functions and generators."""
    import types

    everything = [*vars(types).values(), *vars(builtins).values()]
    return {
        kind.__name__: kind
        for kind in everything
        if isinstance(kind, type) and kind not in PLAIN and not issubclass(kind, BaseException)
    }


def _special(name: str) -> Any:
    """Return a special method that is asked of the program. What a block raised is no affair of the program's."""

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
    """Return a coroutine of the program's: awaiting it runs it there, to its end."""
    return _ask("await", target)


def _answer(kind: str, key: int, *rest: Any) -> Any:
    """What the program answers with, which may be an object that the test has."""
    if kind != "class":
        answered.add(key)
    return _find(kind, key, *rest)


def _find(kind: str, key: int, _: str = "", of: int = -1, items: Any = ()) -> Any:
    """What stands for something of the program's: the same for the same object."""
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
    place.__set__(value, target)
    truth.__set__(value, items is True)
    if target[0] == "ref":
        remotes[target[1]] = value
    return value


def _number(value: Any) -> Any:
    """The number of an object or a class of the program's; None of what is known by its name, and of plain data."""
    is_its = type(value) in facts or issubclass(type(value), Class)
    target = _target(value) if is_its else ["name"]
    return None if target[0] == "name" else target[1]


def _target(value: Any, depth: int = 0) -> list[Any]:
    """Where something of the program's is. Of what else is no plain data, a test gives it slices alone."""
    kind = type(value)
    if kind is slice:
        return ["slice", *[to_tree(part, _target, depth + 1) for part in (value.start, value.stop, value.step)]]
    if issubclass(kind, Class):
        return facts[value].target
    if kind in facts:
        found: list[Any] = value.__dict__["__target__"] if facts[kind].form in METHODS else place.__get__(value)
        return found
    if id(value) in coroutines:
        return coroutines[id(value)][1]
    if kind.__module__ in sys.modules and kind.__module__ in LIBRARY.values():
        raise UnplainError(f"an object of type {kind.__name__}")  # a difference of dates: what they are is not its own
    said = f"the test gives the program an object of type {kind.__name__}, which cannot be sent"
    raise (TestError if _is_tests_own(value) else UnsentError)(said)


def _is_tests_own(value: Any) -> bool:
    """Whether the test's text made this, not what came of an answer: `b.values()` is a list's where `b` is a dict."""
    kind = type(value)
    is_of_own_class = kind.__module__ == "builtins" and bool(kind.__flags__ & ON_HEAP)  # a test's module has no name
    if vars(builtins).get(kind.__name__) is kind and not issubclass(kind, BaseException):
        return True  # a test writes `map(…)` itself, whatever it maps
    code = [getattr(value, name, None) for name in ("__code__", "gi_code", "cr_code", "ag_code")]
    return is_of_own_class or any(getattr(each, "co_filename", "") in (FILE, "<setup>") for each in code)


def _ask(
    operation: str, subject: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, find: Any = None
) -> Any:
    """Ask the program, and wait for the answer: a value, or its exception, by Python's name for it."""
    given = [*args, *(kwargs or {}).values()]
    for owner, name in methods.get(_number(subject), ()) if operation == "call" else ():
        _guard(owner, name, given)
    is_in_place = operation == "call" and any(map(_is_changeable, given)) and _is_in_place()
    try:
        target, trees = subject if type(subject) is list else _target(subject), to_tree(list(args), _target)
        question = ["ask", operation, target, trees, to_tree(kwargs or {}, _target), is_in_place]
    except UnplainError as problem:
        raise UnsentError(f"the test gives the program {problem}, which cannot be sent") from None
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
    if is_in_place:
        for arg, new in zip(given, from_tree(parts[1], _find), strict=True):
            _replace(arg, new)
    return from_tree(parts[0], find or _answer)


def _is_answer(subject: Any) -> bool:
    """Return whether this, or whatever it is a method of, came as an answer: the program may have put it there."""
    number = _number(subject)
    if number is None:
        return False
    owners = methods.get(number)
    if owners:
        return any(map(_is_answer, [owner for owner, _ in owners]))
    return subject not in named if issubclass(type(subject), Class) else number not in made or number in answered


def _is_in_place() -> bool:
    """Return whether the line that calls is one whose calls may change the test's own arguments."""
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


def _exception(name: str, message: str, _: int, tree: Any, made_of: Any, *, is_end: bool) -> BaseException:
    """Return the exception of that name, made of the same, or of the program's own class.

    Only `next` may end an iteration: `all(map(f, …))` takes that for success.
    """
    own = from_tree(tree, _find)
    if isinstance(own, Exception):
        BaseException.args.__set__(own, (message,))  # type: ignore[attr-defined]
        return own
    known = _error_named(name, is_end)
    for args in (from_tree(made_of), (message,)) if known else ():
        try:
            return known(*args)  # type: ignore[misc]
        except (TypeError, ValueError, AttributeError, LookupError):  # it takes more, or what is forged does not fit
            continue
    return ProgramError(f"{name}: {message}")


def _error_named(name: str, is_end: bool = False) -> type[BaseException] | None:
    """Python's exception of that name, or the one of a module which the test has loaded, such as json.

    Not those of unittest: a program that raised its SkipTest would be let off.
    """
    module, _, name = name.rpartition(".")
    root = module.partition(".")[0]
    if root and (root == "unittest" or root not in sys.stdlib_module_names):
        return None
    known = vars(sys.modules.get(module or "builtins", builtins)).get(name)
    is_fit = isinstance(known, type) and (issubclass(known, Exception) or known is SystemExit)
    return known if is_fit and (is_end or name not in ENDS) else None
