"""The last number of a response, for tasks with `fallback="number"`, which request no mark from a small model."""
# ruff: noqa: RUF001  (models write these signs)

from agentrl_math.boxes import Mark
from agentrl_math.context import is_touched
from agentrl_math.literal import literal
from agentrl_math.prose import CHANGERS

_DIGITS = "0123456789"
_OPENING, _CLOSING = "([$€£*_`\"'~≈", ")]$€£*_`\"'.,;:"
_SIGNS = frozenset("+ - − – * × · / ÷ ^ < > ≤ ≥ ≠ ± √ | \\times \\cdot \\div \\pm \\le \\ge \\ne".split())  # noqa: SIM905
_BEFORE = _SIGNS | frozenset(
    "or and not than times plus minus over negative mod modulo choose least most between either twice x "  # noqa: SIM905
    "double half triple subtract add out".split()
)
_AFTER = _SIGNS | {"="} | (CHANGERS - {"is", "are", "was", "were"}) | {"times", "choose"}
_LABELS = frozenset("step problem question part exercise example case no. (step (problem".split())  # noqa: SIM905
_PARTS = frozenset(
    "half third quarter fifth tenth root cube square double triple twice power reciprocal".split()  # noqa: SIM905
)
_MARKERS, _FILLING = ("answer is", "answer:"), " \t\n*:"
_UNSAID = ("unknown", "not known", "unclear", "undefined")
MAX_TOKEN_CHARS = 400
"""Maximum length of a word that may be a number."""


def last_number(text: str) -> str | None:
    """Return the number after the last `answer is`, else the last number, as written.

    Returns None if it is an operand, one of several, denied, doubted or asked for.
    """
    last, marked = max(text.rfind(digit) for digit in _DIGITS), _after_marker(text)
    if marked is not None and text[marked : marked + 10].lower().startswith(_UNSAID):
        return None
    for at in (marked, last):
        if at is not None and at >= 0 and (number := _number_at(text, at)):
            return number
    return None


def _after_marker(text: str) -> int | None:
    """Return the start of the word after the last `answer is` or `answer:`, or None."""
    lowered = text.replace("İ", "I").lower()
    at = max((found + len(marker) for marker in _MARKERS if (found := lowered.rfind(marker)) >= 0), default=len(text))
    while at < len(text) and text[at] in _FILLING:
        at += 1
    return at if at < len(text) else None


def _number_at(text: str, at: int) -> str | None:
    """Return the number in the word at a position, or None."""
    start, end = _edge(text, at, -1) + 1, _edge(text, at, 1)
    number = _number(text[start:end]) if end - start < MAX_TOKEN_CHARS else None
    after = "" if text[end - 1] == "." else text[end:]
    if number is None or _is_operand(number, text[:start], after) or is_touched(text, Mark(number, start, end)):
        return None
    return number


def _edge(text: str, at: int, step: int) -> int:
    """Return the position of the next white space in one direction, at most MAX_TOKEN_CHARS away."""
    for _ in range(MAX_TOKEN_CHARS):
        at += step
        if not 0 <= at < len(text) or text[at].isspace():
            break
    return at


def _number(token: str) -> str | None:
    """Return the number in `**$15.**`, `(15)`, `7+8=15` and `50%`; None for `x15`, `3:30` and `2^5`."""
    bare = token.strip("*_`").rpartition("=")[2].removeprefix("\\(").removeprefix("\\[").lstrip(_OPENING)
    bare = bare.rstrip(_CLOSING).removesuffix("\\").removesuffix("!").rstrip("*.")
    percent = bare.removesuffix("%").removesuffix("\\")
    return bare if literal(percent) is not None else None


def _is_part(words: list[str]) -> bool:
    """Return whether `half of`, `20% of` or `the cube of` takes a part or a power of what follows."""
    return bool(words) and (words[0] in _PARTS or words[0].endswith("%"))


def _is_operand(number: str, before: str, after: str) -> bool:
    """Return whether words or signs directly beside a number change it, or the number is in a list."""
    earlier = before[-MAX_TOKEN_CHARS:].lower().split()
    previous, following = earlier[-1] if earlier else "", (after[:MAX_TOKEN_CHARS].lower().split() or [""])[0]
    if previous in _BEFORE or previous[-1:] in _SIGNS or following.rstrip(".,;!") in _AFTER or following[:1] in _SIGNS:
        return True
    if previous in _LABELS or following in ("x", "out"):
        return True
    if (previous == "of" and _is_part(earlier[-2:-1])) or earlier[-2:] in (["out", "of"], ["up", "to"]):
        return True
    if previous in ("to", "by") and (earlier[-2:-1] or ["0"])[0].endswith((*_DIGITS, "ed", "ible")):
        return True
    beside = [literal(word.strip(_OPENING + _CLOSING)) for word in (previous, following) if word[-1:] != ":"]
    return any(value not in (None, literal(number)) for value in beside) or (
        number[0] in "-−" and beside[0] is not None
    )
