r"""Units of measure: one canonical name for every spelling, as a product of powers, and their comparison."""

import re
from functools import lru_cache

_PREFIXES = {"Y": "yotta", "Z": "zetta", "E": "exa", "P": "peta", "T": "tera", "G": "giga", "M": "mega", "k": "kilo",
             "h": "hecto", "da": "deca", "d": "deci", "c": "centi", "m": "milli", "u": "micro", "n": "nano",
             "p": "pico", "f": "femto", "a": "atto"}  # fmt: skip
_METRIC = {
    "meter": ("m", "k c m d u n p M G", "metre"), "gram": ("g", "k m u n M", "gramme"),
    "second": ("s", "m u n p M", "sec"),
    "liter": ("L l", "m c d u h k M", "litre"), "hertz": ("Hz", "k M G T m", ""), "newton": ("N", "k M m u", ""),
    "pascal": ("Pa", "k M G h m", ""), "joule": ("J", "k M G m u", ""), "watt": ("W", "k M G T m u n", ""),
    "volt": ("V", "k M m u", ""), "ampere": ("A", "k m u n", "amp"), "ohm": ("\u03a9", "k M m", ""),
    "farad": ("F", "m u n p", ""), "coulomb": ("C", "m u n", ""), "tesla": ("T", "m u n", ""), "weber": ("Wb", "m", ""),
    "henry": ("H", "m u", "henries"), "mole": ("mol", "m k u n", ""), "electronvolt": ("eV", "k M G T m", ""),
    "calorie": ("cal", "k", ""),
    "byte": ("B", "k M G T P K", ""), "bit": ("b", "k M G T", ""), "kelvin": ("K", "m", ""),
    "watthour": ("Wh", "k M G", "watt-hour"), "becquerel": ("Bq", "k M G", ""), "gray": ("Gy", "m", ""),
    "sievert": ("Sv", "m u", ""), "lumen": ("lm", "", ""), "lux": ("lx", "", ""), "candela": ("", "", ""),
    "parsec": ("pc", "k M", ""),
}  # fmt: skip
"""Name -> (symbols, their prefixes, another name). Names may have any prefix and a plural s."""
_OTHER = {
    "percent": "% percent percentage pct percentagepoint pp", "degree": "degree deg ^\\circ circ °",
    "arcminute": "arcminute arcmin", "arcsecond": "arcsecond arcsec",
    "radian": "radian rad", "steradian": "steradian sr",
    "celsius": "celsius centigrade degc °c ^\\circc", "fahrenheit": "fahrenheit degf °f ^\\circf",
    "dollar": "\\$ $ us\\$ dollar usd usdollar buck", "cent": "cent ¢", "euro": "euro eur €",
    "gbp": "gbp £ poundsterling",
    "pound": "pound", "lb": "lb", "penny": "penny pence pennies", "yen": "yen jpy", "rupee": "rupee rs inr",
    "yuan": "yuan cny rmb", "peso": "peso mxn", "franc": "franc chf", "ruble": "ruble rouble rub", "aud": "aud",
    "cad": "cad", "dime": "dime", "nickel": "nickel",
    "inch": "in inch inches", "foot": "ft foot feet", "yard": "yd yard", "mile": "mi mile", "furlong": "furlong",
    "nauticalmile": "nmi nauticalmile", "lightyear": "ly lightyear light-year", "angstrom": "angstrom å",
    "micrometer": "micron", "acre": "acre", "hectare": "ha hectare", "ares": "ares",
    "ounce": "oz ounce", "fluidounce": "floz fluidounce", "tonne": "tonne metricton metrictonne",
    "ton": "shortton", "stone": "stone", "carat": "carat karat ct",
    "minute": "min minute", "hour": "h hr hour", "day": "day", "week": "week wk", "month": "month", "year": "yr year",
    "decade": "decade", "century": "century centuries", "fortnight": "fortnight",
    "gallon": "gal gallon", "quart": "qt quart", "pint": "pint", "cup": "cup", "tablespoon": "tbsp tablespoon",
    "teaspoon": "tsp teaspoon", "barrel": "bbl barrel", "bushel": "bushel",
    "decibel": "dB decibel", "atmosphere": "atm atmosphere", "torr": "torr", "mmhg": "mmhg", "knot": "knot kt",
    "horsepower": "hp horsepower",
    "btu": "btu", "revolution": "revolution rev", "dioptre": "diopter dioptre", "am": "am a.m", "pm": "pm p.m",
    "points": "pts pt points", "unit": "unit", "pixel": "px pixel", "bars": "bars", "millibar": "millibar mbar",
    "kiloohm": "kilohm", "megaohm": "megohm",
}  # fmt: skip
_COMPOUND = {
    "mph": "mile/hour", "kph": "kilometer/hour", "kmh": "kilometer/hour", "kmph": "kilometer/hour",
    "mpg": "mile/gallon",
    "psi": "lb/inch^2", "rpm": "revolution/minute", "cc": "centimeter^3", "fps": "foot/second", "mps": "meter/second",
    "kwh": "kilowatt hour", "mwh": "megawatt hour", "wh": "watt hour", "watthour": "watt hour", "bps": "bit/second",
    "kbps": "kilobit/second", "mbps": "megabit/second", "gbps": "gigabit/second", "ccs": "centimeter^3",
}  # fmt: skip
_PRODUCTS = {
    "Nm": "newton meter", "kNm": "kilonewton meter", "Ns": "newton second", "Js": "joule second", "Vs": "volt second",
    "Ah": "ampere hour", "mAh": "milliampere hour",
}  # fmt: skip
"""Products of symbols written together; the case matters: Nm is not nm."""
_PHRASES = re.compile(
    r"\b(?:(fl)\.?|(fluid|metric|short|nautical|light|us|u\.s\.|percentage|pound)s?)[ -](oz|ounce|ton|tonne|mile|year|"
    r"dollar|point|sterling)(?:s|es)?\b",
    re.IGNORECASE,
)
_MAY_BE = {frozenset(pair) for pair in (
    ("pound", "lb"), ("pound", "gbp"), ("degree", "celsius"), ("degree", "fahrenheit"), ("ton", "tonne"),
    ("minute", "arcminute"), ("second", "arcsecond"), ("penny", "cent"),
)}  # fmt: skip
"""Pairs of units for which the same word is used."""
_TOKEN = re.compile(
    r"\\?\$|\^\\circ ?[CF]?|%|\^?\{?-?\d\}?|[/*()]|[A-Za-z.°¢\u00b5\u03bc\u03a9\u00c5\u00e5]+(?:-hours?)?"
)
_POWER = re.compile(r"\^?\{?(-?\d)\}?")
_SIZES = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_RAISED = {"squared": 2, "cubed": 3}


def _spellings() -> dict[str, str]:
    """Map every spelling of a single unit to its name; the case of symbols matters."""
    known = {}
    for name, (symbols, prefixes, other) in _METRIC.items():
        for word in (name, *other.split()):
            for prefix in ("", *_PREFIXES.values()):
                known[prefix + word] = known[f"{prefix}{word}s"] = prefix + name
        for symbol in symbols.split():
            known[symbol] = name
            for prefix in prefixes.split():
                known[prefix + symbol] = _PREFIXES[prefix if prefix != "K" else "k"] + name
    for name, words in _OTHER.items():
        for word in words.split():
            known[word] = known[f"{word}s" if word[-1:].isalpha() else word] = name
    return known


_KNOWN = _spellings()
_NAMES = frozenset(_KNOWN.values())


def _uncased() -> dict[str, str]:
    """Map lower-case spellings of more than one letter to their name if it is unique: khz, but not mw."""
    found: dict[str, set[str]] = {}
    for spelling, name in _KNOWN.items():
        found.setdefault(spelling.lower(), set()).add(name)
    return {spelling: next(iter(names)) for spelling, names in found.items() if len(names) == 1 and len(spelling) > 1}


_UNCASED = _uncased()


def canonical(unit: str) -> str:
    """Return the canonical name of a unit, such as `kilometer hour^-1`; other words in lower case."""
    return written(powers(unit))


def written(factors: dict[str, int]) -> str:
    """Return a product of powers as text."""
    return " ".join(name if power == 1 else f"{name}^{power}" for name, power in sorted(factors.items()) if power)


@lru_cache(maxsize=4096)
def _powers(unit: str) -> tuple[tuple[str, int], ...]:
    factors: dict[str, int] = {}
    text = re.sub(r"\\mu\s*", "u", re.sub(r"\s?\\Omega", "\u03a9", unit))
    text = _PHRASES.sub(lambda m: f"{m.group(1) or m.group(2)}{m.group(3)}".replace(".", ""), text)
    size, sign, held, last = 1, 1, 1, ("", 0)
    for token in _TOKEN.findall(text):
        bare = token.lower().strip(".")
        if bare in ("/", "per") or (bare in ("a", "an") and last[1] and token != "A"):
            sign = -1
        elif bare in ("(", ")"):
            held, sign = (sign if bare == "(" else 1), 1
        elif bare in _SIZES and not (bare == "cu" and size == 1 and not token.islower()):
            size = _SIZES[bare]
        elif bare in ("", "*", "of", "the"):
            continue
        elif bare in _RAISED or _POWER.fullmatch(token):
            factor = _RAISED.get(bare) or int(_POWER.fullmatch(token).group(1))  # type: ignore[union-attr]
            factors[last[0]] = factors.get(last[0], 0) + last[1] * (factor - 1)
            if not factor:  # 5 in^0 is not 5
                factors[f"{last[0]}^0"] = 1
        else:
            for name, power in _single(token):
                last = (name, power * size * sign * held)
                factors[name] = factors.get(name, 0) + last[1]
            size, sign = 1, 1
    for letter, scale in (("coulomb", "celsius"), ("farad", "fahrenheit")) if "degree" in factors else ():
        if factors.get(letter) == 1:
            factors[scale] = factors.pop(letter)
    if "celsius" in factors or "fahrenheit" in factors:
        factors.pop("degree", None)
    return tuple(factors.items())


def powers(unit: str) -> dict[str, int]:
    """Return the single units of a text with their powers: `km/h` is {kilometer: 1, hour: -1}."""
    return dict(_powers(unit))


def _single(token: str) -> tuple[tuple[str, int], ...]:
    """Return the units of one word or symbol; a word that is not a unit represents itself."""
    bare = token.strip(".").replace("\u00b5", "u").replace("\u03bc", "u").replace(" ", "").replace("-", "")
    lower = bare.lower()
    if bare in _PRODUCTS:
        return _powers(_PRODUCTS[bare])
    if lower in _COMPOUND and bare not in _KNOWN:
        return _powers(_COMPOUND[lower])
    name = _KNOWN.get(bare) or _UNCASED.get(lower) or lower
    if name.endswith("watthour"):
        return ((name.removesuffix("hour"), 1), ("hour", 1))
    return ((name, 1),)


def is_measure(unit: str) -> bool:
    """Return whether a text consists of known units, unlike a word such as "apples"."""
    factors = _powers(unit)
    return bool(factors) and all(name in _NAMES for name, _ in factors)


def differ(a: str, b: str, policy: str) -> bool:
    """Return whether two canonical units are too different for their numbers to be equal."""
    if policy == "ignore" or a == b:
        return False
    if policy == "required":
        return True
    one, other = _known_part(a), _known_part(b)
    if not one or not other:
        return bool(a and b and (one or other))  # 4 kg are not 4 triangles
    if "unit" in one and "unit" in other:
        return 1 not in (one["unit"], other["unit"]) and one["unit"] != other["unit"]
    if "unit" in one or "unit" in other:
        return sum(one.values()) != sum(other.values()) or not all(map(_is_of_length, {**one, **other}))
    return not _alike(one, other)


def _is_of_length(name: str) -> bool:
    """Return whether a unit of length or area may be the unnamed "unit" of a figure."""
    return name.endswith("meter") or name in ("unit", "inch", "foot", "yard", "mile")


def _known_part(unit: str) -> dict[str, int]:
    return {name: power for name, power in _powers(unit) if name in _NAMES}


def _alike(one: dict[str, int], other: dict[str, int]) -> bool:
    left, right = one.items() - other.items(), other.items() - one.items()
    if len(left) != len(right):
        return False
    return all(any(a == b and frozenset((x, y)) in _MAY_BE for y, b in right) for x, a in left)
