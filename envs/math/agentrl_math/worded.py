"""Readers of answers in words and of choices by letter."""
# ruff: noqa: ARG001  (every reader takes the same arguments)

import re

from agentrl_math import phrases
from agentrl_math.expr import ZERO, Node
from agentrl_math.forms import Answer, Combined, Items, Read, Scalar, Words
from agentrl_math.latex import clean, words
from agentrl_math.limits import MAX_PHRASE_CHARS
from agentrl_math.listed import SEPARATOR
from agentrl_math.prose import is_formula

_CHOICE = re.compile(r"^\(?\s*([A-Z])\s*\)?$|^\\text\s*\{\s*\(?\s*([A-Za-z])\s*\)?\s*[.:]?\s*\}$")
_LABELLED = re.compile(r"^(?:\(\s*([A-Z])\s*\)|\\text\s*\{\s*\(?([A-Z])\s*[).:]\s*\}|([A-Z])\s*[).:])\s*(?=\S)(.+)$")
_JOINED = re.compile(
    r"[,;/|+*^=<>_]|not\W*$|(?:and|or|is|isn't|was|cannot)\b|\\(?:cup|cap|lor|ne|le|ge|approx|equiv|in|to|pm)(?![A-Za-z])"
    r"|\\text\s*\{\s*(?:not\s*\}|(?:or|and|is|isn't|was|cannot)\b)"
)
"""What distinguishes `(A) or 7`, `(A) + 1` and `(A) is wrong` from a label with its content."""
_WORDY = re.compile(r"^[A-Za-z][A-Za-z' ,.\-]*$")
_FONT = re.compile(r"\\text\s*\{([^{}]*)\}")
_EXCEPT = re.compile(
    r"(?i:(?:x is )?(?:all|any) (?:reals?|real numbers?)(?: [a-z])?,? except(?: for)?) (?:[a-z]\s*=\s*)?(.+)"
)
_HALF_LINE = re.compile(r"\\mathbb\s*\{?\s*R\s*\}?\s*\^\s*\{?\s*([-+])\s*\}?")
_LINE = Items("()", (Scalar(Node("neg", (Node("inf"),))), Scalar(Node("inf"))))
_EMPTY = Items("set", ())


def special(text: str, read: Read) -> Answer | None:
    """Read `no solution`, `does not exist`, `all real numbers`, and their signs."""
    if half := _HALF_LINE.fullmatch(text):
        low, high = _LINE.members
        return Items("()", (Scalar(ZERO), high) if half.group(1) == "+" else (low, Scalar(ZERO)))
    if re.fullmatch(r"\\?\{\s*\\?\}", text):
        return _EMPTY
    if len(text) > MAX_PHRASE_CHARS or re.search(r"[-+*/^_()\[\]|<>=]|\\[{}]", text):
        return None
    return _meant(phrases.meaning(words(text)))


def _meant(meaning: str) -> Answer | None:
    if meaning in ("-", "+"):
        return _LINE.members[meaning == "+"]
    if meaning in ("empty", "reals"):
        return _EMPTY if meaning == "empty" else _LINE
    return Words(meaning) if meaning else None


def choice(text: str, read: Read) -> Answer | None:
    """Read the letter of a choice: (A)."""
    found = _CHOICE.match(text)
    if found and (text[0] in "(\\" or text[-1] == ")"):
        return Words((found.group(1) or found.group(2)).casefold())
    return None


def wordy(text: str, read: Read) -> Answer | None:
    """Read words that are not a formula."""
    inner = re.fullmatch(r"\\text\s*\{([^{}]*)\}", text)
    if inner and (re.search(r"\d", inner.group(1)) or (is_formula(inner.group(1)) and words(inner.group(1)))):
        return read(inner.group(1))
    if inner:
        return Words(text) if not SEPARATOR.search(inner.group(1)) else read(inner.group(1))
    if _WORDY.match(text) and not is_formula(text):
        return None if SEPARATOR.search(text) else Words(text)
    return None


def excepted(text: str, read: Read) -> Answer | None:
    """Read `all real numbers except 2 and 3`."""
    found = _EXCEPT.fullmatch(" ".join(_FONT.sub(r" \1 ", text).split())) if "except" in text else None
    if not found:
        return None
    holes = read(found.group(1))
    values = holes.members if isinstance(holes, Items) and holes.kind == "list" else (holes,)
    return Combined("minus", (_LINE, Items("set", values)))


def unlabelled(text: str) -> tuple[str, str] | None:
    r"""Split `(C) 12` into its label and its content, or return None."""
    found = _LABELLED.match(clean(text))
    if not found or _JOINED.match(found.group(4)):
        return None
    return found.group(1) or found.group(2) or found.group(3), found.group(4)


def is_choice(content: str) -> bool:
    """Return whether the text after a label is or contains another label: `(A) C` and `(A) 5 (C) 6` choose twice."""
    is_label = _CHOICE.match(content) or re.fullmatch(r"\W*[A-Za-f]\W*", content)
    return bool(is_label or re.search(r"(?:^|[\s,;{])\(?[A-F]\s*[).:]\s*\S", content))
