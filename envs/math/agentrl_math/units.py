"""The unit behind a number, and when two units are the same."""

import re

from agentrl_math.prose import CHANGERS, is_noun, is_word

_ALIASES = {
    "percent": "% percent percentage pct percentagepoints",
    "degree": "degrees degree deg ^\\circ circ °",
    "dollar": "\\$ $ us\\$ dollars dollar usd bucks",
    "cent": "cents cent ¢",
    "euro": "euros euro eur €",
    "pound": "pounds pound lb lbs gbp",
    "mm": "mm millimeter millimeters millimetre millimetres",
    "cm": "cm centimeter centimeters centimetre centimetres",
    "m": "m meter meters metre metres",
    "km": "km kilometer kilometers kilometre kilometres",
    "inch": "in inch inches",
    "foot": "ft foot feet",
    "yard": "yd yard yards",
    "mile": "mi mile miles",
    "g": "g gram grams",
    "kg": "kg kilogram kilograms",
    "ounce": "oz ounce ounces",
    "ton": "ton tons tonne tonnes",
    "ms": "ms millisecond milliseconds",
    "second": "s sec secs second seconds",
    "minute": "min mins minute minutes",
    "hour": "h hr hrs hour hours",
    "day": "day days",
    "week": "week weeks",
    "month": "month months",
    "year": "yr yrs year years",
    "liter": "l liter liters litre litres",
    "ml": "ml milliliter milliliters",
    "gallon": "gal gallon gallons",
    "mph": "mph milesperhour miles/hour mi/h mileshour",
    "kmh": "km/h kmh kph kilometersperhour kmperhour",
    "m/s": "m/s meterspersecond mpersecond",
    "m/s^2": "m/s^2 meterspersecondsquared",
    "newton": "newton newtons",
    "joule": "joule joules kj",
    "watt": "watt watts kw",
    "kwh": "kwh",
    "volt": "volt volts",
    "ohm": "ohm ohms",
    "hertz": "hz hertz khz mhz",
    "yen": "yen",
    "rupee": "rupee rupees rs",
    "am": "am a.m",
    "pm": "pm p.m",
    "radian": "rad radian radians",
    "point": "pts pt points",
    "unit": "unit units",
}
_KNOWN = {alias: name for name, aliases in _ALIASES.items() for alias in aliases.split()}
_SQUARE = re.compile(r"^(?:square|sq)\.?\s*(.+)$")
_CUBIC = re.compile(r"^(?:cubic|cu)\.?\s*(.+)$")
_POWER = re.compile(r"^(.+?)\s*\^?\{?([23])\}?$")
_TEXT_UNIT = re.compile(r"\\text\s*\{([^{}]*)\}\s*(\^\s*\{?\s*[23]\s*\}?)?\s*$")
_SIGN_UNIT = re.compile(r"(%|\^\\circ\s*(?:[CF]\b)?)\s*$")
_LONG_WORD_UNIT = re.compile(
    r"(?<=[\d)}])\s*((?:(?:square|sq|cubic|cu)\.? )?[A-Za-z]{2,}(?:[ -][A-Za-z]{2,}|/[A-Za-z]+){0,3})\s*"
    r"(\^\s*\{?[23]\}?)?\s*$"
)
_LETTER_UNIT = re.compile(r"(?<=\d)\s+(m|g|s|h|l|L)(\^\s*\{?[23]\}?)?\s*$")
_RATIO_UNIT = re.compile(
    r"(?<=[\d)}])\s*((?:m|km|cm|ft|g|kg|mi)\s*/\s*(?:s|h|L|m|min|sec|hr|cm)(?:\s*\^\s*\{?[23]\}?)?)\s*$"
)
_BARE = re.compile(r"([-\u2212]?[\d.,]*\d)\s*(?:[msghLNJWVΩ]|Hz|Pa)")
_CHANGED = re.compile(r"\w*fold|\w{2,}[^e]ed")
"""`tenfold` and `inverted` are done to a number, not counted by it."""
_MATH_WORDS = CHANGERS | set(
    "but if when where with as for the a an in to from sin cos tan ln log exp sqrt root oo inf infinity and i e".split()  # noqa: SIM905
)
_PREFIX = re.compile(
    r"^(-?)\s*(?:(?:US|CA|A)?(\\\$)|\\text\s*\{\s*(euro|pound|yen|rupee|Rs\.?|USD|\\?\$)\s*\}|(?:USD|Rs\.?)(?=\s*\d))\s*(?=[-\d.\\])"
)


def split_unit(text: str, depth: int = 3) -> tuple[str, str]:
    """(number, unit): `5\\text{ cm}^2` is ("5", "cm^2"); the unit is "" where there is none."""
    prefix = _PREFIX.match(text)
    if prefix and depth:
        rest, trailing = split_unit(text[prefix.end() :], depth - 1)
        return prefix.group(1) + rest, trailing or canonical(prefix.group(2) or prefix.group(3) or "dollar")
    for pattern in (_SIGN_UNIT, _TEXT_UNIT, _RATIO_UNIT, _LONG_WORD_UNIT, _LETTER_UNIT):
        found = pattern.search(text)
        if found and depth and found.start() > 0 and _is_unit(found):
            unit = found.group(1) + (found.group(2) or "" if pattern.groups > 1 else "")
            rest, inner = split_unit(text[: found.start()].strip(), depth - 1)
            return rest, canonical(f"{inner} {unit}" if inner not in ("", "dollar") else unit)
    return text, ""


def _is_unit(found: re.Match[str]) -> bool:
    """Whether the words behind a number may be dropped: a measure or nouns, and nothing that changes the number."""
    unit = found.group(1)
    if unit.strip() in ("in", "in.") or canonical(unit) in _ALIASES:
        return True
    tokens = re.findall("[a-z]+", unit.lower())
    if (
        _MATH_WORDS & set(tokens)
        or _CHANGED.fullmatch(tokens[-1] if tokens else "")
        or re.search(r"\d(?!\W*$)|[(),;=<>]", unit)
    ):
        return False
    if found.re is not _LONG_WORD_UNIT:
        return True
    kind = is_noun if found.group()[0] == " " else is_word
    return any(kind(token) or canonical(token) in _ALIASES for token in tokens)


def bare_number(text: str) -> str | None:
    """The number of `5m` and `5 N`, whose letter only an answer to a plain number can mean as a unit."""
    found = _BARE.fullmatch(text.strip(" $"))
    return found.group(1) if found else None


def canonical(unit: str) -> str:
    """One name for every spelling of a known unit; other words lower-cased."""
    text = " ".join(unit.lower().replace("\\circ ", "\\circ").split()).strip(" .")
    for pattern, suffix in ((_SQUARE, "^2"), (_CUBIC, "^3")):
        if found := pattern.match(text):
            return canonical(found.group(1)) + suffix
    if found := _POWER.match(text):
        return f"{canonical(found.group(1))}^{found.group(2)}"
    return _KNOWN.get(text, _KNOWN.get(re.sub(r"[ .]", "", text), text))


def is_known(unit: str) -> bool:
    """Whether this is a measure, as against a word such as "apples"."""
    return unit.split("^")[0] in _ALIASES


def differ(a: str, b: str, policy: str) -> bool:
    """Whether two canonical units forbid that their numbers are equal."""
    if policy == "ignore" or a == b:
        return False
    if policy == "required":
        return True
    return bool(a and b) and is_known(a) and is_known(b) and "unit" not in (a.split("^")[0], b.split("^")[0])
