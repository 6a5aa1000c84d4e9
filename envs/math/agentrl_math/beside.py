r"""What stands directly beside a box in its formula: a box that an operator, a sign, a bracket or a command changes is
no answer, and a unit behind it belongs to it."""
# ruff: noqa: RUF001  (models write these signs)

import unicodedata

from agentrl_math.boxes import Mark, closing_brace
from agentrl_math.measures import is_measure

MAX_BESIDE_CHARS = 400
"""How far before and behind a box its formula is followed."""


def _commands(names: str) -> frozenset[str]:
    return frozenset(names.split())


_LEADING = _commands(
    "approx approxeq simeq cong equiv in Rightarrow rightarrow implies to Longrightarrow longrightarrow therefore iff "
    "Leftrightarrow Longleftrightarrow leadsto"
)
_NEUTRAL = _commands(
    "quad qquad text textbf textit textrm textsf mbox hbox mathrm mathbf mathit mathsf boldsymbol bm bf displaystyle "
    "textstyle large Large LARGE huge Huge normalsize color textcolor underline emph bold hspace vspace item noindent "
    "centering tag label phantom smallskip medskip bigskip hfill par newline hline nonumber notag left. right. boldmath"
)
_TRAILING = _NEUTRAL | _commands("blacksquare square Box qed checkmark pmod mod bmod therefore because boxed fbox")
_CHANGING = _commands(
    "ne neq not neg lnot lt gt le leq leqslant ge geq geqslant times cdot div pm mp notin subset sqrt frac sum sout "
    "cancel ll gg nleq ngeq nless ngtr to mapsto propto"
)
_ARROWS, _SIGNS = frozenset("=≈→⇒⟹⟶∴≃≅≡∈⇔"), frozenset("+-−–^/*|%!~¬<>·")
_MONEY = {"\\$": "\\$", "€": "€", "£": "£"}
_SPACES = ("\\,", "\\;", "\\:", "\\!", "\\ ")
_GRIDS = ("matrix", "array", "cases", "tabular")
_OPENERS, _CLOSERS = ("\\(", "\\[", "$", "`"), ("\\)", "\\]", "$", "`")
_WORDS_APART = frozenset("in a i am as at us are is do da pm min bar bars per point points".split())  # noqa: SIM905
"""What is a word of a sentence behind a box, though a unit is written so."""
_CHANGING_WORDS = frozenset("squared cubed factorial times plus minus choose".split())  # noqa: SIM905


def beside(text: str, mark: Mark) -> Mark | None:
    """The mark with the unit, the price or the equation that belongs to it; None where something changes it."""
    before = text[max(0, mark.start - MAX_BESIDE_CHARS) : mark.start]
    after = text[mark.end : mark.end + MAX_BESIDE_CHARS]
    opened, bracket, inner = before.rpartition("(")
    if bracket and after.lstrip()[:1] == ")" and (not inner.strip() or _is_remark(opened, inner)):
        before, after = before if inner.strip() else opened, after.lstrip()[1:]
    price = next((sign for sign in _MONEY if before.rstrip(" $").endswith(sign) or before.endswith(sign)), "")
    if price:
        before = before.rstrip(" ").removesuffix(price)
    if not mark.content or not _is_free_before(before) or not _is_whole(before):
        return None
    belongs = "" if _is_label(mark.content, after) else _behind(after)
    if belongs is None:
        return None
    is_unit = belongs[:1] not in "=" and not belongs.startswith("\\approx")
    if is_unit and ("," in mark.content or "\\text" in mark.content or "%" in mark.content):
        belongs = ""
    return mark._replace(content=f"{price}{mark.content}{belongs}")


def _is_label(content: str, after: str) -> bool:
    """Whether a box holds the label of a choice, whose content stands behind it."""
    return content.startswith("\\text{(") and after[:1] == " " and after[1:2].isalnum()


def _is_remark(before: str, inner: str) -> bool:
    """Whether a bracket opens words, as in `(so it is \\boxed{5})`, rather than an argument."""
    first = (inner.split() or [""])[0].rstrip(":,")
    return len(first) > 1 and first.isalpha() and not before[-1:].strip()


# --- before --------------------------------------------------------------------------------------------------------


def _is_item(text: str) -> bool:
    """Whether a box opens an item of a list, `- ` or `2) $`, outside of every formula."""
    above, _, line = text.rpartition("\n")
    sign, gap, rest = line.lstrip().partition(" ")
    is_number = sign[-1:] in (".", ")") and sign[:-1].lstrip("(").isalnum() and len(sign) < 5
    if not gap or not (is_number or sign in ("-", "*", "+", "•", ">")) or rest.strip(" $*\\[("):
        return False
    pairs = (("\\[", "\\]"), ("\\(", "\\)"), ("\\begin{", "\\end{"))
    is_open = any(above.rfind(opening) > above.rfind(closing) for opening, closing in pairs)
    return not (is_open or above.count("$") % 2 or above.count("$$") % 2)


def _is_free_before(text: str) -> bool:
    """Whether what directly precedes a box leaves it as it is."""
    is_gap, is_line = False, False
    if _is_item(text):
        return True
    while text:
        bare = text.rstrip()
        is_gap, is_line = is_gap or bare != text, is_line or "\n" in text[len(bare) :]
        if (name := _command_at_end(bare)) is not None:
            if name in _LEADING:
                return not _is_denied(bare[: -len(name) - 1])
            if name not in _NEUTRAL:
                return False
            text, is_gap = bare[: -len(name) - 1], True
        elif bare.endswith((*_SPACES, "\\\\", "&", "{", "~")) and not bare.endswith(("~~", "\\{")):
            text, is_gap, is_line = bare[: -1 if bare[-1] in "&{~" else -2], True, is_line or bare.endswith("\\\\")
        elif bare.endswith("}"):
            opened = _opening_brace(bare)
            name = _command_at_end(bare[:opened]) if opened is not None else None
            return name in _NEUTRAL | {"begin"} or (is_gap if name in ("boxed", "fbox") else is_line)
        else:
            return _is_free_behind_sign(bare, is_gap, is_line)
    return True


def _is_free_behind_sign(text: str, is_gap: bool, is_line: bool) -> bool:
    sign = text[-1:]
    if text.endswith(_OPENERS):
        return _is_outside_free(text)
    if sign in _ARROWS:
        return not _is_denied(text[:-1])
    if sign in "*_":
        return text.rstrip("*_")[-1:] in ("", *" \n$.:,>") and (not is_gap or text[-2:-1] == sign)
    if sign == ">":
        return text.endswith(("->", "=>")) or (text.rpartition("<")[2][:-1].strip("/ |_").isalpha() and "<" in text)
    if sign in ".,:":  # 3:5, 3.5 and 3 : 5 are numbers, `3: 5` is not
        return not (text[:-1].rstrip()[-1:].isdigit() and is_gap == text[-2:-1].isspace())
    if sign == "!" or text.endswith(("--", "—")):
        return is_gap
    if sign in _SIGNS or sign in "([|\\" or unicodedata.category(sign) in ("Sm", "Sc"):
        return False
    if sign.isalpha() and not is_line:
        return is_gap and (text[-2:-1].isalpha() or text[-2:-1] in "'’" or text.split()[-1].lower() in ("a", "i"))
    return is_line or not (unicodedata.category(sign)[0] == "N" or sign in ")]")


def _is_outside_free(text: str) -> bool:
    """Whether the sign before an opened formula leaves it as it is."""
    bare = text.rstrip("$`\\([").rstrip(" \n*_")
    if (name := _command_at_end(bare)) is not None:
        return name not in _CHANGING
    is_minus = bare.endswith("-") and not bare.endswith("--")
    return not (is_minus or bare.endswith(tuple("¬≠<>≤≥−+^/×÷√")) or (bare[-1:] == "=" and _is_denied(bare[:-1])))


def _is_denied(text: str) -> bool:
    """Whether a relation is struck out or part of another one: `\\not=`, `!=`, `<=`."""
    bare = text.rstrip(" {")
    if bare.endswith("!") and bare[-2:-1].isdigit():  # 3! = 6
        return False
    return bare.endswith(("\\not", "!", "<", ">", "/", "¬", "~"))


def _is_whole(text: str) -> bool:
    """Whether no command takes the box as its argument, and no matrix as an entry."""
    depth, at = 0, len(text)
    while (at := max(text.rfind("{", 0, at), text.rfind("}", 0, at))) >= 0:
        if text[at - 1 : at] == "\\" and at:
            continue
        depth += 1 if text[at] == "}" else -1
        if depth < 0:
            depth, head = 0, text[:at].rstrip()
            while head.endswith("}") and (opened := _opening_brace(head)) is not None:
                head = head[:opened].rstrip()
            name = _command_at_end(head)
            if head.endswith(("^", "_")) or (name is not None and name not in _NEUTRAL | {"begin"}):
                return False
    started = text.rfind("\\begin{")
    is_open = started > text.rfind("\\end{")
    return not (is_open and any(grid in text[started : started + 20] for grid in _GRIDS))


def _command_at_end(text: str) -> str | None:
    r"""The name of the \command that a text ends with."""
    at = len(text)
    while at and len(text) - at < 24 and text[at - 1].isalpha():
        at -= 1
    return text[at:] if 0 < at < len(text) and text[at - 1] == "\\" and text[at - 2 : at] != "\\\\" else None


def _opening_brace(text: str) -> int | None:
    """Where the brace that closes a text was opened."""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        if text[at] in "{}" and text[at - 1 : at] != "\\":
            depth += 1 if text[at] == "}" else -1
            if not depth:
                return at
    return None


# --- behind --------------------------------------------------------------------------------------------------------


def _behind(text: str) -> str | None:
    """What behind a box belongs to it, "" for nothing; None where something there changes it."""
    is_gap = is_outside = is_line = False
    for _ in range(24):
        bare = text.lstrip(" \t\n")
        is_gap, is_line = is_gap or bare != text, is_line or "\n" in text[: len(text) - len(bare)]
        if not bare:
            return ""
        if bare[:2] in (*_SPACES, "\\(", "\\["):
            text, is_gap = bare[2:], True
        elif bare.startswith(_CLOSERS):
            text, is_outside = bare[2:] if bare[0] == "\\" else bare.lstrip("$`"), True
        elif bare[0] == "}":
            text = bare[1:]
        elif bare[0] in "*_" and not (is_gap or bare[1:2].isalnum() or bare[1:2] == "{"):
            text = bare.lstrip("*_")
        elif bare[0] == "~" and bare[1:2] != "~":
            text, is_gap = bare[1:], True
        else:
            return _token_behind(bare, is_gap, is_outside, is_line)
    return None


def _token_behind(text: str, is_gap: bool, is_outside: bool, is_line: bool) -> str | None:
    sign, following = text[0], text[1:2]
    if text.startswith(("\\%", "%", "°", "^\\circ", "^{\\circ}", "^°", "\\degree")):
        return "\\%" if "%" in text[:2] else "^\\circ"
    if sign == "\\":
        return _command_behind(text, is_outside)
    if sign == "=" or sign in "≈":
        return _equation(text)
    if sign in ".,:":
        near = text[1:].lstrip(" ") if sign == "," and not is_outside else text[1:]
        return None if near[:1].isdigit() else ""
    if sign == "!":
        return None if text[1:].lstrip().startswith(("$", "\\)", "\\]")) and not is_outside else ""
    if sign == "<":
        return "" if following in ("/", "|") or (following.isalpha() and ">" in text[:20]) else None
    if is_line and sign in "-–—*>#_+)]|":
        return ""
    if sign in "-–":
        return None if not is_outside or text[1:].lstrip()[:1].isdigit() else ""
    if sign == "(":
        return "" if is_gap else None
    if sign in _SIGNS or sign in ")]|&_" or unicodedata.category(sign) == "Sm":
        return "" if sign == ")" and is_outside else None
    if unicodedata.category(sign)[0] == "N":
        return "" if is_line or (is_gap and is_outside) else None
    return _words_behind(text, is_gap or is_outside, is_line) if sign.isalpha() else ""


def _command_behind(text: str, is_outside: bool) -> str | None:
    size = next((i for i, char in enumerate(text[1:25]) if not char.isalpha()), len(text[1:25]))
    name, rest = text[1 : 1 + size], text[1 + size :].lstrip()
    if name in ("approx", "simeq"):
        return _equation(text)
    if rest[:1] == "{" and name in _NEUTRAL:
        closed = closing_brace(rest, 0)
        said = rest[1:closed].strip() if closed is not None else ""
        if said.split()[:1] and said.split()[0].lower() in _CHANGING_WORDS:
            return None
        return _unit(said, rest[closed + 1 :].lstrip()) if closed is not None and is_measure(said) else ""
    if name == "end":
        return None if any(grid in rest[:20] for grid in _GRIDS) else ""
    if is_outside:
        return None if name in _CHANGING else ""
    return "" if name in _TRAILING or text[:2] == "\\\\" else None


def _unit(said: str, rest: str) -> str:
    """`\\text{ cm}^2` from its letters and what is behind them."""
    power = rest[: rest.find("}") + 1] if rest.startswith("^{") else rest[:2] if rest.startswith("^") else ""
    return rf"\text{{ {said}}}{power}"


def _equation(text: str) -> str:
    """The rest of a formula behind a box, which must be true of the answer too."""
    ends = [at for end in ("$", "\\)", "\\]", "\n", "\\\\", ". ", ", ", ";", "\\end", "\\quad", "\\text")
            if (at := text.find(end)) >= 0]  # fmt: skip
    return text[: min(ends, default=len(text))].rstrip(" .,")


def _words_behind(text: str, is_gap: bool, is_line: bool) -> str | None:
    if is_line:
        return ""
    words = [word.strip(".,;:!?)*") for word in text[:60].split("$")[0].split("\n")[0].split()[:3]]
    is_compared = words[1:2] == ["than"] and "".join(words[2:])[:1].isdigit()
    is_symbol = len(words[0]) == 1 and words[0] not in "aIAmgsLlh"
    if not is_gap or is_symbol or is_compared or words[0].lower() in _CHANGING_WORDS:
        return None
    for size in (3, 2, 1):
        said = " ".join(words[:size])
        if words[0].lower() not in _WORDS_APART and is_measure(said) and not text.lower().startswith("second "):
            return rf"\text{{ {said}}}"
    return None if len(words[0]) == 1 and words[0] not in "aIA" else ""
