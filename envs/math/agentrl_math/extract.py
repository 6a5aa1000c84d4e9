r"""Where the answer stands in a text: think blocks, \boxed, `####`, <answer>, "the answer is", the last number."""
# ruff: noqa: RUF001  (models write these signs)

import re
from dataclasses import dataclass
from typing import NamedTuple

from agentrl_math.context import is_changed, is_changed_later, said, without_fillers
from agentrl_math.limits import MAX_ANSWER_CHARS, MAX_SEARCHED_CHARS
from agentrl_math.policy import Policy

_NAMES = "think|thinking|thought|reasoning|seed:think"
_OPEN = re.compile(rf"<(?:{_NAMES})>|\[THINK\]|◁think▷", re.IGNORECASE)
_CLOSE = re.compile(rf"</(?:{_NAMES})>|\[/THINK\]|◁/think▷", re.IGNORECASE)
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])\s*")
_HASHES = re.compile(r"####[ \t]*(?=[-+$\\(\d.£€{[−])([^\n]+)")
_ANSWER_OPEN = re.compile(r"<answer>", re.IGNORECASE)
_ANSWER_CLOSE = re.compile(r"</answer>", re.IGNORECASE)
_MARKER = re.compile(
    r"\banswer(?:[ \t]+(?:to|for)[^.\n:=]{0,80}?)?[ \t*_]*(?:\bis\b|\bare\b|:|=)[ \t*_]*:?\s*"
    r"(?:\bis\b[ \t]*:?)?[ \t*_]*"
    r"|\banswer[ \t]*\*\*[ \t]*\n\s*"
    r"|\b(?:correct|right|best)[ \t]+(?:option|choice)[ \t]*(?:\bis\b|:)\s*"
    r"|\bI(?:'d| would| will)?[ \t]+(?:choose|pick|select)\s+",
    re.IGNORECASE,
)
_ANSWER_WRAPPERS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"<answer>(.*)</answer>", r"(?:the |so,? )*(?:final |correct )?answer\s*(?:is\s*:?|:|=)\s*(.*?)\.?",
        r"\[\s*'([^']*)'\s*\]", r'\[\s*"([^"]*)"\s*\]', r'"([^"]*)"', r"'([^']*)'",
    )
]  # fmt: skip
_SENTENCE_END = re.compile(
    r"(?<!\\)[.!?](?=\s|$)|\n|,\s(?:and\s)?not\s|,?\s(?:because|since|which|so that|as required)\b"
)
_JOINT = re.compile(r"[\s$,;.&]*(?:\\text\s*\{)?\s*(?:and|or)?\s*(?:\}\s*)?[\s$,;a-zA-Z]{0,6}(?:=\s*)?[\s$]*")
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_DIGITS = r"\d[\d,]*(?:\.\d+)?|\.\d+"
_UNIT = r"(?:\s?(?:[cmk]?m|in|ft|kg|g|s|h)(?:\^\{?[23]\}?|[²³])?\b)?"
_NUMBER = re.compile(
    rf"(?<![\w.,])(?P<number>[-−+]?(?:\\?[$£€]\s?)?(?:\\[dt]?frac\s*\{{-?\d+\}}\s*\{{\d+\}}|(?:{_DIGITS})(?:[eE][+-]?\d+)?(?:\s?/\s?\d+)?)"
    r"(?:\s(?:hundred|thousand|million|billion|trillion|dozen)\b)?"
    rf"(?:\s?\\?%)?){_UNIT}(?![\w^])"
)
_OPERAND = re.compile(
    r"(?:\d|[)}]|\b[a-z])\s*\*\s*$|(?:[\w)}]\s*(?:[+×/^_÷·−-]|\\times|\\cdot|\\div)|\d\s*[xX])\s*$|[\^_{]\s*$|(?:[<>≤≥≠]|<=|>=|!=|\\(?:le|ge|ne|leq|geq|neq)|\bnot)\s*\$?$"
)
_OPERATOR = re.compile(r"[ \t]*(?:[+×/^÷·<>=]|\*[ \t]*[\w(]|\\times|\\cdot|\\div|-\s*\d)")
_HEDGE = re.compile(rf"(?:{_DIGITS})\s*,?\s*\bor\s*\$?$|(?:(?:{_DIGITS})\s*(?:[,;]\s*(?:and\b\s*)?|and\s+)){{2,}}\$?$")
_RUN = re.compile(rf"(?:(?:{_DIGITS})\s+){{3,}}$")
MAX_JOINT_CHARS = 30
MAX_WHOLE_CHARS = 200


class Box(NamedTuple):
    """A \\boxed{...}; `content` is None when it is never closed."""

    content: str | None
    start: int
    end: int


@dataclass(frozen=True)
class Extraction:
    """The text taken as the answer; `joined` is the list that neighbouring boxes form, for golds that are lists."""

    text: str
    joined: str | None = None
    conflict: bool = False


def visible(response: str, think: str) -> str | None:
    """The part of a response that may hold its answer; None when a think block is never closed."""
    if think == "ignore":
        return response[-MAX_SEARCHED_CHARS:]
    closes = list(_CLOSE.finditer(response))
    rest = response[closes[-1].end() :] if closes else response
    if _OPEN.search(rest) or (think == "open" and not closes):
        return None
    return rest[-MAX_SEARCHED_CHARS:]


def boxes(text: str) -> list[Box]:
    r"""Every outermost \boxed or \fbox, in order; linear in the text, whatever its braces do."""
    found: list[Box] = []
    position = 0
    while match := _BOX.search(text, position):
        box = _box_at(text, match)
        found.append(box)
        position = box.end
    return found


def _box_at(text: str, match: re.Match[str]) -> Box:
    start = match.end()
    if text[start : start + 1] != "{":
        bare = re.compile(r"[^\s$\\{}]+").match(text, start)
        return Box(bare.group().rstrip(".,;") if bare else "", match.start(), bare.end() if bare else start)
    end = closing_brace(text, start)
    if end is None:
        return Box(None, match.start(), len(text))
    return Box(text[start + 1 : end], match.start(), end + 1)


def closing_brace(text: str, start: int) -> int | None:
    """Where the brace opened at `start` closes; escaped braces do not count."""
    depth = 0
    for match in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if depth == 0:
            return match.start()
    return None


def from_gold(gold: str) -> str | None:
    r"""The answer inside a gold: its last \boxed, what follows its last `####`, or all of it."""
    found = boxes(gold)
    if found:
        return found[-1].content
    return unwrapped(gold.rsplit("####", 1)[1] if "####" in gold else gold)


def unwrapped(text: str) -> str:
    """`The answer is 5.`, `<answer>5</answer>`, `"5"` and `['5']` are 5."""
    text = text.strip()
    for wrapper in _ANSWER_WRAPPERS:
        if found := wrapper.fullmatch(text):
            text = found.group(1).strip()
    return text


def from_response(response: str, policy: Policy, numeric: bool) -> Extraction | None:
    """The answer a response gives, or None; `numeric` says that the gold is a plain number."""
    text = visible(response, policy.think)
    if text is None:
        return None
    found = boxes(text)
    if found:
        return _choose(text, found, policy.box)
    return _unboxed(text, policy.fallback, numeric)


def _choose(text: str, found: list[Box], which: str) -> Extraction | None:
    contents = [box.content for box in found]
    if which == "first":
        return Extraction(unwrapped(contents[0])) if contents[0] else None
    last = contents[-1]
    if last is None or not last.strip():
        return None
    whole = [content for content in contents if content is not None and content.strip()]
    if which == "all":
        return Extraction(", ".join(whole))
    squeezed = {"".join(content.split()) for content in whole}
    return Extraction(unwrapped(last), _joined(text, found), conflict=which == "only" and len(squeezed) > 1)


def _joined(text: str, found: list[Box]) -> str | None:
    """The contents of the boxes at the end that only commas, "and" or "or" part."""
    chain = [found[-1]]
    for box in reversed(found[:-1]):
        between = text[box.end : chain[-1].start]
        if box.content is None or len(between) > MAX_JOINT_CHARS or not _JOINT.fullmatch(between):
            break
        chain.append(box)
    return ", ".join(str(box.content) for box in reversed(chain)) if len(chain) > 1 else None


def _unboxed(text: str, fallback: str, numeric: bool) -> Extraction | None:
    inner = _tagged(text)
    if inner is not None:
        return _marked(inner, numeric) or (Extraction(inner) if inner else None)
    marked = _marked(text, numeric)
    if marked or fallback == "none":
        return marked
    if not numeric and fallback != "number":
        return _whole_or_formula(text)
    if re.fullmatch(r"\d{1,9}!", text.strip()):
        return Extraction(text.strip())
    return last_number(text) or (_bare_formula(text) or _final_formula(text) if fallback == "auto" else None)


def _tagged(text: str) -> str | None:
    """What the last closed <answer> holds."""
    closes = list(_ANSWER_CLOSE.finditer(text))
    opens = list(_ANSWER_OPEN.finditer(text, 0, closes[-1].start())) if closes else []
    return text[opens[-1].end() : closes[-1].start()].strip() if opens else None


def _marked(text: str, numeric: bool) -> Extraction | None:
    hashes = _HASHES.findall(text)
    if hashes:
        return Extraction(str(hashes[-1]).strip())
    for match in reversed(list(_MARKER.finditer(text))):
        content = without_fillers(_sentence(text[match.end() : match.end() + MAX_ANSWER_CHARS]))
        if content and (not numeric or any(char.isdigit() for char in content)):
            return _leading_number(content) if numeric else Extraction(content)
    return None


def _sentence(rest: str) -> str:
    end = _SENTENCE_END.search(rest)
    return (rest[: end.start()] if end else rest).strip().strip("*_ \t`")


def _leading_number(content: str) -> Extraction:
    """`42 (as 6*7 = 42)` is 42; `5 or 6`, `6*7` and `5 squared` stay whole."""
    lead = content.lstrip("~≈$ ")
    match = _NUMBER.match(lead)
    rest = lead[match.end() :] if match else ""
    if match and (is_changed("", rest) or is_changed_later(rest)):
        return Extraction(content)
    if match and re.match(r"\s*(?:\(|\[|--|—|:)|\s+[a-z]{3,}", rest) and not re.match(r"\s*and\b", rest):
        return Extraction(match.group("number") if not re.match(r"\s+[a-z]", rest) else content[: content.find(rest)])
    if len(re.findall(r"[A-Za-z]{3,}", re.sub(r"\\[A-Za-z]+\s*(?:\{[^{}]*\})?|\$[^$]*\$", "", content))) > 1:
        return last_number(content) or Extraction(content)
    return Extraction(content)


def last_number(text: str) -> Extraction | None:
    """The last number of a text, unless it is an operand or one of a list."""
    tail = text[-4 * MAX_ANSWER_CHARS :]
    found = list(_NUMBER.finditer(tail))
    if not found:
        return None
    match = found[-1]
    number, before = match.group("number"), tail[: match.start()]
    if number[0] in "-−" and re.search(r"[\d)]\s*$", before):
        return None
    if _OPERAND.search(before[-40:]) or _OPERATOR.match(tail, match.end()):
        return None
    if re.search(r"\d", tail[match.end() :]) or is_changed(before, tail[match.end() :]):
        return None
    if _HEDGE.search(before[-60:]) or _RUN.search(before[-200:]):
        return Extraction(before[-60:].strip() + " " + number)
    return Extraction(number)


def _whole_or_formula(text: str) -> Extraction | None:
    whole = text.strip()
    formulas = _FORMULA.findall(whole[-2 * MAX_ANSWER_CHARS :])
    prose = re.findall(r"[A-Za-z]+", _FORMULA.sub(" ", whole[-2 * MAX_ANSWER_CHARS :]))
    if formulas and (len(whole) > MAX_WHOLE_CHARS or "\n" in whole or len(prose) > 1):
        return Extraction(next(part for part in formulas[-1] if part).strip())
    return Extraction(said(whole)) if whole and len(whole) <= MAX_WHOLE_CHARS and "\n" not in whole else None


def _bare_formula(text: str) -> Extraction | None:
    """A response that is a formula and nothing else, such as `2^5` or `x > 5`."""
    whole = text.strip()
    is_prose = re.search(r"[A-Za-z]{3,}", re.sub(r"\\[A-Za-z]+", "", whole)) or "\n" in whole
    has_value = re.search(r"\d|\\", whole)
    return Extraction(whole) if whole and len(whole) <= MAX_WHOLE_CHARS and has_value and not is_prose else None


def _final_formula(text: str) -> Extraction | None:
    """The formula with which a response ends."""
    tail = text.rstrip()[-2 * MAX_ANSWER_CHARS :]
    found = list(_FORMULA.finditer(tail))
    if not found or len(tail) - found[-1].end() > MAX_JOINT_CHARS:
        return None
    return Extraction(next(part for part in found[-1].groups() if part).strip())
