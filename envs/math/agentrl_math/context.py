"""What stands beside a number in a sentence and makes another number of it, or none."""
# ruff: noqa: RUF001  (models write these signs)

import re

from agentrl_math.prose import CHANGERS, FRACTION_WORDS, NUMBER_WORDS

_DIGITS = r"\d[\d,]*(?:\.\d+)?"
_NUMBERS = "|".join(sorted(NUMBER_WORDS))
_BEFORE = (
    r"(?:\b(?:not|never|cannot|neither|nor|doubt\w*)\b|n['’]t\b)(?:\s+[a-z]+){0,3}",
    r"\b(?:less|more|fewer|greater|larger|smaller|bigger|higher|lower|other|rather)\s+than(?:\s+or\s+equal\s+to)?",
    r"\b(?:raised\s+)?to\s+the(?:\s+power(?:\s+of)?)?|\braised\s+to|(?:\bpercent|%)\s+of|\bbase|\bdivisible\s+by|\w\*\*",
    r"\bat\s+(?:least|most)|\bup\s+to|\b(?:multiplied|divided)\s+by",
    r"\b(?:under|over|above|below|beyond|between|within|exceeds?|except|unlike|return|print|either)",
    r"\b(?:minus|plus|times|negative|mod|modulo|choose|twice|thrice|double|triple|vs|versus)",
    rf"\b(?:half|{'|'.join(FRACTION_WORDS)})s?\s+of|\b(?:root|square|cube|logarithm|log|sine|cosine|tangent)\s+of",
    r"\b(?:factorial|reciprocal|inverse|opposite|negative|power|multiples?|factors?|divisors?|fraction)\s+of",
    r"\b(?:ln|log|lg|sin|cos|tan|cot|sec|csc|sqrt|root|exp|abs|floor|ceil)(?:\s*_\s*\{?\w+\}?)?\s*\(?",
    r"\d\s*(?:[;|–—]|and|or|to|through|by|out\s+of)|\d:(?!\s)|\d\s+:",
    r"[A-Za-z]\s*=\s*[-\d.,]*\d\s*[,;]\s*(?:and\s*)?[A-Za-z]\s*=|√|[±∓]|\\[pm][pm]|(?:\w|\d\s|-)\(",
)  # fmt: skip
_CHANGED_BEFORE = re.compile(rf"(?:{'|'.join(_BEFORE)})[\s$*]*$", re.IGNORECASE)
_LISTED = re.compile(rf"(?:^|[=:(\[{{]|\b(?:is|are|answers?))\s*-?(?:{_DIGITS})\s*[,;]\s*$", re.IGNORECASE)
_AFTER = (
    rf"[ -]?(?:{_NUMBERS}|squared|cubed|factorial|doubled|tripled|quadrupled|halved|recurring|repeating|repeated)\b",
    r"\s?(?:roots?|tau|pi|point|st|nd|rd|th)\b",
    rf"\s+(?:times|over|plus|minus|mod|modulo|choose|by)\s+(?:[-\d(√$\\]|[b-z]\b|(?:{_NUMBERS})\b)",
    r"\s+(?:divided|multiplied|raised)\b|\s+to\s+the\b|,?\s+(?:or|maybe|perhaps|possibly)\b",
    rf"\s+(?:less|more|fewer|greater)\s+than\s*(?:[-\d√$\\.]|$|[b-z]\b|(?:{_NUMBERS})\b)",
    r"\s+(?:is|was|are|were)\s+(?:wrong|incorrect|false|not|never)\b",
    r"\s+(?:isn|wasn|aren|can|doesn|won)['’]t\b|\s+cannot\b|\s?[xyznki]\b|\s*√|:\d",
    r"\\(?!%|[()\[\],;:! $\\]|text|mathrm|mbox|degree|circ|quad|qquad|space)",
    r"\s*\(\s*(?:[-\d]|(?:or|not|mod|maybe|possibly|perhaps|and)\b)",
)  # fmt: skip
_CHANGED_AFTER = re.compile("|".join(_AFTER), re.IGNORECASE)
_FILLER = re.compile(
    r"(?:exactly|precisely|therefore|thus|hence|simply|just|clearly|indeed|then|now|also|actually|given\s+by|equal\s+to|"
    r"equals|found\s+to\s+be|going\s+to\s+be)\b\s*[:,]?\s*",
    re.IGNORECASE,
)
_LEAD_IN = re.compile(
    r"(?:(?:so|thus|hence|therefore|then|and|now|finally)\b,?\s*)?(?:it|this|that|(?:the|its|this|their)(?:\s+[A-Za-z]+){1,6}?)"
    r"\s+(?:is|are|was|were|equals?|must\s+be)\s+(?=\S)",
    re.IGNORECASE,
)
_NEGATION = re.compile(r"\b(?:not|never|no|cannot|neither|nor|wrong)\b|n['’]t\b", re.IGNORECASE)


def is_changed(before: str, after: str) -> bool:
    """Whether the words or signs directly beside a number change it, deny it or make it one of several."""
    if _CHANGED_BEFORE.search(before[-80:]) or _CHANGED_AFTER.match(after):
        return True
    if re.match(r"[\s$.!*]*$", after) and _LISTED.search(before[-80:]):
        return True
    return bool(re.match(r"\s*[\])}]", after) and re.search(r"[(\[{][^()\[\]{}]*[,;][^()\[\]{}]*$", before[-80:]))


def is_changed_later(rest: str) -> bool:
    """Whether the sentence behind a number goes on to change it: `5 apples less than 12`, `5 cm squared`."""
    words = set(re.findall("[a-z]+", rest.lower()))
    return bool(words & {"or", "maybe", "perhaps", "possibly", "squared", "cubed", "factorial"}) or bool(
        re.search(r"\d", rest) and words & (CHANGERS - {"is", "are", "was", "were"})
    )


def without_fillers(content: str) -> str:
    """`exactly 5` and `therefore equal to 5` are 5."""
    for _ in range(4):
        if not (found := _FILLER.match(content)):
            break
        content = content[found.end() :]
    return content


def said(sentence: str) -> str:
    """What a short sentence says: `So the area is 36π` says 36π; a denial says itself."""
    found = _LEAD_IN.match(sentence)
    if not found or _NEGATION.search(sentence):
        return sentence
    return without_fillers(sentence[found.end() :])
