"""Parsing of a raw answer into a structure of `forms`, by trying one reader after the other."""
# ruff: noqa: ARG001  (every reader takes the same arguments)

import re
from collections.abc import Callable
from functools import lru_cache, partial

from agentrl_math.based import based
from agentrl_math.bracketed import angled, bracketed, combined, transposed, united
from agentrl_math.brackets import in_one_notation
from agentrl_math.expr import Node, ParseError
from agentrl_math.forms import Answer, Opaque, Read, Scalar
from agentrl_math.latex import clean
from agentrl_math.limits import MAX_ANSWER_CHARS, MAX_DEPTH, MAX_PHRASE_CHARS, LimitError
from agentrl_math.listed import plus_minus, related, several
from agentrl_math.matrices import matrix
from agentrl_math.numerals import ungrouped, without_commas
from agentrl_math.parser import parse
from agentrl_math.units import in_parts, split_unit
from agentrl_math.worded import choice, excepted, special, wordy

MAX_GROWTH = 2
"""Maximum factor by which an answer may grow when ½ is written as \\frac{1}{2}."""


@lru_cache(maxsize=512)
def readings(text: str) -> tuple[Answer, ...]:
    """Return the readings of a raw answer: one, or two if its commas may group thousands or separate items."""
    if len(text) > MAX_ANSWER_CHARS:
        raise LimitError(f"longer than {MAX_ANSWER_CHARS} characters")
    cleaned = clean(text)
    if len(cleaned) > MAX_GROWTH * MAX_ANSWER_CHARS:
        raise LimitError("too many characters that stand for formulas")
    cleaned = ungrouped(in_one_notation(cleaned))
    joined = without_commas(cleaned)
    return (read(cleaned),) if joined == cleaned else (read(joined), read(cleaned))


def read(text: str, depth: int = 0) -> Answer:
    """Return the structure of a cleaned answer; Words or Opaque if it is not a formula of our grammar."""
    if depth > MAX_DEPTH:
        raise LimitError("nested too deeply")
    text = text.strip()
    within = partial(read, depth=depth + 1)
    for reader in _READERS:
        answer = reader(text, within)
        if answer is not None:
            return answer
    return _scalar(text)


def _quantity(text: str, read: Read) -> Answer | None:
    r"""Read `45^\circ 30'` and `1 hour 30 minutes` as one number in the first unit."""
    if len(text) > MAX_PHRASE_CHARS or not (text[-1:].isalpha() or text[-1:] in "'\"}."):
        return None
    found = in_parts(text)
    return Scalar(Node("num", value=found[0]), found[1], text) if found else None


def _scalar(text: str) -> Answer:
    number, unit = split_unit(text)
    if "^\\circ" in text:
        is_angle = re.search(r"sin|cos|tan|cot|sec|csc|cis", text)
        number, unit = (text, "") if is_angle else (number.replace("^\\circ", ""), unit or "degree")
    for candidate, its_unit in ((text, ""), (number, unit)) if not unit else ((number, unit),):
        try:
            return Scalar(parse(candidate), its_unit, candidate)
        except ParseError:
            continue
    return Opaque(text)


_READERS: tuple[Callable[[str, Read], Answer | None], ...] = (
    special, choice, excepted, wordy, _quantity, angled, several, related, plus_minus, united, combined,
    bracketed, transposed, matrix, based,
)  # fmt: skip
