"""The words around a marked answer: whether they deny it, doubt it or ask for it."""

from collections.abc import Collection
from itertools import pairwise

from agentrl_math.boxes import Mark
from agentrl_math.prose import number_said

MAX_CONTEXT_CHARS, MAX_CONTEXT_WORDS, MAX_BEHIND_CHARS = 400, 400, 20_000
"""How much text is read before a mark, in each sentence after it, and after it in total."""
_ENDS = (". ", "! ", "? ", ".\n", "!\n", "?\n", "\n\n", ".$", ".\\]")
_SPACED = {**dict.fromkeys('$*_`~#{}[]()<>/|"&%!…', " "), **{char: f" {char} " for char in ",;:=?"}}
_TABLE = str.maketrans({**_SPACED, "\\": " \\", "\n": " ; ", "’": "'", "—": " , ", "–": " , "})  # noqa: RUF001


def words_of(text: str) -> frozenset[str]:
    """Split a list of words."""
    return frozenset(text.split())


HEDGES = words_of(
    "maybe perhaps possibly probably presumably supposedly allegedly might guess guessing guessed unlikely unsure "
    "uncertain unclear doubt doubts doubtful doubted deny denies denied reject rejects disagree dispute whether "
    "refuse refuses unless kidding joking idk dunno naively"
)
NEGATIONS = words_of(
    "not never cannot neither nor hardly without except unlike instead rather nobody nothing anything no isnt arent "
    "wasnt dont doesnt didnt cant wont couldnt shouldnt wouldnt"
)
FALSITIES = words_of(
    "false wrong incorrect untrue mistaken lie lying lied myth nonsense absurd impossible rejected extraneous "
    "excluded discarded invalid disproved eliminated ruled mistake"
)
_VERBS = words_of(
    "is are was were be been equals get gets gives give have has make makes so but then thus therefore hence means "
    "yields becomes"
)
"""Words after which a negation no longer applies to what follows."""
_CONCLUSIONS = words_of("so thus hence therefore then consequently")
_VIEWS = words_of(
    "think believe know sure certain confident convinced true right correct case claim say says agree expect way "
    "means idea clue circumstances sane person"
)
"""Words that extend a negation before them to the rest of the sentence: `I do not think that`."""
_CONDITIONS, _MODALS = words_of("if suppose assume assuming"), words_of("could may might can")
_AUXILIARIES = _MODALS | words_of("is are was were be does do did would will must should got looks that's it's which")
_RETRACTIONS = words_of(
    "mistake mistakes actually wait sorry oops correction edit erratum meant disregard retract misread miscalculated "
    "scratch strike fails kidding joking apologies erred nope rather ignore forget"
)
"""Words that retract an answer if they open a later clause, or if that clause is about the answer."""
_EXCLUSIONS = words_of("no not without unlike instead rather")
_CLAIMED = words_of("sure certain correct right true it the really possible confident a an")
"""Words with which a negation after a mark denies it, unlike `(no units)`."""
_REPORTED = words_of(
    "say says said claim claims claimed think thinks thought believe believes believed pretend pretends"
)
_ASIDES = (
    "perhaps surprisingly", "maybe surprisingly", "not surprising", "no surprise", "without a doubt",
    "without doubt", "no doubt", "no wonder", "not hard", "not difficult", "whether or not",
    "regardless of whether",
)  # fmt: skip
"""Phrases that only look like denials or doubts."""
_RESTRAINTS = (
    " exceeds", " twice", " double", " half", " thrice", " avoid", " exclude", " excluding", " ignore", " disregard",
    " eliminate", " discard", " less than", " more than", " greater than", " fewer than", " larger than",
    " smaller than", " is at most", " is at least", " opposite of", " rule out", " ruled out", " differs from",
    " different from", " far from", " close to", " nearly", " almost", " everything but", " all but", " other than",
    " no longer", " used to be",
)  # fmt: skip
"""Phrases that, directly before a mark, change its value or deny it."""
_BACKWARD = words_of("this that it which no not that's it's i i'm im or my above")
"""First words of a clause that refers to the answer before it."""
_DENIED: tuple[list[str], ...] = ([], [","], ["."], ["really"], ["it"])
_TURNS = ("on second", "never mind", "hold on", "let me fix", "let me correct", "let me redo", "i take that")
_OPENINGS = _CONCLUSIONS | words_of("just oh ah hmm well ok okay and but however , ; : .")
"""Words that may precede them."""


def is_touched(text: str, mark: Mark, is_line: bool = False) -> bool:
    """Return whether the text around a mark denies, doubts or asks for it; for a line, earlier lines do not count."""
    before = text[max(0, mark.start - MAX_CONTEXT_CHARS) : mark.start]
    bare = before.rstrip(" \n$\\[({")
    led_in = before.rpartition("\n")[2] if is_line else f"{bare}\n" if "\n" in before[len(bare) :] else before
    lead = _sentences(led_in)[-1]
    own, *following = _sentences(text[mark.end : mark.end + MAX_BEHIND_CHARS])
    own = own[next((i for i, token in enumerate(own) if token != ";"), len(own)) :]
    rest, claim = _parted(own, ("since", "because"))[0], _parted(lead, _CONCLUSIONS)[-1]
    is_alternative = (lead[-1:] == ["or"] and lead[-2:-1] != [","]) or (rest[:1] == ["or"] and not mark.is_box)
    clauses, is_conditional = _parted(rest, ",;:"), rest[:1] == ["if"] and bool({"if", "otherwise"} & set(rest[1:]))
    if "?" in own or HEDGES & {*claim, *rest} or is_alternative or _is_refused(claim):
        return True
    if _is_restrained(lead) or _is_negated(lead) or _is_refuted(clauses[0]) or is_conditional:
        return True
    unasked = [later for earlier, later in pairwise([own, *following]) if earlier[-1:] != ["?"]]
    later, answer = [*clauses, *unasked], set(tokens_of(str(mark.content)))
    return any(
        _is_withdrawn(clause, answer) or (_names(clause) and not (answer | FALSITIES) & set(clause)) for clause in later
    )


def _names(clause: list[str]) -> bool:
    """Return whether a clause names an answer: `The answer is six`, `Answer: 6`."""
    pairs = (("answer", "is"), ("answer", ":"))
    at = next((i for i, pair in enumerate(pairwise(clause)) if pair in pairs), len(clause))
    return any(token[:1].isdigit() or number_said(token) is not None for token in clause[at + 2 : at + 4])


def _is_restrained(lead: list[str]) -> bool:
    """Return whether `less than …`, `twice …`, `rule out …` or `wrong: …` directly precedes a mark."""
    words = lead[:-1] if lead[-1:] in (["$"], [";"]) else lead
    if words[-1:] == [":"] and (FALSITIES & set(words[-2:-1]) or words[-4:-1] == ["not", "the", "answer"]):
        return True
    return f" {' '.join(words[-4:])}".endswith(_RESTRAINTS) and words[-3:-2] != ["no"]


def _sentences(text: str) -> list[list[str]]:
    """Return the sentences of a text as truncated lists of tokens; after a final full stop the last one is empty."""
    for tag in ("<b>", "<i>", "<p>", "<br>", "<strong>", "<em>"):
        text = text.replace(tag, " ")
    above, *below = text.split("\n\n")
    text = "".join([above, *("\n" + part if part.lstrip()[:1].islower() else "\n\n" + part for part in below)])
    for end in _ENDS if text else ():
        text = text.replace(end, f"{end[0]} \0 ")
    tokens = tokens_of(text)
    words = [
        token for before, token in pairwise(["", *tokens]) if _is_read(token) and before not in ("\\begin", "\\end")
    ]
    return [sentence[:MAX_CONTEXT_WORDS] for sentence in _parted(words, "\0")]


def _is_read(token: str) -> bool:
    """Return whether a token is a word, a number or punctuation, as opposed to a command or decoration."""
    return token[0] != "\\" and (token in ",;:.=?\0" or any(map(str.isalnum, token)))


def _parted(tokens: list[str], signs: Collection[str]) -> list[list[str]]:
    """Split tokens at these signs."""
    ends = [-1, *(i for i, token in enumerate(tokens) if token in signs), len(tokens)]
    return [tokens[start + 1 : end] for start, end in pairwise(ends)]


def tokens_of(text: str) -> list[str]:
    r"""Return lower-case words, punctuation and other tokens; a \command is one token."""
    lowered = text.lower()
    for aside in _ASIDES:
        lowered = lowered.replace(aside, "")
    return [token.strip(".-") or "." for token in lowered.translate(_TABLE).split() if token not in ("\\", "-", "--")]


def denies(token: str) -> bool:
    """Return whether a word is a negation."""
    return token in NEGATIONS or token.endswith("n't")


def _is_refused(tokens: list[str]) -> bool:
    """Return whether tokens contain `I do not think that …`, `it is false that …`, `some say that …` or similar."""
    for i, token in enumerate(tokens):
        if token in FALSITIES or denies(token):
            claim = _parted(tokens[i + 1 : i + 16], ",;:")[0]
            if ("answer", "is") in pairwise(claim) or claim[:2] == ["be", "that"]:
                return True
            is_claimed = {"that", "answer"} & set(claim[:3]) or _REPORTED & set(claim[1:2])
            if is_claimed if token in FALSITIES else _VIEWS & set(claim[:3]):
                return True
    return any(
        (one == "possible" and other == "that" and (third != "the" or "answer" in tokens))
        or (other in _REPORTED and one not in ("we", "i", "can", "simply", "the") and third != "of")
        for one, other, third in zip(tokens, tokens[1:], [*tokens[2:], ""], strict=False)
    )


def _is_negated(lead: list[str]) -> bool:
    """Return whether `… is not`, `… cannot be`, `if it is` or `if it is even, then` directly precedes a mark."""
    clause = _parted(lead, ",;:.")[-1]
    last = [token for token in lead if token not in (";", ":")][-1:]
    openers = {*clause[:2], *(lead[:1] if "then" in lead[-2:] else ())}
    is_denied = any(map(denies, last)) and (last != ["no"] or lead[-1:] != [":"])
    if is_denied or _CONDITIONS & openers or (clause[-1:] == ["be"] and _MODALS & set(clause[-2:])):
        return True
    return any(
        token != "no" and denies(token) and len(clause) - i < 6 and not _VERBS & set(clause[i + 2 :])
        for i, token in enumerate(clause)
    )


def _is_refuted(rest: list[str]) -> bool:
    """Return whether `… is wrong`, `… is not the answer` or `…, but I am not sure` follows a mark."""
    is_subject = bool(_AUXILIARIES & set(rest[:1])) or rest[:1] == ["seems"]
    is_aside = rest[:1] and rest[0] in _EXCLUSIONS and rest[1:] and rest[1] not in _CLAIMED
    is_denied = any(map(denies, rest[: 4 if is_subject else 1])) and not is_aside
    return is_denied or bool(FALSITIES & set(rest[:1])) or (is_subject and _is_false(rest)) or _is_refused(rest)


def _is_false(tokens: list[str]) -> bool:
    """Return whether tokens contain `is wrong` or `was an extraneous …`, but not only `the wrong …`."""
    return any(t in FALSITIES and _AUXILIARIES & set(tokens[max(0, i - 2) : i]) for i, t in enumerate(tokens))


def _is_withdrawn(clause: list[str], answer: Collection[str]) -> bool:
    """Return whether a later clause retracts the answer: `That is wrong`, `Wait, …`, `Actually no`, `Or is it 6?`."""
    words = clause[next((i for i, token in enumerate(clause) if token not in _OPENINGS), len(clause)) :]
    if words[:2] in (["sorry", "for"], ["rather", "than"]):
        words = words[2:]
        return "mistake" in words or "error" in words
    if words and (words[0] in _RETRACTIONS | FALSITIES or " ".join(words[:3]).startswith(_TURNS)):
        return True
    is_backward = words[:1] and (words[0] in _BACKWARD or words[:2] in (["the", "answer"], ["the", "above"]))
    if not is_backward and not (words and words[0] in answer):
        return False
    at = next((i for i, token in enumerate(words[:3]) if denies(token)), len(words))
    if at < len(words) and (words[at + 1 : at + 2] in _DENIED or "answer" in words[at + 1 : at + 4]):
        return True
    is_whole = _parted(words, ",")[0][-1:] == ["impossible"]
    if _is_false([token for token in words if token != "impossible" or is_whole]):
        return True
    is_doubted = bool((_RETRACTIONS | HEDGES) & set(words)) or (words[0] == "or" and "?" in words)
    return bool(is_backward) and "common" not in words and (is_doubted or _is_refused(words))
