"""The unit behind a number, and when two units are the same."""

import re

_ALIASES = {
    "percent": "% percent percentage pct percentagepoints",
    "degree": "degrees degree deg ^\\circ circ °",
    "dollar": "\\$ dollars dollar usd bucks",
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
    "am": "am a.m",
    "pm": "pm p.m",
    "radian": "rad radian radians",
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
_OTHER_WORDS = set(
    "is isn are was were not no wrong incorrect to from than then less more least most squared cubed factorial plus "  # noqa: SIM905
    "minus times over under below above negative by mod modulo base half halves third thirds quarter quarters but "
    "maybe if when where with as for the a an in".split()
)
"""Words that make something else of the number before them."""
_MATH_WORDS = _OTHER_WORDS | {
    "pi",
    "sin",
    "cos",
    "tan",
    "ln",
    "log",
    "exp",
    "sqrt",
    "oo",
    "inf",
    "infinity",
    "and",
    "or",
    "i",
    "e",
}
_PREFIX = re.compile(
    r"^(-?)\s*(?:(\\\$)|\\text\s*\{\s*(euro|pound|Rs\.?|USD|\$)\s*\}|(?:USD|Rs\.?)(?=\s*\d))\s*(?=[-\d.\\])"
)


def split_unit(text: str, depth: int = 3) -> tuple[str, str]:
    """(number, unit): `5\\text{ cm}^2` is ("5", "cm^2"); the unit is "" where there is none."""
    prefix = _PREFIX.match(text)
    if prefix and depth:
        rest, trailing = split_unit(text[prefix.end() :], depth - 1)
        return prefix.group(1) + rest, trailing or canonical(prefix.group(2) or prefix.group(3) or "dollar")
    for pattern in (_SIGN_UNIT, _TEXT_UNIT, _LONG_WORD_UNIT, _LETTER_UNIT):
        found = pattern.search(text)
        if found and depth and found.start() > 0 and not _MATH_WORDS & set(re.split(r"[ /-]", found.group(1).lower())):
            unit = found.group(1) + (found.group(2) or "" if pattern.groups > 1 else "")
            rest, inner = split_unit(text[: found.start()].strip(), depth - 1)
            return rest, canonical(f"{inner} {unit}" if inner not in ("", "dollar") else unit)
    return text, ""


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
