r"""The text directly beside a box. A unit, a price, a scale, an equation, or another form after "or" belongs to the
answer; anything else that changes the value of the box invalidates it."""
# ruff: noqa: RUF001, SIM905  (models write these signs; lists of words)

import unicodedata
from dataclasses import replace

from agentrl_math.boxes import Mark
from agentrl_math.measures import is_measure
from agentrl_math.neighbours import FONTS, Token, row_around
from agentrl_math.prose import SCALES

_RELATIONS = frozenset("= ≈ → ⇒ ⟹ ⟶ ∴ ≃ ≅ ≡ ∈ ⇔ -> => --> ==>".split()) | {
    f"\\{name}" for name in (
        "approx approxeq simeq cong equiv in Rightarrow rightarrow implies to Longrightarrow longrightarrow therefore "
        "iff Leftrightarrow Longleftrightarrow leadsto"
    ).split()
}  # fmt: skip
_EQUAL = ("=", "≈", "\\approx", "\\simeq")
_CLOSING = frozenset("\\blacksquare \\square \\Box \\qed \\checkmark \\pmod \\bmod \\mod \\therefore \\because".split())
_SIGNS, _BULLETS = frozenset([*"+-–^/*%~¬<>·×÷_([{|&", "!=", "/="]), ("-", "*", "+", "•", ">", "–")
_PRICES = ("\\$", "€", "£")
_DENIALS = ("\\not", "!", "<", ">", "/", "¬", "~")
_WORDS_APART = frozenset("in a i am as at us are is do da pm bar bars per point points second".split())
"""Units that are treated as words of a sentence after a box."""
_CHANGING = frozenset("squared cubed factorial minus choose divided multiplied raised increased decreased".split())
_JOINING = frozenset("times plus minus over to through and by x than".split())
"""Words that combine a box with a following number into one value or two."""
_HALVED = frozenset("half a one half quarter third".split())
_LEADING = frozenset("minus negative plus twice double triple half thrice".split())
_PARTS = frozenset(
    "half root square cube third quarter fifth tenth divided multiplied power reciprocal inverse negative".split()
)
_SCALES = frozenset([*SCALES, *(f"{scale}s" for scale in SCALES)]) - {"score", "scores", "gross"}
_OPEN_UNITS = frozenset("per a an of the square cubic sq cu".split())
_ROUGHLY = frozenset("about approximately roughly equivalently simply just".split())
MAX_UNIT_TOKENS = 10


def beside(text: str, mark: Mark) -> Mark | None:
    """Return the mark with the unit, price or equation that belongs to it; None if something changes its value."""
    row = row_around(text, mark)
    left, box, right = row.tokens[: row.index], row.tokens[row.index], row.tokens[row.index + 1 :]
    if not mark.content or any(holder and holder not in FONTS for holder in row.holders):
        return None
    while left and right and left[-1].text == "(" and right[0].text == ")":
        box, left, right = replace(left[-1], text=box.text, span=box.span), left[:-1], right[1:]
    if right and right[0].text == ")" and _is_remark(left):
        right = right[1:]
    price = left[-1].text if left and left[-1].text in _PRICES else ""
    if price:
        box, left = replace(left[-1], text=box.text), left[:-1]
    if not _is_free(left, box):
        return None
    is_label = mark.content.startswith(("\\text{(", "\\textbf{(")) and right and right[0].kind in ("number", "word")
    belongs = ("", "") if is_label else _after(row.text, right, box)
    if belongs is None:
        return None
    unit, equation = belongs
    if any(sign in mark.content for sign in (",", "\\text", "%")):
        unit = ""
    chained = _chained(left)
    return mark._replace(content=f"{chained}{price}{mark.content}{unit}{equation}")


def _is_remark(left: list[Token]) -> bool:
    """Return whether the open bracket before a box opens words, as in `(so it is \\boxed{5})`, not an argument."""
    at = next((i for i in range(len(left) - 1, -1, -1) if left[i].text in ("(", ")")), None)
    if at is None or left[at].text == ")" or at + 1 == len(left):
        return False
    first = left[at + 1]
    return first.kind == "word" and len(first.text) > 1 and (at == 0 or left[at].is_apart or left[at].is_line)


def _chained(left: list[Token]) -> str:
    r"""Return `1=` of `\\boxed{1}=\\boxed{2}`, an equation that must be true."""
    is_chain = len(left) > 1 and left[-1].text in _EQUAL and left[-2].kind == "box"
    return left[-2].text.partition("{")[2][:-1] + left[-1].text if is_chain else ""


# --- before --------------------------------------------------------------------------------------------------------


def _is_free(left: list[Token], box: Token) -> bool:
    """Return whether what directly precedes a box leaves its value unchanged."""
    if not left or _is_item(left, box):
        return True
    last, before = left[-1], left[-2] if len(left) > 1 else None
    is_edge = last.span != box.span
    if last.text in _RELATIONS or last.text == "!=":
        return not _is_denied(last, before)
    if _changes(last):
        return False
    if last.kind == "box":
        return box.is_apart or box.is_line
    if last.kind == "word" and len(last.text) > 1:
        is_part = last.text in ("of", "by") and before is not None and before.text.lower() in _PARTS
        is_count = last.text == "times" and before is not None and before.kind == "number"
        return not (last.text.lower() in _LEADING or is_part or is_count) and (box.is_apart or is_edge or box.is_line)
    if last.kind == "sign" and last.text in ".,:":
        is_list = last.text == "," and last.is_math and box.is_math and not is_edge
        is_tight = before is not None and before.kind == "number" and last.is_apart == (box.is_apart or is_edge)
        return not ((is_list and before is not None and before.kind == "number") or is_tight)
    if last.kind == "sign" and last.text not in ")]":
        return last.text not in ("!", "--") or box.is_apart
    is_prose = last.kind != "number" and not last.is_math
    is_word = is_prose and box.is_apart and last.text.lower() in ("a", "i")
    return box.is_line or is_word or (is_edge and (is_prose or _has_relation(left, last.span)))


def _is_denied(last: Token, before: Token | None) -> bool:
    """Return whether a relation is negated or part of another one: `\\not=`, `!=`, `<=`, but not `3!=6`."""
    if last.text == "!=":
        return before is None or before.kind != "number" or last.is_apart
    return before is not None and before.text in _DENIALS and not (before.text == "!" and not before.is_apart)


def _changes(token: Token) -> bool:
    """Return whether a sign or command is an operation, even if its formula ends there."""
    if token.kind == "command":
        return token.text not in _CLOSING and token.text != "\\ldots"
    is_sign = token.kind == "sign" and token.text not in ("∎", "--")
    return is_sign and (token.text in _SIGNS or token.text[0] == "\\" or unicodedata.category(token.text[0])[1] in "mc")


def _has_relation(tokens: list[Token], span: int) -> bool:
    """Return whether a formula is a separate statement such as `x = 3`, not a factor."""
    return any(token.span == span and (token.text in _RELATIONS or token.text in "<>") for token in tokens)


def _is_item(left: list[Token], box: Token) -> bool:
    """Return whether a box begins a list item (`- `, `2) $`, `- [x]`) outside of formulas."""
    if not box.is_apart or left[-1].is_math:
        return False
    if left[-1].text == "]":
        left = left[: next((i for i in (-2, -3) if left[i:][:1] and left[i].text == "["), 0)]
    if left and left[-1].text in _BULLETS:
        return left[-1].is_line
    is_label = len(left) > 1 and left[-1].text in (".", ")") and len(left[-2].text) < 4 and not left[-1].is_apart
    return is_label and (left[-2].is_line or (len(left) > 2 and left[-3].text == "(" and left[-3].is_line))


# --- after ---------------------------------------------------------------------------------------------------------


def _after(text: str, right: list[Token], box: Token) -> tuple[str, str] | None:
    """Return the unit and the equation after a box; None if something there changes its value."""
    unit, size = _unit(text, right, box) if right and not right[0].is_line else ("", 0)
    rest = right[size:]
    if not rest:
        return unit, ""
    if size and (rest[0].kind == "number" or rest[0].text in ("^", "/")) and not rest[0].is_line:
        return None
    if rest[0].text == "(" and rest[1:] and rest[1].text == "or":
        rest = rest[1:]
    if rest[0].text in _EQUAL:
        return unit, "" if unit else _equation(text, rest[0].at)  # 5 km = 5000 m
    if rest[0].text.lower() == "or" and rest[1:]:
        return _other_form(text, unit, rest[1:])
    return None if _is_changed(rest, box) else (unit, "")


def _equation(text: str, at: int) -> str:
    """Return the rest of a formula after a box, an equation that the answer must satisfy."""
    text = text[at:]
    ends = [at for end in ("$", "\\)", "\\]", "\n", "\\\\", ". ", ", ", ";", "\\end", "\\quad", "\\text")
            if (at := text.find(end)) >= 0]  # fmt: skip
    rest = text[: min(ends, default=len(text))].replace("&", "").rstrip(" .,")
    return rest.rpartition("}")[0] if rest.count("}") > rest.count("{") else rest


def _other_form(text: str, unit: str, rest: list[Token]) -> tuple[str, str] | None:
    """Return the equation for another form, such as `or 0.5` after 1/2, which must be equal."""
    while rest and rest[0].text.lower() in _ROUGHLY:
        rest = rest[1:]
    if not rest or (rest[0].kind == "word" and not rest[0].is_math):
        return None
    form = _equation(text, rest[0].at)
    return unit, "=" + (form.rstrip(")") if form.count(")") > form.count("(") else form)


def _is_changed(rest: list[Token], box: Token) -> bool:
    """Return whether what directly follows a box or its unit changes the value."""
    first, is_edge = rest[0], rest[0].span != box.span
    if first.text in _RELATIONS or (first.is_line and not (first.is_math and _changes(first))):
        return False
    if first.kind == "word" and (first.is_worded or len(first.text) > 1):
        return _is_changed_by_words(rest, is_edge)
    if first.kind == "sign":
        return _is_changed_by_sign(rest, is_edge)
    if first.text in _CLOSING or first.kind == "box":
        return False
    is_statement = is_edge and first.is_math and _has_relation(rest, first.span)
    return not is_statement or first.text in ("\\ne", "\\neq", "\\not")


def _is_changed_by_words(rest: list[Token], is_edge: bool) -> bool:
    """Return whether words change the value: `squared`, `times 2`, `and a half`, `to 6`, but not `times as many`."""
    first, word = rest[0], rest[0].text.lower()
    if (
        word in _CHANGING
        or (len(word) == 1 and first.text not in "aIA")
        or not (first.is_apart or is_edge or first.is_math)
    ):
        return True
    joint = 1 if [token.text for token in rest[1:2]] == ["than"] else 0
    if rest[joint].text.lower() not in _JOINING or not rest[joint + 1 :]:
        return False
    other = rest[joint + 1]
    return (other.kind == "number" or other.text.lower() in _HALVED) and not other.is_line


def _is_changed_by_sign(rest: list[Token], is_edge: bool) -> bool:
    """Return whether a sign changes the value: an operator, a bracket, 5.5, 5:6, 5!, but not a full stop or `5-gon`."""
    first, is_before_number = rest[0], bool(rest[1:]) and rest[1].kind == "number"
    is_loose = is_edge or first.is_apart
    if first.text in ".,:":
        is_list = first.text == "," and first.is_math
        return is_before_number and not (is_loose if is_list else rest[1].is_apart)
    if first.text in "-–" and not first.is_math:
        return is_before_number or not is_loose
    if first.text in ("(", "["):
        is_remark = not first.is_math or (rest[1:] and rest[1].is_worded) or _has_relation(rest, first.span)
        return not (is_edge or (first.is_apart and is_remark))
    if first.text in (")", "\\}"):
        return not is_edge
    return _changes(first) or (first.text in "!]" and not is_edge and first.is_math)


def _unit(text: str, right: list[Token], box: Token) -> tuple[str, int]:
    """Return the unit directly after a box and its number of tokens; ("", 0) if there is none."""
    first, second = right[0], right[1] if len(right) > 1 else None
    if first.text == "\\%":
        return "\\%", 1
    if (first.text, second and second.text) == ("^", "\\circ") or first.text == "\\circ":
        size = 2 if first.text == "^" else 1
        scale = right[size].text[0] if len(right) > size and right[size].text in ("C", "F") else ""
        return f"^\\circ {scale}".rstrip(), size + bool(scale)
    if first.text == "(" and second and second.kind == "word":
        unit, size = _unit(text, right[1:], box)
        is_closed = bool(unit) and len(right) > size + 1 and right[size + 1].text == ")"
        return (unit, size + 2) if is_closed else ("", 0)
    if first.text in ("\\frac", "\\dfrac", "\\tfrac") and len(right) > 2:
        quotient = f"{right[1].text}/{right[2].text}"
        return (rf"\text{{ {quotient}}}", 3) if right[1].is_worded and is_measure(quotient) else ("", 0)
    scale = first.text if first.text.lower() in _SCALES else ""
    unit, size = _measured(right[1:] if scale else right)
    words = " ".join(filter(None, (scale, unit)))
    return (rf"\text{{ {words}}}", size + bool(scale)) if words else ("", 0)


def _measured(right: list[Token]) -> tuple[str, int]:
    """Return the longest run of tokens that consists of known units: `m/s^2`, `miles per hour`."""
    run, found, size = "", "", 0
    for i, token in enumerate(right[:MAX_UNIT_TOKENS]):
        is_power = token.kind == "number" and run.endswith(("^", "-"))
        is_word = token.kind == "word" and not (token.text in "AIai" and not (i and token.is_worded))
        if token.is_line or not (is_word or is_power or token.text in ("/", "^", "·", "*", "\\cdot", "-")):
            break
        following = right[i + 1] if i + 1 < len(right) else None
        is_last = following is None or following.kind != "word" or following.is_line
        if is_word and token.text.lower() in _WORDS_APART - _OPEN_UNITS and not (token.is_math and is_last):
            break
        if is_word and len(token.text) == 1 and not i and not (token.is_worded or token.text in "mgsLlh"):
            break
        gap = " " if is_word and run[-1:].isalnum() else ""
        run += gap + ("*" if token.text in ("·", "\\cdot") else token.text)
        if (is_power or (is_word and token.text not in _OPEN_UNITS)) and is_measure(run):
            found, size = run, i + 1
    return found, size
