r"""The text around a box as a flat row of tokens; formulas, fonts, environments and tags become flags of tokens."""
# ruff: noqa: RUF001, SIM905  (models write these signs; lists of words)

import unicodedata
from dataclasses import dataclass, field

from agentrl_math.boxes import Mark, closing_brace

MAX_BESIDE_CHARS = 400
"""How many characters before and after a box are read."""
WORD_FONTS = frozenset("text textbf textit textrm textsf texttt mbox hbox mathrm mathsf".split())
"""Fonts that contain words rather than a formula."""
FONTS = WORD_FONTS | frozenset(
    "mathbf mathit boldsymbol bm underline emph bold colorbox fcolorbox textcolor color".split()
)
_LAYOUT = frozenset(
    "quad qquad bf rm it displaystyle textstyle large Large LARGE huge Huge normalsize boldmath left right bigl bigr "
    "big Big hspace vspace item noindent centering phantom smallskip medskip bigskip hfill hline nonumber notag tag "
    "label par newline begin end limits".split()
)
_LINES = frozenset("par newline item begin end hline".split())
_ARGUMENTS = {"color": 1, "textcolor": 1, "colorbox": 1, "fcolorbox": 2, "hspace": 1, "vspace": 1, "tag": 1,
              "label": 1, "phantom": 1, "begin": 1, "end": 1, "stackrel": 2, "overset": 2}  # fmt: skip
_UNSET = ("itemize", "enumerate", "center", "tabular", "document", "table", "quote")
_JOINED = ("~~", "<=", ">=", "!=", "/=", "-->", "==>", "->", "=>", "--")
_SAME = {"°": "\\circ", "\\degree": "\\circ", "%": "\\%", "²": "2", "³": "3", "—": "--", "−": "-"}
_BOX = "\\boxed{}"
_STRUCK = ("del", "s", "strike")


@dataclass(frozen=True)
class Token:
    r"""A word, a number, a sign or a \command, with its position and what separates it from the previous token.

    `span` counts the formulas entered or left before it; `is_worded`: outside of formulas, or in words within one.
    """

    text: str
    at: int
    span: int
    is_apart: bool
    is_line: bool
    is_math: bool
    is_worded: bool

    @property
    def kind(self) -> str:
        """One of box, command, number, word and sign."""
        if self.text[0] == "\\":
            return "box" if self.text.endswith("}") else "command" if self.text[1:2].isalpha() else "sign"
        is_number = unicodedata.category(self.text[0])[0] == "N"
        return "number" if is_number else "word" if self.text[0].isalpha() else "sign"


@dataclass
class Row:
    """The tokens around a mark, which is the token at `index`, and the commands of which it is an argument."""

    text: str
    start: int
    end: int
    tokens: list[Token] = field(default_factory=list)
    index: int = 0
    holders: tuple[str, ...] = ()
    opened: list[str] = field(default_factory=list)
    environments: list[str] = field(default_factory=list)
    math: str = ""
    last: str = ""
    span: int = 0
    is_apart: bool = False
    is_line: bool = True

    def step(self, at: int) -> int:
        """Read the element at this position; return where the next one starts."""
        char, text = self.text[at], self.text
        if at == self.start:
            self.index, self.holders = len(self.tokens), (*self.opened, *self.environments)
            return self._token(_BOX, at, self.end)
        if char == "\\":
            return self._command(at)
        if char.isspace():
            return self._gap(at)
        if char in "{}":
            return self._brace(at)
        if char in "$`":
            return self._dollar(at)
        if char == "&" or (char == "~" and text[at + 1 : at + 2] != "~") or (char in "#|" and self._is_cell(at)):
            self.is_apart, self.is_line = True, self.is_line or char != "~"
            return at + 1
        if (
            char == "<"
            and (end := text.find(">", at, at + 24)) > 0
            and (text[at + 1].isalpha() or text[at + 1] in "/|")
        ):
            return self._tag(at, end + 1)
        if char in "*_" and not self.math and (end := _emphasis_end(text, at)):
            return end
        end = at + _size(text, at)
        if char in "°²³" and self.last != "^":
            self._token("^", at, at)
        return self._token(text[at:end], at, end)

    def _token(self, text: str, at: int, end: int) -> int:
        text = _SAME.get(text, text)
        is_worded = not self.math or not WORD_FONTS.isdisjoint(self.opened)
        self.tokens.append(Token(text, at, self.span, self.is_apart, self.is_line, bool(self.math), is_worded))
        self.is_apart = self.is_line = False
        self.last = text
        return end

    def _gap(self, at: int) -> int:
        end = at
        while self.text[end : end + 1].isspace():
            end += 1
        lines = self.text.count("\n", at, end)
        self.math = "" if lines > 1 and self.math == "$" else self.math
        self.is_apart, self.is_line = True, self.is_line or (lines > 0 and not self.math)
        return end

    def _brace(self, at: int) -> int:
        if self.text[at] == "{":
            self.opened.append(self.last.removeprefix("\\") if self.last[:1] in ("\\", "^", "_") else "")
            self.last = ""
        elif self.opened:
            self.last = "\\" + self.opened.pop()
        return at + 1

    def _dollar(self, at: int) -> int:
        size = 2 if self.text.startswith("$$", at) else 1
        if self.text[at] == "$" and self.math in ("", "$"):
            closed = -1 if self.math else self.text.find("$", at + size)
            if not self.math and (closed < 0 or "\n\n" in self.text[at:closed]) and size == 1:
                return at + 1  # a price
            self.math = "" if self.math else "$"
        self.span += 1
        return at + size

    def _tag(self, at: int, end: int) -> int:
        if self.text[at + 1 : end - 1] in _STRUCK:
            return self._token("~~", at, end)
        self.is_apart = True
        return end

    def _is_cell(self, at: int) -> bool:
        """Return whether this | separates the cells of a table, or this # opens a heading."""
        line = self.text[self.text.rfind("\n", 0, at) + 1 : at + 1].lstrip(" >-*#")
        return not self.math and line.startswith("|" if self.text[at] == "|" else ("", "#"))

    def _command(self, at: int) -> int:
        text, size = self.text, 1
        while size < 24 and text[at + size : at + size + 1].isalpha():
            size += 1
        name, end = text[at + 1 : at + size], at + max(size, 2)
        if not name:
            return self._escaped(at, text[at + 1 : at + 2])
        if name in ("boxed", "fbox", "framebox") and text[end : end + 1] == "{":
            end = (closing_brace(text, end) or end) + 1
            return self._token(text[at:end], at, end)
        first = end
        for _ in range(_ARGUMENTS.get(name, 0)):
            end = (closing_brace(text, end) or end - 1) + 1 if text[end : end + 1] == "{" else end
        if name not in _LAYOUT | FONTS:
            return self._token(f"\\{name}", at, end)
        if name in ("begin", "end"):
            end = self._environment(name, text[first + 1 : end - 1], end)
        end += name in ("left", "right") and text[end : end + 1] == "."
        self.last, self.is_line = "\\" + name if name in FONTS else "", self.is_line or name in _LINES
        self.is_apart = self.is_apart or name in _LAYOUT - {"left", "right"}
        return end

    def _escaped(self, at: int, sign: str) -> int:
        if sign in "()[]" and sign:
            self.math, self.span = "[" if sign in "([" else "", self.span + 1
        elif sign in ",;:! \\":
            self.is_apart, self.is_line = True, self.is_line or sign == "\\"
        else:
            return self._token("\\" + sign, at, at + 2)
        return at + 2

    def _environment(self, name: str, argument: str, end: int) -> int:
        """Enter or leave an environment; a matrix, or an array in brackets, is a holder of its content."""
        if name == "end":
            self.environments[-1:] = []
            self.math = "" if self.math == "e" else self.math
            return end
        is_bracketed = bool(self.tokens) and self.tokens[-1].text in ("(", "[", "|", "\\{") and "array" in argument
        self.environments.append("matrix" if "matrix" in argument or is_bracketed else "")
        self.math = self.math or ("" if argument.startswith(_UNSET) else "e")
        is_spaced = argument.startswith(("array", "tabular", "alignat")) and self.text[end : end + 1] == "{"
        return (closing_brace(self.text, end) or end - 1) + 1 if is_spaced else end


def row_around(text: str, mark: Mark) -> Row:
    """Return the row of tokens around a mark."""
    first = max(0, mark.start - MAX_BESIDE_CHARS)
    if first:
        first = max(text.find("\n", first, mark.start), first)
    before, after = text[first : mark.start], text[mark.end : mark.end + MAX_BESIDE_CHARS]
    row = Row(f"{before}{_BOX}{after}", len(before), len(before) + len(_BOX))
    at = 0
    while at < len(row.text):
        at = row.step(at)
    return row


def _size(text: str, at: int) -> int:
    """Return the length of the word, number or sign at this position."""
    end = at + 1
    if text[at].isalpha():
        while text[end : end + 1].isalpha() or (
            text[end : end + 1] in ("'", "’") and text[end + 1 : end + 2].isalpha()
        ):
            end += 1
    elif text[at].isdecimal():
        while text[end : end + 1].isdecimal() or (
            text[end : end + 1] in (".", ",") and text[end + 1 : end + 2].isdecimal()
        ):
            end += 1
    else:
        end = at + len(next((sign for sign in _JOINED if text.startswith(sign, at)), text[at]))
    return end - at


def _emphasis_end(text: str, at: int) -> int:
    """Return the end of a run of * or _ that opens or closes emphasis; 0 for an operator."""
    end = at
    while text[end : end + 1] == text[at]:
        end += 1
    before, after = text[at - 1 : at] if at else "", text[end : end + 1]
    opens = before in ("", *" \n$.:,>(|") and after not in ("", *" \n")
    closes = after in ("", *" \n$.:,;!?)|") and before not in ("", *" \n")
    return end if opens or closes else 0
