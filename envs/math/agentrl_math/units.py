"""The unit after a number, and quantities in parts such as 5 feet 6 inches."""

import re
from fractions import Fraction

from agentrl_math.measures import canonical, is_measure, powers, written
from agentrl_math.prose import CHANGERS, is_noun, is_word

MAX_UNIT_CHARS = 80
"""Only this many characters at the end of a text are searched for a unit."""
_INDEX = r"(\^\s*\{?\s*-?\d\s*\}?)?"
_NAME = r"(?:\\mu\s*)?(?:[A-Za-z]?(?:\\Omega|\u03a9)|[A-Za-z\u00b5\u03bc]+\.?)(?:\^?\{?-?[123]\}?)?"
_TEXT_UNIT = re.compile(rf"\\text\s*\{{((?:[^{{}}]|\{{[^{{}}]*\}})*)\}}\s*{_INDEX}\s*$")
_SIGN_UNIT = re.compile(r"(%|\^\\circ\s*(?:[CF]\b)?)\s*$")
_MEASURE = re.compile(rf"(?<=[\d)}}])\s*(/?{_NAME}(?:(?:\s*[/*]\s*|[ -]){_NAME}){{0,5}})\s*$")
_LONG_WORD_UNIT = re.compile(
    r"(?<=[\d)}])\s*((?:(?:square|sq|cubic|cu)\.? )?[A-Za-z]{2,}(?:[ -][A-Za-z]{2,}|/[A-Za-z]+){0,3})\s*"
    r"(\^\s*\{?[23]\}?)?\s*$"
)
_LETTER_UNIT = re.compile(r"(?<=\d)\s+(m|g|s|h|l|L)(\^\s*\{?[23]\}?)?\s*$")
_PATTERNS = (_SIGN_UNIT, _TEXT_UNIT, _MEASURE, _LONG_WORD_UNIT, _LETTER_UNIT)
_GLUED = set("mm cm km in ft yd mi kg oz ms hr yr ml rs pt lb lbs am pm".split())  # noqa: SIM905
"""Lower-case symbols that are units even without a space after the number; `2nm` is 2·n·m."""
_RATIO = set("m km cm ft g kg mi mg ml l L s h min sec hr".split())  # noqa: SIM905
_BARE = re.compile(r"([-\u2212]?[\d.,]*\d)\s*(?:[msghLNJWVΩ]|Hz|Pa)")
_LETTERS = re.compile(rf"(?<=[\d)}}\s])({_NAME}(?:[ */]{{1,3}}{_NAME}){{0,3}})\s*$")
_CHANGED = re.compile(r"\w*fold|\w{2,}[^e]ed")
"""`tenfold` and `inverted` change a number; they are not counted things."""
_MATH_WORDS = CHANGERS | set(
    "but if when where with as for the a an in to from sin cos tan ln log exp sqrt root oo inf infinity and i e dne "  # noqa: SIM905
    "none nothing empty undefined infinite solution solutions exist exists".split()
)
_MONEY = r"euro|gbp|pound|yen|rupee|Rs\.?|USD|EUR|GBP|JPY|INR|CNY|AUD|CAD|CHF"
_PREFIX = re.compile(
    rf"^(-?)\s*(?:(?:(?:US|CA|A) ?)?(\\\$)|\\text\s*\{{\s*({_MONEY}|\\?\$)\s*\}}|({_MONEY})(?=\s*\d))\s*(?=[-\d.\\])"
)


def split_unit(text: str, depth: int = 3) -> tuple[str, str]:
    """Split `5\\text{ cm}^2` into ("5", "centimeter^2"); the unit is "" if there is none."""
    prefix = _PREFIX.match(text)
    if prefix and depth:
        rest, trailing = split_unit(text[prefix.end() :], depth - 1)
        return prefix.group(1) + rest, _priced(next(filter(None, prefix.groups()[1:])), trailing)
    start = max(len(text) - MAX_UNIT_CHARS, 0)
    tail = text[start:]
    for pattern in _PATTERNS if depth else ():
        found = pattern.search(tail)
        if found and start + found.start() > 0 and _is_unit(found):
            unit = found.group(1) + (found.group(2) or "" if pattern.groups > 1 else "")
            rest, inner = split_unit(text[: start + found.start()].strip(), depth - 1)
            return rest, canonical(f"{inner} {unit}" if inner not in ("", "dollar") else unit)
    return text, ""


def _priced(sign: str, trailing: str) -> str:
    """Return the unit of `$5`, of `$5 dollars` and of `$5 per hour`."""
    price, rest = powers(sign), powers(trailing)
    return written(rest if price.keys() & rest.keys() else {**price, **rest})


def _is_unit(found: re.Match[str]) -> bool:
    """Return whether the words after a number are a unit or nouns and do not change the number."""
    unit = found.group(1)
    tokens = re.findall("[a-z]+", unit.lower())
    if unit.strip() in ("in", "in.") or (is_measure(unit) and _stands_apart(found)):
        return True
    if (
        found.re is _MEASURE
        or _MATH_WORDS & set(tokens)
        or _CHANGED.fullmatch(tokens[-1] if tokens else "")
        or re.search(r"\d(?!\W*$)|[(),;=<>]", unit)
    ):
        return False
    if found.re is not _LONG_WORD_UNIT:
        return True
    kind = is_noun if found.group()[0] == " " else is_word
    return any(kind(token) for token in tokens) or any(is_measure(token) and len(token) > 2 for token in tokens)


def _stands_apart(found: re.Match[str]) -> bool:
    """Return whether bare letters after a number can only be a unit: words, known symbols, or letters with a slash."""
    if found.re is not _MEASURE and found.re is not _LONG_WORD_UNIT:
        return True
    names = re.findall(r"[A-Za-z]+", found.group(1))
    if "/" in found.group(1) and set(names) <= _RATIO:
        return True
    if "\\" in found.group(1):
        return found.group()[0].isspace()
    if any(len(name) < 2 for name in names):
        return False
    is_glued = not found.group()[0].isspace() and len(names) == 1 and len(names[0]) < 4
    return not is_glued or names[0].lower() in _GLUED or not names[0].islower()


def bare_number(text: str) -> str | None:
    """Return the number of `5m` or `5 N`, whose letter is a unit if the gold is a plain number; else None."""
    found = _BARE.fullmatch(text.strip(" $"))
    return found.group(1) if found else None


def with_letters(text: str) -> tuple[str, str] | None:
    """Split `5 V` or `4 N m` into number and unit; only a unit in the other answer shows that they are not symbols."""
    start = max(len(text) - MAX_UNIT_CHARS, 0)
    found = _LETTERS.search(text, start)
    if not found or not is_measure(found.group(1)):
        return None
    return text[: found.start()].strip(), canonical(found.group(1))


_STEPS = {
    "degree": ("arcminute", 60), "arcminute": ("arcsecond", 60), "week": ("day", 7), "day": ("hour", 24),
    "hour": ("minute", 60), "minute": ("second", 60), "year": ("month", 12), "yard": ("foot", 3), "foot": ("inch", 12),
    "lb": ("ounce", 16), "pound": ("ounce", 16), "stone": ("pound", 14), "gallon": ("quart", 4), "quart": ("pint", 2),
    "dollar": ("cent", 100), "euro": ("cent", 100), "gbp": ("penny", 100), "kilometer": ("meter", 1000),
    "meter": ("centimeter", 100), "centimeter": ("millimeter", 10), "kilogram": ("gram", 1000),
}  # fmt: skip
_PART = re.compile(
    r"\s*(?:,?\s*and\s|,)?\s*(\d{1,15}(?:\.\d{1,30})?)\s*"
    r"(?:\\text\s*\{\s*([A-Za-z]{1,12}\.?)\s*\}|([A-Za-z]{1,12}\.?)|(\^\\circ|''|'|\"))"
)
_SIGNS = {"^\\circ": "degree", "'": "foot", "''": "inch", '"': "inch"}
_ARCS = {"'": "arcminute", "''": "arcsecond", '"': "arcsecond"}


def in_parts(text: str) -> tuple[Fraction, str] | None:
    """Return value and first unit of `45^\\circ 30'`, `1 hour and 30 minutes`, `5 ft 6 in` or `6'`; else None."""
    body, sign = text.removeprefix("-").strip(), ""
    parts: list[tuple[Fraction, str]] = []
    at = 0
    while at < len(body) and len(parts) < 4:
        found = _PART.match(body, at)
        if not found:
            return None
        sign = found.group(4)
        arcs = _ARCS if parts and parts[0][1] == "degree" else {}
        unit = arcs.get(sign) or _SIGNS.get(sign) or canonical(found.group(2) or found.group(3))
        parts.append((Fraction(found.group(1)), unit))
        at = found.end()
    if at < len(body) or (len(parts) < 2 and sign not in _ARCS):
        return None
    total = _total(parts)
    return None if total is None else (-total if text.startswith("-") else total, parts[0][1])


def _total(parts: list[tuple[Fraction, str]]) -> Fraction | None:
    """Return the sum in the first unit; None if a part is not whole, too large, or of another kind."""
    total, size, unit = Fraction(0), Fraction(1), parts[0][1]
    for i, (value, name) in enumerate(parts):
        steps = 1
        while not _is_due(unit, name):
            if unit not in _STEPS:
                return None
            unit, step = _STEPS[unit]
            steps *= step
        if i and (value >= steps or parts[i - 1][0].denominator != 1):
            return None
        size /= steps
        total += value * size
    return total


def _is_due(unit: str, name: str) -> bool:
    """Return whether a part has this unit; after degrees, `minutes` are arc minutes."""
    return name == unit or unit == "arc" + name or {unit, name} == {"lb", "pound"}
