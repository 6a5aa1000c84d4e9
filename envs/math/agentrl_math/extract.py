r"""Finding the marked answer in a text: a box, `####`, <answer>, a last line "Answer: …", or only the answer."""

from dataclasses import dataclass

from agentrl_math.beside import beside
from agentrl_math.boxes import Mark, boxes
from agentrl_math.context import is_touched
from agentrl_math.fallback import last_number
from agentrl_math.limits import MAX_ANSWER_CHARS, MAX_ITEMS, MAX_SEARCHED_CHARS, MAX_WHOLE_CHARS
from agentrl_math.literal import literal
from agentrl_math.policy import Policy
from agentrl_math.stated import has_value, is_sentence, is_stated

_TAGS = [f"{name}>" for name in ("think", "thinking", "thought", "reasoning", "seed:think")]
_OPENING = (*(f"<{tag}" for tag in _TAGS), "[think]", "◁think▷")
_CLOSING = (*(f"</{tag}" for tag in _TAGS), "[/think]", "◁/think▷")
_QUOTES = (("['", "']"), ('["', '"]'), ('"', '"'), ("'", "'"))
_DECORATION = " \t#*_>`-•✅"
_LEADS = frozenset("so thus hence therefore then and finally the my our final correct".split())  # noqa: SIM905
_ADVERBS = frozenset("therefore then thus hence indeed exactly simply".split())  # noqa: SIM905
_VALUE_STARTS = frozenset("0123456789-+$\\(.£€{[−")  # noqa: RUF001
"""First characters of a value after `####` in the middle of a text; otherwise it is a heading."""
_BLOCKS = {"$$": "$$", "\\]": "\\[", "```": "```"}
_HOPE = "I hope it is correct."
"""Sentence that models trained on Minerva's examples add after their answer."""
_MARKER_CHARS = 80
"""Maximum length of a marker such as `Therefore, the final answer:`."""
MAX_JOINT_CHARS = 30


@dataclass(frozen=True)
class Extraction:
    """The text taken as the answer; `conflict` is True if boxes differ that must agree."""

    text: str
    conflict: bool = False


def from_gold(gold: str) -> str | None:
    r"""Return the answer inside a gold: its last \boxed, what follows its last `####`, or all of it."""
    found = boxes(gold)
    if found:
        return found[-1].content
    return unwrapped(gold.rsplit("####", 1)[1] if "####" in gold else gold)


def from_response(response: str, policy: Policy) -> Extraction | None:
    """Return the answer that a response marks last, or None if it is denied, doubted or asked."""
    text = visible(response, policy.think)
    if text is None:
        return None
    found = boxes(text)
    if found and policy.box != "last":
        return _chosen(text, found, policy.box)
    is_prose = policy.fallback == "number"
    hashes, line = _hashes(text), None if is_prose else _line(text)
    marks = [mark for mark in (_boxed(text, found), _tagged(text), hashes) if mark]
    if line and (not marks or line.content is None or has_value(line.content)):
        marks.append(line)
    if not marks:
        whole = last_number(text) if is_prose else _whole(text)
        return None if whole is None else Extraction(whole)
    last = max(marks, key=lambda mark: mark.start)
    if not _counts(text, last, is_line=last in (hashes, line)):
        return None
    whole_mark = beside(text, last) if last.is_box else last
    return Extraction(unwrapped(str(whole_mark.content))) if whole_mark else None


def _counts(text: str, mark: Mark, is_line: bool = False) -> bool:
    """Return whether a mark has content that neither it nor the text around it denies, doubts or asks for."""
    if not mark.content or not mark.content.strip() or not is_stated(mark.content):
        return False
    return not is_touched(text, mark, is_line)


# --- think blocks --------------------------------------------------------------------------------------------------


def visible(response: str, think: str) -> str | None:
    """Return the part of a response that may contain its answer; None if a think block is never closed."""
    if think == "ignore" or (think == "auto" and not any(sign in response for sign in "<[◁")):
        return response[-MAX_SEARCHED_CHARS:]
    lowered = _lowered(response)
    closed = _end_of_last(lowered, _CLOSING)
    if _end_of_last(lowered[closed:], _OPENING) or (think == "open" and not closed):
        return None
    return response[closed:][-MAX_SEARCHED_CHARS:]


def _end_of_last(text: str, tags: tuple[str, ...]) -> int:
    """Return the end of the last of these tags; 0 if there is none."""
    return max((at + len(tag) for tag in tags if (at := text.rfind(tag)) >= 0), default=0)


def _lowered(text: str) -> str:
    """Return the text in lower case with the same positions; only İ would become two characters."""
    return text.replace("İ", "I").lower()


# --- the marks -----------------------------------------------------------------------------------------------------


def _tagged(text: str) -> Mark | None:
    """Return the last closed <answer>."""
    if "</" not in text:
        return None
    lowered = _lowered(text)
    start = lowered.rfind("<answer>", 0, max(lowered.rfind("</answer>"), 0))
    if start < 0:
        return None
    end = lowered.find("</answer>", start)
    return Mark(text[start + len("<answer>") : end], start, end + len("</answer>"))


def _hashes(text: str) -> Mark | None:
    """Return the last `####` that is not a heading: a value follows it, or it is the last line."""
    start, last = len(text), len(text.rstrip())
    while (at := text.rfind("####", 0, max(start, 0))) >= 0:
        start = text.rfind("\n", 0, at)
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        content = text[at + 4 : min(end, at + 6 + MAX_ANSWER_CHARS)].strip()
        is_heading = text[max(at - 1, 0) : at] == "#" or (end < last and content[:1] not in _VALUE_STARTS)
        if content and not is_heading:
            return Mark(content, at, end)
    return None


def _line(text: str) -> Mark | None:
    """Return a last line `Answer: 5`, or `Answer:` with the answer on the next line."""
    content, above = _last_line(text)
    start = text.rstrip().rfind("\n") + 1
    marked = after_marker(content)
    if marked is None and above and after_marker(above[-1]) == "":
        marked = content
    if not marked or "\\box" in marked:  # a box is a mark of its own
        return None
    answer = unwrapped(marked).removesuffix(".")
    return Mark(
        "" if is_sentence(answer) and not has_value(answer) else None if is_sentence(answer) else answer,
        start,
        len(text),
    )


def _last_line(text: str) -> tuple[str, list[str]]:
    """Return the last non-empty line, without the delimiters of a display or code block, and the lines above it."""
    tail = text.rstrip()[-2 * MAX_ANSWER_CHARS :]
    lines = [line for part in tail.split("\n") if (line := part.strip().removesuffix(_HOPE).rstrip())]
    opener = _BLOCKS.get(lines[-1]) if len(lines) > 2 else None
    if opener and opener in lines[-3]:
        head = lines[-3].partition(opener)[0].strip()
        lines = [*lines[:-3], *([head] if head else []), lines[-2]]
    return (lines[-1], lines[:-1]) if lines else ("", [])


def after_marker(line: str) -> str | None:
    """Return what follows `Answer:`, `**Final answer:**` or `So the answer is`; None for another line."""
    if "answer" not in line[:_MARKER_CHARS].lower():
        return None
    rest = line
    for _ in range(6):
        rest = rest.lstrip(_DECORATION + ",")
        size = next((i for i, char in enumerate(rest[:12]) if not char.isalpha()), len(rest[:12]))
        word, rest = rest[:size].lower(), rest[size:]
        if word == "answer":
            return _after_sign(rest.lstrip(" \t*_`"))
        if word not in _LEADS:
            return None
    return None


def _after_sign(rest: str) -> str | None:
    if not rest:
        return ""
    for sign in (":", "=", "is", "are"):
        if rest[: len(sign)].lower() == sign and not (sign.isalpha() and rest[len(sign) : len(sign) + 1].isalpha()):
            return _without_adverb(rest[len(sign) :].lstrip(" \t:*_`").rstrip(" \t*_`"))
    return None


def _without_adverb(text: str) -> str:
    """Reduce `therefore 5` and `equal to 5` to 5."""
    first, _, rest = text.partition(" ")
    if first.lower() == "equal" and rest[:3].lower() == "to ":
        return rest[3:].lstrip()
    return rest.lstrip() if first.lower().rstrip(",") in _ADVERBS and rest else text


def _whole(text: str) -> str | None:
    """Return a response that consists only of its answer; None for other responses."""
    if len(text.strip()) > MAX_WHOLE_CHARS:
        return None
    content, above = _last_line(text)
    is_answer = content and not above and is_stated(content) and not is_sentence(content)
    return unwrapped(content) if is_answer else None


def unwrapped(text: str) -> str:
    """Reduce `The answer is 5.`, `<answer>5</answer>`, `"5"` and `['5']` to 5."""
    text = text.strip()
    for _ in range(4):
        inner = _inner(text)
        if not inner:
            break
        text = inner.strip()
    return text


def _inner(text: str) -> str | None:
    if text[:8].lower() == "<answer>" and text[-9:].lower() == "</answer>":
        return text[8:-9]
    for opening, closing in _QUOTES:
        inner = text[len(opening) : -len(closing)]
        if text.startswith(opening) and text.endswith(closing) and inner and closing[0] not in inner:
            return inner
    marked = after_marker(text)
    return marked.removesuffix(".") if marked else None


# --- several boxes -------------------------------------------------------------------------------------------------


def _chosen(text: str, found: list[Mark], which: str) -> Extraction | None:
    """Return the answer of the boxes for a policy other than `last`, which ignores other marks."""
    box = found[0] if which == "first" else _boxed(text, found)
    if box is None or not _counts(text, box) or beside(text, box) is None:
        return None
    counted = found if which == "first" else _counted(text, found, box)
    whole = [box.content for box in counted if box.content and box.content.strip()]
    if which == "all":
        return Extraction(", ".join(whole))
    conflict = which == "only" and len({literal(content) or "".join(content.split()) for content in whole}) > 1
    return Extraction(unwrapped(str(box.content if which == "first" else found[-1].content)), conflict)


def _counted(text: str, found: list[Mark], last: Mark) -> list[Mark]:
    """Return the boxes that neither their formula nor the text up to the next box retracts; many are not checked."""
    earlier = [box for box in found if box.start < last.start]
    if not 0 < len(earlier) <= MAX_ITEMS:
        return found
    ends = [*(box.start for box in earlier[1:]), last.start]
    kept = [box for box, end in zip(earlier, ends, strict=True) if beside(text, box) and _counts(text[:end], box)]
    return [*kept, *found[len(earlier) :]]


def _boxed(text: str, found: list[Mark]) -> Mark | None:
    """Return the last box, or a list with the boxes before it if only commas, "and" or "or" separate them."""
    chain = found[-1:]
    for box in reversed(found[:-1]):
        if not box.content or not chain[0].content or not _is_joint(text[box.end : chain[0].start]):
            break
        chain.insert(0, box)
    if not chain or not chain[-1].content:
        return chain[-1] if chain else None
    contents = [str(box.content) for box in chain]
    content = ", ".join(contents) if len(set(contents)) > 1 else contents[-1]
    return Mark(content, chain[0].start, chain[-1].end, True)


def _is_joint(between: str) -> bool:
    if len(between) > MAX_JOINT_CHARS:
        return False
    plain = between.replace("\\text", " ").replace("\\quad", " ")
    words = "".join(" " if char in "$,;.&={}\\()[]" else char for char in plain).split()
    return bool(words or "," in between or ";" in between) and all(
        word in ("and", "or") or (word.isalpha() and len(word) == 1) for word in words
    )
