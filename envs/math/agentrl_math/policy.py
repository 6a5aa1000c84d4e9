"""Policies of the verifier: the keyword arguments of `verify`."""

import difflib
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Policy:
    """Rules for finding and comparing answers; the defaults are exact and reject hedged answers."""

    percent: Literal["optional", "value", "required"] = "optional"
    """`optional`: 50% is 0.5, and above 1 the sign may be missing or added (50 for 50%); `value`: 50% is only 0.5;
    `required`: both have the sign or neither."""
    units: Literal["optional", "required", "ignore"] = "optional"
    """`optional`: a unit may be missing but not differ from a known one; `required`: both have it or neither;
    `ignore`: units are ignored."""
    rounding: float | int | Literal["exact"] = "exact"
    """`exact`; an int: number of decimals to which both are rounded; a float below 1: relative tolerance."""
    order: Literal["auto", "strict", "free"] = "auto"
    """`auto`: (a, b) and [a, b] are ordered, {a, b} and a bare `a, b` are not; `strict`: bare lists are ordered too;
    `free`: tuples are unordered too."""
    box: Literal["last", "first", "only", "all"] = "last"
    r"""Which \boxed counts. `last`: the last mark of any kind; `only`: differing boxes are incorrect; `all`: the boxes
    form one list."""
    form: Literal["any", "value"] = "any"
    """`any`: 2^3 is 8; `value`: if the gold is a plain number, the answer must be one too, so that a model cannot
    answer 7+8 with 7+8."""
    think: Literal["auto", "open", "ignore"] = "auto"
    """`auto`: text up to the last </think> is ignored, and after an unclosed <think> there is no answer; `open`: the
    prompt has already opened a think block; `ignore`: tags are text."""
    fallback: Literal["none", "number"] = "none"
    """What counts without a box, `####` or <answer>. `none`: only a last line `Answer: …` or a response that consists
    of its answer; `number`: the number after "the answer is", else the last number."""

    @classmethod
    def of(cls, **settings: Any) -> "Policy":
        """Create a policy; TypeError for an unknown name, ValueError for an unknown value."""
        known = _known()
        for name, value in settings.items():
            if name not in known:
                raise TypeError(f"verify() has no policy {name!r}.{_nearest(name, list(known))}")
            _check(name, value, known[name])
        return cls(**settings)


@lru_cache(maxsize=1)
def _known() -> dict[str, list[str]]:
    """Return the choices of every field by name."""
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
