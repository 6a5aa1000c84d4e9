"""Phrases with a mathematical meaning: no solution, does not exist, all real numbers."""

import re

_SUBJECT = r"(?:(?:the|this|it)?(?:equation|system|inequality|problem|limit|function|integral|series|it)?)"
_EMPTY = re.compile(
    rf"(?:(?:thereisa?|thereare|therewere|wehave|{_SUBJECT}has|{_SUBJECT}have)?no(?:real)?(?:solutions?|roots?|valuesofx|values?)"
    rf"(?:exists?|toth(?:is|e)(?:equation|system))?|{_SUBJECT}doesnothave(?:a|any)(?:real)?solutions?|none|"
    r"nosuch(?:[a-z]|numbers?|values?|solutions?)(?:exists?)?|(?:the)?(?:solution)?setisempty|"
    r"(?:the)?(?:emptyset|nullset|emptysolutionset))"
)
_ABSENT = re.compile(rf"dne|nonexistent|{_SUBJECT}(?:does|do)(?:not|nt)exist|{_SUBJECT}dne")
_ENDLESS = re.compile(
    r"(?:thereare|ithas|has)?(?:infinitelymany|infinite|aninfinitenumberof|infinitenumberof)"
    r"(?:real)?(?:solutions?|roots?)|infinitelymany"
)
_REALS = re.compile(
    r"(?:xis)?(?:the)?(?:setof)?(?:all|any|every)?(?:the)?(?:realnumbers?|reals)x?|allreal(?:x|values)|mathbbr|allrealvaluesofx"
)
_INFINITE = {"negativeinfinity": "-", "minusinfinity": "-", "positiveinfinity": "+", "plusinfinity": "+"}

ABSENT = "does not exist"
ENDLESS = "infinitely many solutions"
MAX_CHARS = 60


def meaning(letters: str) -> str:
    """Return the meaning of letters without spaces: empty, reals, `ABSENT`, `ENDLESS`, - or + for infinity, or ""."""
    if not letters or len(letters) > MAX_CHARS:
        return ""
    for pattern, what in ((_EMPTY, "empty"), (_REALS, "reals"), (_ABSENT, ABSENT), (_ENDLESS, ENDLESS)):
        if pattern.fullmatch(letters):
            return what
    return _INFINITE.get(letters, "")
