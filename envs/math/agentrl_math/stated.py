"""Classification of a marked text: whether it states something, and whether it is an answer or a sentence."""

from itertools import pairwise

from agentrl_math import phrases
from agentrl_math.context import FALSITIES, HEDGES, MAX_CONTEXT_CHARS, denies, tokens_of, words_of
from agentrl_math.neighbours import WORD_FONTS
from agentrl_math.prose import number_said

_PREDICATES = words_of(
    "is are was were has have had do does did it he she they we you this that there which because since it's that's so"
)
"""Words of a sentence, which answers do not contain."""
_FONTS = frozenset(f"\\{name}" for name in (*WORD_FONTS, "mathbf", "quad"))
_ANSWERS = words_of("yes no true false none nothing zero empty never always")


def has_value(content: str) -> bool:
    """Return whether a text contains a value: a digit, a symbol, a number word, or `DNE`; `unique` is not a value."""
    tokens = tokens_of(content)
    if len(tokens) == 1 and (len(tokens[0]) == 1 or tokens[0] in _ANSWERS):
        return True
    if any(char.isnumeric() or char in "+=^∞π∅" for char in content) or any(
        number_said(token) is not None for token in tokens
    ):
        return True
    return _is_formula(tokens) or bool(phrases.meaning("".join(char for char in content.lower() if char.isalpha())))


def is_stated(content: str) -> bool:
    """Return whether a marked text states something, as `5` and `no` do, unlike `not 5`, `maybe 5` and `5?`."""
    if len(content) > MAX_CONTEXT_CHARS:
        return True
    tokens = tokens_of(content)
    if "?" in tokens or (len(tokens) > 1 and HEDGES & set(tokens)):
        return False
    is_value = any(char in "0123456789" for char in content) or _is_formula(tokens)
    return not (is_value and any(denies(token) or token in FALSITIES for token in tokens))


def is_sentence(content: str) -> bool:
    """Return whether a text is a sentence such as `it is 5` or `nobody says x = 5`, not an answer like `area = 5`."""
    tokens = tokens_of(content)
    if _PREDICATES & set(tokens):
        return True
    are_words = [t.isalpha() and t not in ("and", "or") for t in tokens_of(content.rpartition("=")[0])]
    return any(one and other for one, other in pairwise(are_words))


def _is_formula(tokens: list[str]) -> bool:
    r"""Return whether the tokens contain a \command other than a font."""
    return any(token[0] == "\\" and token not in _FONTS for token in tokens)
