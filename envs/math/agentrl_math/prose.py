"""Distinguishing words from symbols, and words that change the number beside them."""

import re

_FUNCTION = "arc(?:sin|cos|tan|cot|sec|csc)|a?(?:sin|cos|tan)|cot|sec|csc|sinh|cosh|tanh|sqrt|ln|log|lg|exp|abs"
GREEK_WORD = re.compile(
    r"(?<![A-Za-z\\])(alpha|beta|gamma|delta|epsilon|theta|lambda|sigma|omega|rho|phi|psi|mu|tau)(?![A-Za-z])"
)
_FORMULA_TOKEN = re.compile(
    rf"(?:{_FUNCTION})[A-Za-z]{{0,2}}|pi|[Ii]nfinity|infty|inf|oo|{GREEK_WORD.pattern}|[A-Za-z]"
)
_SHORT_WORDS = set(
    "no yes dne not all any one two six ten odd red cat dog car bus day sun top end low men man boy "  # noqa: SIM905
    "tom bob ann amy joe "
    "sam max tim jim ben dan kim jan feb mar apr may jun jul aug sep oct nov dec mon tue wed thu fri sat".split()
)
_FRACTIONS = (
    "fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "  # noqa: SIM905
    "sixteenth "
    "seventeenth eighteenth nineteenth twentieth thirtieth fortieth fiftieth sixtieth seventieth eightieth ninetieth "
    "hundredth thousandth millionth billionth trillionth third quarter".split()
)
_COUNTS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "  # noqa: SIM905
    "sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety".split()
)
SCALES = (
    "hundred thousand million billion trillion quadrillion quintillion sextillion septillion "  # noqa: SIM905
    "octillion zillion bazillion gazillion googol dozen "
    "score gross lakh crore myriad".split()
)
_NUMBER_WORDS = frozenset(
    [*_COUNTS, *_FRACTIONS, *SCALES, *(f"{word}s" for word in (*_FRACTIONS, *SCALES)), "half", "halves"]
)
CHANGERS = _NUMBER_WORDS | set(
    "st nd rd th squared cubed factorial factorials sine cosine tangent double doubled triple tripled "  # noqa: SIM905
    "quadruple quadrupled halved twice thrice recurring repeating repeated bar point root roots power "
    "powers raised reciprocal inverse tau pi plus minus times over under below above negative by mod "
    "modulo base choose multiplied divided or maybe perhaps possibly is isn are was were not no wrong "
    "incorrect never to than then either zeros nought opposite conjugate modulus permille exponent mil "
    "less fewer more least most but nor".split()
)
"""Words that change the number before them."""


def number_said(words: str) -> int | None:
    """Return the value of `five` and `twenty-five`; None for other words."""
    values = {word: n if n <= 20 else 10 * (n - 18) for n, word in enumerate(_COUNTS)}
    parts = [values.get(word) for word in words.split("-")]
    return None if None in parts else sum(part for part in parts if part is not None)


def is_formula(text: str) -> bool:
    """Return whether the letters of a text are functions, constants and symbols rather than words."""
    return not any(map(is_word, re.findall(r"[A-Za-z']+", text)))


def is_word(token: str) -> bool:
    """Return whether a run of letters is a word such as `even` or `Bob`, unlike `abc`, `xyz`, `sinx` and `theta`."""
    if token.lower() in _SHORT_WORDS:
        return True
    if len(token) < 3 or _FORMULA_TOKEN.fullmatch(token) or _are_neighbours(token.lower()):
        return False
    return bool(re.search("[aeiouy]", token[1:].lower())) and (len(token) > 3 or token.istitle())


def is_noun(token: str) -> bool:
    """Return whether a run of letters after a number and a space is a counted thing rather than symbols."""
    return is_word(token.title()) or (len(token) > 3 and token[0] in "aeiou" and not _are_neighbours(token))


def _are_neighbours(letters: str) -> bool:
    """Return whether the letters are distinct and close together in the alphabet, like symbols: a, b, c."""
    return len(set(letters)) == len(letters) and ord(max(letters)) - ord(min(letters)) <= len(letters)


def lost_signs(text: str) -> str:
    r"""Return the mathematical signs and brackets of a text, which a comparison of its words would ignore."""
    bare = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text)
    bare = re.sub(r"^\s*\(([^()]*)\)\s*$", r"\1", re.sub(r"(?<=[A-Za-z]{2})-(?=[A-Za-z]{2})", "", bare))
    return "".join(re.findall(r"[-+*/^=<>|!()\[\]]|_(?=.)|\\frac|\\[{}]", bare))
