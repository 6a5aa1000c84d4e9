"""What counts as the answer and as equal: the keyword arguments of `verify`."""

import difflib
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Policy:
    """How answers are found and compared; the defaults are exact and pay no hedge."""

    percent: Literal["optional", "value", "required"] = "optional"
    """`optional`: 50% is 0.5, and a dropped or added sign is forgiven above 1 (50 for 50%); `value`: 50% is 0.5 only;
    `required`: both carry the sign or neither does."""
    units: Literal["optional", "required", "ignore"] = "optional"
    """`optional`: a missing unit is forgiven, a different known one is not; `required`: both or neither;
    `ignore`: never looked at."""
    rounding: float | int | Literal["exact"] = "exact"
    """`exact`; an int: equal once both are rounded to that many decimals; a float below 1: a relative tolerance."""
    order: Literal["auto", "strict", "free"] = "auto"
    """`auto`: (a, b) and [a, b] are ordered, {a, b} and a bare `a, b` are not; `strict`: bare lists are ordered too;
    `free`: tuples are unordered too."""
    box: Literal["last", "first", "only", "all"] = "last"
    r"""Which \boxed counts; `last`: the last mark of any kind; `only`: boxes that differ are incorrect; `all`: they are
    the members of one list."""
    form: Literal["any", "value"] = "any"
    """`any`: 2^3 is 8; `value`: a gold that is a plain number wants a plain number, so that a model cannot answer
    7+8 with 7+8."""
    think: Literal["auto", "open", "ignore"] = "auto"
    """`auto`: nothing up to the last </think> counts, an unclosed <think> leaves no answer; `open`: the prompt has
    already opened one; `ignore`: tags are text."""
    fallback: Literal["none", "number"] = "none"
    """What counts where no box, `####` or <answer> marks an answer: `none`, only a last line `Answer: …` or a response
    that is its answer; `number`, the number behind "the answer is", else the last one."""

    @classmethod
    def of(cls, **given: Any) -> "Policy":
        """Return the policy with these changes; TypeError for an unknown name, ValueError for an unknown value."""
        known = _known()
        for name, value in given.items():
            if name not in known:
                raise TypeError(f"verify() has no policy {name!r}.{_nearest(name, list(known))}")
            _check(name, value, known[name])
        return cls(**given)


@lru_cache(maxsize=1)
def _known() -> dict[str, list[str]]:
    """Return the choices of every policy, by its name."""
    hints = get_type_hints(Policy)
    return {field.name: _choices(hints[field.name]) for field in fields(Policy)}


def _check(name: str, value: Any, choices: list[str]) -> None:
    if name == "rounding" and _is_rounding(value):
        return
    if not isinstance(value, str) or value not in choices:
        extra = " or an int of decimals 0-30 or a relative tolerance between 0 and 1" if name == "rounding" else ""
        raise ValueError(f"policy {name}={value!r} is none of {choices}{extra}.{_nearest(str(value), choices, '')}")


def _is_rounding(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return 0 <= value <= 30
    return isinstance(value, float) and 0 < value < 1


def _choices(hint: Any) -> list[str]:
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [choice for part in get_args(hint) for choice in _choices(part)]


def _nearest(name: str, known: list[str], known_text: str = " Known: {}.") -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return (f" Did you mean {close[0]!r}?" if close else "") + known_text.format(", ".join(known))
