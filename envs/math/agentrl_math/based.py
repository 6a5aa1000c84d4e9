"""Numerals in a base: 101_2, (1A)_{16}, 12 base 3."""

import re

from agentrl_math.forms import Answer, Based, Read

_BASED = re.compile(
    r"^(?P<open>\()?(?P<digits>-?[0-9A-Za-z]+(?:\.[0-9A-Za-z]+)?)(?(open)\))\s*"
    r"(?:_\s*(?:\{\s*(?P<group>[^{}]*(?:\{[^{}]*\}[^{}]*)?)\s*\}|(?P<plain>\d+|[a-z]+))"
    r"|\(\s*base\s*(?P<bracket>\w+)\s*\)|(?:\\text\s*\{\s*)?base\s*(?:\})?\s*(?P<word>\w+)\s*\}?)$"
)
_BASE_NAME = re.compile(r"(?:\\text\s*\{)?\s*\(?\s*(?:base\s*)?\s*\}?\s*(\w+)\s*\)?\s*\}?")
_BASE_WORDS = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8",
               "nine": "9", "ten": "10", "twelve": "12", "sixteen": "16", "bin": "2", "hex": "16"}  # fmt: skip


def based(text: str, read: Read) -> Answer | None:
    """Read a numeral with its base; base ten gives a number."""
    found = _BASED.match(text)
    if not found:
        return None
    name = _BASE_NAME.fullmatch(
        next(part for part in found.group("group", "plain", "bracket", "word") if part is not None)
    )
    digits, base = found.group("digits").upper(), name.group(1).lower() if name else ""
    base = _BASE_WORDS.get(base, base)
    if not _are_digits(digits.lstrip("-"), base, bool(found.group("open"))):
        return None
    if base == "10" and digits.isdigit():
        return read(digits)
    return Based(digits.lstrip("0") or "0", base)


def _are_digits(text: str, base: str, is_group: bool) -> bool:
    """Return whether text is a numeral rather than a symbol with an index: AF_{16} is, A_{16} and X_{16} are not."""
    if text[0].isdigit():
        return text.replace(".", "").isdigit() or base.isdigit()
    is_long = len(text) > 1 or is_group
    return is_long and base.isdigit() and int(base) in range(11, 37) and all(_digit(char) < int(base) for char in text)


def _digit(char: str) -> int:
    return 0 if char == "." else int(char, 36) if char.isascii() and char.isalnum() else 99
