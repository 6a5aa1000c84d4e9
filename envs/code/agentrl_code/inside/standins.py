"""Stand-ins in a test for the objects and classes of the program: every use of them is a question to the program.

Questions go to `frames`, from where an order sends them; answers arrive in `answers`.
"""

from __future__ import annotations

import _thread
import builtins
from _queue import SimpleQueue

from agentrl_code.inside import references, trust
from agentrl_code.inside.arguments import is_changeable, is_in_place, replace
from agentrl_code.inside.errors import ForeignError, ProgramError, TestError, UnsentError, error_named
from agentrl_code.inside.references import ClassReference, Facts, Reference, facts, number_of, target_to_send
from agentrl_code.values import UnplainError, from_tree, to_tree

TYPE_CHECKING = False  # typing is not loaded inside, nor anything that can be avoided
if TYPE_CHECKING:
    from typing import Any

UNASKED = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__", "__hash__")
COPIES = {"__copy__": "copy", "__deepcopy__": "deepcopy"}
OF_CLASS = ("__class__", "__mro__", "__bases__", "__dict__", "__name__", "__qualname__", "__flags__")
classes: dict[int, type] = {}
metaclasses: dict[tuple[str, ...], type] = {}
remotes: dict[int, Reference] = {}
asking = _thread.allocate_lock()
"""A test may ask from several threads; only one question is open at a time."""
answers: SimpleQueue[Any] = SimpleQueue()
frames: SimpleQueue[Any] = SimpleQueue()


def of_name(name: str) -> Any:
    """Return what the program calls by this name."""
    value = _ask("name", ["name", name])
    if references.is_class(value) and name[:1].isupper():  # a class may hide behind the name of a function
        trust.named.add(value)
    if references.is_function(value):
        return _stand_in(type(value), ["name", name])  # by its name, since the program may rebind it
    return value


def _ask(
    operation: str, subject: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, find: Any = None
) -> Any:
    """Ask the program and wait for the answer: return the value or raise its exception."""
    values = [*args, *(kwargs or {}).values()]
    if operation == "call":
        trust.guard_call(subject, values)
    may_change = operation == "call" and any(map(is_changeable, values)) and is_in_place()
    try:
        target = subject if type(subject) is list else target_to_send(subject)
        trees = to_tree(list(args), target_to_send), to_tree(kwargs or {}, target_to_send)
    except UnplainError as problem:
        raise UnsentError(f"the test passes the program {problem}, which cannot be sent") from None
    except TestError as problem:
        if trust.is_answer(subject):
            raise UnsentError(str(problem)) from None
        raise
    with asking:
        frames.put(["ask", operation, target, *trees, may_change])
        kind, *parts = answers.get()
    if kind == "raised":
        raise _exception(*parts, is_end=operation == "special" and args[0] == "__next__")
    if kind == "refused":
        raise ForeignError(f"gave {parts[0]}")
    if may_change:
        for arg, new in zip(values, from_tree(parts[1], _find), strict=True):
            replace(arg, new)
    return from_tree(parts[0], find or _answer)


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


def _special(name: str) -> Any:
    """Return a special method that is forwarded to the program; `__exit__` does not pass on the block's error."""

    def ask(self: Any, *args: Any) -> Any:
        if args and (name, args) != ("__format__", ("",)):
            trust.guard(self, name, list(args))
        return _ask("special", self, (name, *args))

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _ask("call", self, args, kwargs)

    def leave(self: Any, kind: Any, *_: Any) -> Any:
        return _ask("special", self, (name, None, None, None)) if kind is None else False

    return {"__call__": call, "__exit__": leave}.get(name, ask)


def _get(self: Any, name: str) -> Any:
    value = _ask("get", self, (name,))
    if (number := number_of(value)) is not None:
        trust.methods.setdefault(number, []).append((self, name))
    return value


def _set(self: Any, name: str, value: Any) -> None:
    _ask("set", self, (name, value))


def _delete(self: Any, name: str) -> None:
    _ask("del", self, (name,))


SHOWN = {"__str__": _special("__str__"), "__repr__": _special("__repr__")}
METHODS: dict[str, dict[str, Any]] = {
    "error": {"__getattr__": _get, **SHOWN, "args": property(lambda self: _get(self, "args"))},
    "named": {"__getattr__": _get, **SHOWN},
}


class Class(ClassReference):
    """Stand-in for a class of the program: calls and attributes are forwarded."""

    __setattr__, __delattr__ = _set, _delete

    def __new__(cls, _: str, bases: tuple[Any, ...], *__: Any, **___: Any) -> Any:
        """Reject `class Own(TheirClass)` in a test, which cannot be sent; a class in an answer may be forged."""
        is_answers = not any(base in trust.named for base in bases)
        raise (UnsentError if is_answers else TestError)("the test derives a class from the program's")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the program's class; an instance that the test makes of a class it names is meant by the test."""
        value = _ask("call", self, args, kwargs, find=_find)
        if self in trust.named and self in type.__getattribute__(type(value), "__mro__"):
            trust.made.add(number_of(value))
        return value

    def __getattribute__(self, name: str) -> Any:
        if name in OF_CLASS:
            return type.__getattribute__(self, name)
        if name in COPIES:
            return lambda value, *_: _ask("copy", value, (COPIES[name],))
        return _get(self, name)

    def __instancecheck__(self, value: Any) -> bool:
        return type.__instancecheck__(self, value) or (
            type(value) in facts and _ask("isinstance", self, (value,)) is True
        )

    def __repr__(self) -> str:
        return str(_ask("special", self, ("__repr__",)))


class Remote(Reference):
    """Stand-in for an object of the program with the same special methods. It is never compared.

    An object equals itself and, if its class compares by identity, no other.
    """

    __slots__ = ()
    __setattr__, __delattr__ = _set, _delete
    __str__, __repr__ = SHOWN.values()

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return facts[type(self)].known or type(self)
        if name in UNASKED:
            trust.refuse(self)
        if name in COPIES:
            return lambda *_: _ask("copy", self, (COPIES[name],))
        return _get(self, name)

    def __eq__(self, other: object) -> bool:
        if self is not other and not (references.compares_by_identity(self) and references.compares_by_identity(other)):
            trust.refuse(self)
        return self is other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return id(self) if references.compares_by_identity(self) else trust.refuse(self)

    def _refused(self, *_: object) -> Any:
        trust.refuse(self)

    def __bool__(self) -> bool:
        if not references.truth.__get__(self):
            trust.refuse(self)
        return True

    __lt__ = __le__ = __gt__ = __ge__ = _refused


def _class(key: int) -> type:
    """Return the stand-in for a class of the program; the first call creates it."""
    if key not in classes:
        target = ["class", key]
        form, name, doc, is_built_in, is_by_identity, specials, of_class, bases = _ask(
            "class", target, (trust.SPECIAL,)
        )
        known = _known().get(name) if is_built_in else None
        form = "coroutine" if known is not None and name == "coroutine" else form
        space = {"__doc__": known.__doc__ if known else doc} | {
            method: _special(method) for method in _known_special(specials)
        }
        metaclass = _metaclass(tuple(_known_special(of_class)))
        stand_in = _made(metaclass, name, _bases(form, bases), space | METHODS.get(form, {"__slots__": ()}))
        facts[stand_in], classes[key] = Facts(target, form, known, is_by_identity), stand_in
    return classes[key]


def _known_special(names: list[Any]) -> list[str]:
    """Keep only methods in SPECIAL: the program may forge its description to have `__eq__` forwarded."""
    return [name for name in trust.SPECIAL if name in names]


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
        if isinstance(kind, type) and kind not in references.PLAIN and not issubclass(kind, BaseException)
    }


async def _awaited(target: list[Any]) -> Any:
    """Run a coroutine of the program to its end, in its sandbox."""
    return _ask("await", target)


def _answer(kind: str, key: int, *rest: Any) -> Any:
    """Return the stand-in for an object in an answer; the test may already have it."""
    if kind != "class":
        trust.answered.add(key)
    return _find(kind, key, *rest)


def _find(kind: str, key: int, _: str = "", of: int = -1, items: Any = ()) -> Any:
    """Return the stand-in for an object of the program, always the same for the same object."""
    if kind == "class":
        return _class(key)
    return remotes[key] if key in remotes else _stand_in(_class(of), ["ref", key], items)


def _stand_in(kind: type, target: list[Any], items: Any = ()) -> Any:
    form = facts[kind].form
    if form == "coroutine":
        coroutine = _awaited(target)
        references.coroutines[id(coroutine)] = coroutine, target
        return coroutine
    if form in METHODS:
        values = [items] if form == "named" and type(items) is list else []
        value: Any = type.__getattribute__(kind, "__new__")(kind, *values)
        value.__dict__["__target__"] = target
        return value
    value = object.__new__(kind)
    references.target_of.__set__(value, target)
    references.truth.__set__(value, items is True)
    if target[0] == "ref":
        remotes[target[1]] = value
    return value
