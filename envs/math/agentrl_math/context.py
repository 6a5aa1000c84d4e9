"""What is said about a marked answer: whether the words around it deny it, doubt it or ask for it."""

from collections.abc import Collection
from itertools import pairwise

MAX_CONTEXT_CHARS = 400
"""How far before and behind a mark its sentence is followed."""
_ENDS = (". ", "! ", "? ", ".\n", "!\n", "?\n", "\n\n", ".$", ".\\]")
_SPACED = {**dict.fromkeys('$*_`~#{}[]()<>/|"&%!…', " "), **{char: f" {char} " for char in ",;:=?"}}
_TABLE = str.maketrans({**_SPACED, "\\": " \\", "\n": " ; ", "’": "'", "—": " , ", "–": " , "})  # noqa: RUF001


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


HEDGES = _words(
    "maybe perhaps possibly probably presumably supposedly allegedly might guess guessing guessed unlikely unsure "
    "uncertain unclear doubt doubts doubtful doubted deny denies denied reject rejects disagree dispute whether "
    "refuse refuses unless kidding joking idk dunno"
)
NEGATIONS = _words(
    "not never cannot neither nor hardly without except unlike instead rather nobody nothing anything no "
    "isnt arent wasnt dont doesnt didnt cant wont couldnt shouldnt wouldnt"
)
FALSITIES = _words("false wrong incorrect untrue mistaken lie myth nonsense absurd impossible")
_VERBS = _words(
    "is are was were be been equals get gets gives give have has make makes so but then thus therefore hence "
    "means yields becomes"
)
"""Words behind which a negation no longer belongs to what follows."""
_CONCLUSIONS = _words("so thus hence therefore then consequently")
_VIEWS = _words(
    "think believe know sure certain confident convinced true right correct case claim say says agree expect way "
    "means idea clue"
)
"""What a negation before them denies the rest of the sentence by: `I do not think that`."""
_PREDICATES = _words(
    "is are was were has have had do does did it he she they we you this that there which because since it's that's so"
)
"""Words of a sentence, which no answer has."""
_FONTS = _words(r"\text \textbf \textrm \textit \mathrm \mathbf \mbox \quad")
_CONDITIONS = _words("if suppose assume assuming")
_MODALS = _words("could may might can")
_AUXILIARIES = _MODALS | _words("is are was were be does do did would will must should that's it's")
_RETRACTIONS = _words(
    "wrong incorrect mistake mistaken mistakes actually wait sorry oops correction edit erratum meant disregard "
    "retract misread miscalculated"
)
"""Words behind the last mark of a response that take it back, wherever they stand."""
_REJECTIONS = _words("rejected extraneous excluded discarded invalid fails disproved eliminated")
_RESTRAINTS = _words(
    "exceeds twice double half thrice avoid exclude excluding ignore disregard eliminate discard contradicts"
)
"""Words directly before a mark that make its value another one, or none."""
_PHRASES = tuple(
    tuple(said.split()) for said in (
        "less than", "more than", "greater than", "fewer than", "larger than", "smaller than", "is at most",
        "is at least", "rule out", "ruled out", "differs from", "different from", "far from", "everything but",
        "all but", "other than", "no longer", "used to be", "what if it is",
    )
)  # fmt: skip
_BACKWARD = _words("this that it which but no not that's it's however wait actually just i i'm im or")
"""The first words of a sentence that speaks of the one before it."""


def is_touched(text: str, start: int, end: int, is_line: bool = False) -> bool:
    """Whether the text around a mark denies it, doubts it, asks for it or names another answer beside it.

    `is_line`: the mark is a line of its own, of which the lines above do not speak.
    """
    before = text[max(0, start - MAX_CONTEXT_CHARS) : start]
    said = _tokens(before.rpartition("\n")[2] if is_line else _last_sentence(before))
    own, following = _first_sentence(text[end : end + MAX_CONTEXT_CHARS])
    rest, more = _tokens(own), _tokens(_first_sentence(following)[0])
    led = said[_behind_last(said, _CONCLUSIONS) :]
    is_alternative = (said[-1:] == ["or"] and said[-2:-1] != [","]) or rest[:1] == ["or"]
    if "?" in rest or HEDGES & {*led, *rest} or is_alternative:
        return True
    if _is_restrained(said) or _is_conditional(said, rest) or _is_taken_back(rest, text[end:]):
        return True
    return _is_refused(led) or _is_negated(said) or _is_refuted(rest) or _is_withdrawn(more)


def _is_restrained(said: list[str]) -> bool:
    """`less than …`, `twice …`, `rule out …` and `wrong: …` directly before a mark."""
    words = said[:-1] if said[-1:] in (["$"], [";"]) else said
    if _RESTRAINTS & set(words[-1:]) or (words[-1:] == [":"] and FALSITIES & set(words[-2:-1])):
        return True
    return any(tuple(words[-len(p) :]) == p and words[-len(p) - 1 : -len(p)] != ["no"] for p in _PHRASES)


def _is_conditional(said: list[str], rest: list[str]) -> bool:
    """`If it is even, then …`, `What if it is …` and `… if n is even`."""
    is_led = _CONDITIONS & set(said[:1]) and (said[-1:] == ["then"] or said[-2:] == ["then", ","])
    return bool(is_led) or said[:2] == ["what", "if"] or (rest[:1] == ["if"] and "otherwise" not in said)


def _is_taken_back(rest: list[str], behind: str) -> bool:
    """`… is rejected`, and any word of taking back in what follows the last mark."""
    return bool(
        _REJECTIONS & set(rest[:5]) or rest[1:4] == ["be", "ruled", "out"] or _RETRACTIONS & set(_tokens(behind))
    )


def is_stated(content: str) -> bool:
    """Whether a marked text states something: `5` and `no`, as against `not 5`, `maybe 5` and `5?`."""
    if len(content) > MAX_CONTEXT_CHARS:
        return True
    tokens = _tokens(content)
    if "?" in tokens or (len(tokens) > 1 and HEDGES & set(tokens)):
        return False
    is_value = any(char in "0123456789" for char in content) or any(t[0] == "\\" and t not in _FONTS for t in tokens)
    return not (is_value and any(_denies(token) or token in FALSITIES for token in tokens))


def is_sentence(content: str) -> bool:
    """Whether a text is a sentence rather than an answer: `it is 5` and `nobody says x = 5`, not `area = 5`."""
    tokens = _tokens(content)
    if _PREDICATES & set(tokens):
        return True
    left = _tokens(content.rpartition("=")[0])
    are_words = [token.isalpha() and token not in ("and", "or") for token in left]
    return any(one and other for one, other in pairwise(are_words))


def _last_sentence(text: str) -> str:
    return text[max((at + len(end) for end in _ENDS if (at := text.rfind(end)) >= 0), default=0) :]


def _first_sentence(text: str) -> tuple[str, str]:
    """The rest of a sentence with its last sign, and what follows it."""
    end = min((at + 1 for end in _ENDS if (at := text.find(end)) >= 0), default=len(text))
    return text[:end], text[end:].strip()


def _tokens(text: str) -> list[str]:
    r"""Lower-case words, the signs that part clauses, and the rest; a \command is no word."""
    return [
        token.strip(".-") or "." for token in text.lower().translate(_TABLE).split() if token not in ("\\", "-", "--")
    ]


def _denies(token: str) -> bool:
    return token in NEGATIONS or token.endswith("n't")


def _behind_last(tokens: list[str], ends: Collection[str]) -> int:
    """Where the part of a sentence begins that stands behind the last of these tokens."""
    return next((i for i in range(len(tokens), 0, -1) if tokens[i - 1] in ends), 0)


def _is_refused(tokens: list[str]) -> bool:
    """`I do not think that …`, `it cannot be that …`, `it is false that …`."""
    for i, token in enumerate(tokens):
        claim = tokens[i + 1 : i + 4]
        if _denies(token) and (_VIEWS & set(claim) or claim[:2] == ["be", "that"]):
            return True
        if token in FALSITIES and {"that", "to", "answer"} & set(tokens[i + 1 : i + 3]):
            return True
    return any(one == "possible" and other == "that" for one, other in pairwise(tokens))


def _is_negated(said: list[str]) -> bool:
    """`… is not`, `… cannot be` and `if it is` directly before a mark, within its clause."""
    words = said
    while words and words[-1] == ";":
        words = words[:-1]
    if words and _denies(words[-1]):
        return True
    clause = said[_behind_last(said, ",;:.") :]
    if _CONDITIONS & set(clause[:1]) or (clause[-1:] == ["be"] and _MODALS & set(clause[-2:])):
        return True
    return any(
        token != "no" and _denies(token) and len(clause) - i < 6 and not _VERBS & set(clause[i + 2 :])
        for i, token in enumerate(clause)
    )


def _is_refuted(rest: list[str]) -> bool:
    """`… is wrong`, `… is not the answer`, `…, but I am not sure` behind a mark."""
    if _is_refused(rest) or (rest and (rest[0] in FALSITIES or _denies(rest[0]))):
        return True
    if rest and (rest[0] in _AUXILIARIES or rest[0] == "which") and any(map(_denies, rest[1:4])):
        return True
    return any(t in FALSITIES and _AUXILIARIES & set(rest[max(0, i - 2) : i]) for i, t in enumerate(rest))


def _is_withdrawn(more: list[str]) -> bool:
    """The next sentence: `That is wrong.`, `I do not know.`, `Actually no, …`, `Or is it 6?`."""
    if not _BACKWARD & set(more[:1]):
        return False
    if more[0] == "not" or (more[0] == "or" and "?" in more) or HEDGES & set(more) or _is_refused(more):
        return True
    is_judged = any(t in FALSITIES and _AUXILIARIES & set(more[max(0, i - 2) : i]) for i, t in enumerate(more))
    return is_judged or any(_denies(t) and more[i + 1 : i + 2] in ([], [","]) for i, t in enumerate(more[:3]))
