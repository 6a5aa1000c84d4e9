"""Normalisation of formulas: Unicode, spacing, sizing, fonts and synonyms."""
# ruff: noqa: RUF001  (models write these signs)

import re
import unicodedata
from functools import lru_cache

from agentrl_math.boxes import boxes, closing_brace
from agentrl_math.prose import number_said

_SUPERSCRIPT = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
_SUBSCRIPT = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
_VULGAR = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5", "⅘": "4/5",
    "⅙": "1/6", "⅚": "5/6", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8", "⅐": "1/7", "⅑": "1/9", "⅒": "1/10",
}  # fmt: skip
_UNICODE = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ",
    "∙": r"\cdot ", "÷": r"\div ", "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ",
    "≈": r"\approx ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "Ø": r"\emptyset ",
    "ø": r"\emptyset ", "∶": ":",
    "°": r"^\circ ", "±": r"\pm ",
    "∓": r"\mp ", "∠": r"\angle ", "ℝ": r"\mathbb{R}", "√": r"\sqrt ", "…": r"\ldots ", "θ": r"\theta ",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "λ": r"\lambda ", "φ": r"\phi ", "ω": r"\omega ",
    "€": " euro ", "£": " gbp ", "‰": "/1000", "′": "'", "″": "''", "’": "'", "“": '"', "”": '"',
    "\u00a0": " ", "\u2009": " ",
    "\u200b": "", "\ufeff": "", "⟨": r"\langle ", "⟩": r"\rangle ", "⌊": r"\lfloor ", "⌋": r"\rfloor ",
    "⌈": r"\lceil ", "⌉": r"\rceil ", "∨": r"\lor ", "∧": r"\land ",
    "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}", "⁄": "/", "∕": "/", "•": r"\cdot ",
    "º": r"^\circ ", "。": ".", "٪": "%", "℃": r"^\circ C", "℉": r"^\circ F", "Ω": r"\Omega ", "\u2126": r"\Omega ",
    "∛": r"\sqrt[3] ", "∜": r"\sqrt[4] ", "㎡": r"\text{ m}^2", "㎥": r"\text{ m}^3", "¥": " yen ",
    "₹": " rupee ", "¢": " cent ", "\u2060": "", "\u200c": "", "\u200d": "", "ε": r"\epsilon ", "σ": r"\sigma ",
    "μ": r"\mu ",
    "µ": r"\mu ", "Δ": r"\Delta ", "δ": r"\delta ", "ρ": r"\rho ", "τ": r"\tau ", "η": r"\eta ", "ξ": r"\xi ",
    "χ": r"\chi ",
    "ψ": r"\psi ", "κ": r"\kappa ", "ν": r"\nu ", "ζ": r"\zeta ", "Σ": r"\Sigma ", "Φ": r"\Phi ", "Γ": r"\Gamma ",
    "Λ": r"\Lambda ", "Θ": r"\Theta ", "Ψ": r"\Psi ",
}  # fmt: skip
_SYNONYMS = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "leq": "le", "leqslant": "le", "geq": "ge", "geqslant": "ge",
    "neq": "ne", "lt": "<", "gt": ">", "times": "*", "cdot": "*", "ast": "*", "div": "/", "dots": "ldots",
    "cdots": "ldots", "dotsc": "ldots", "varnothing": "emptyset",
    "O": "emptyset", "lvert": "|", "rvert": "|", "vert": "|",
    "mid": "|", "lbrace": r"\{", "rbrace": r"\}", "lbrack": "[", "rbrack": "]", "bar": "overline", "dbinom": "binom",
    "tbinom": "binom", "degree": "^\\circ", "simeq": "approx", "thickapprox": "approx", "colon": ":", "land": " and",
    "wedge": " and", "lor": " or", "vee": " or", "surd": "sqrt", "nicefrac": "frac", "sfrac": "frac", "xfrac": "frac",
    "varphi": "phi", "rightarrow": "to", "lparen": "(", "rparen": ")",
}  # fmt: skip
_DROPPED = {
    "tiny", "small", "large", "Large", "LARGE", "huge", "Huge", "normalsize", "scriptstyle", "checkmark",
    "left", "right", "big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "biggl", "biggr", "Biggl", "Biggr",
    "displaystyle", "textstyle", "limits", "middle", "bf", "rm", "it", "nonumber", "boldmath", "hfill", "noindent",
    "mathopen", "mathclose",
}  # fmt: skip
_SPACES = {"quad", "qquad", "thinspace", "enspace", "space"}
_TEXTS = {"text", "textbf", "textrm", "textit", "textnormal", "textsf", "texttt", "mbox", "hbox", "mathrm", "mathit",
          "mathsf", "mathtt", "operatorname", "emph", "mathbf", "boldsymbol", "bm", "pmb"}  # fmt: skip
_FUNCTIONS = {"sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "ln",
              "log", "exp", "cis", "arccot", "min", "max", "gcd", "lcm"}  # fmt: skip
_UNIT_LETTERS, _UNIT_CAPITALS = set("mgshlL"), set("NJWVAKCFT")
_MULTIPLES = {"hundred": "10^2", "thousand": "10^3", "million": "10^6", "billion": "10^9", "trillion": "10^{12}",
              "quadrillion": "10^{15}", "quintillion": "10^{18}", "lakh": "10^5", "crore": "10^7", "dozen": "12",
              "score": "20"}  # fmt: skip
_MULTIPLE = re.compile(rf"(?<=\d)\s*(\\text\s*\{{)?\s*({'|'.join(_MULTIPLES)})s?\b", re.IGNORECASE)
_COMMAND = re.compile(r"\\([A-Za-z]+)\*?")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")


_FONT = r"\\(?:text|mathrm|mbox|textbf|textrm)"
_WRAPPERS = [(needle, re.compile(pattern), plain) for needle, pattern, plain in (
    ("\\", r"\\left\s*\.(?!\d)|\\right\s*\.", ""),
    ("\\", r"\\(?:tag|color)\*?\s*\{[^{}]*\}", " "),
    ("\\", r"\\textcolor\s*\{[^{}]*\}\s*(?=\{)|\\underline\s*(?=\{)", ""),
    ("\\over", r"\{([^{}\\]*(?:\\(?!over(?![A-Za-z]))[^{}\\]*)*)\\over(?![A-Za-z])([^{}]*)\}", r"\\frac{\1}{\2}"),
    ("\\choose",
     r"\{([^{}\\]*(?:\\(?!choose(?![A-Za-z]))[^{}\\]*)*)\\choose(?![A-Za-z])([^{}]*)\}", r"\\binom{\1}{\2}"),
    ("{", r"\{([:=])\}", r"\1"),
    ("\\",
     rf"{_FONT}\s*\{{\s*(?i:(?:the )?(?:final )?(?:answer|result|solution|value)\s*(?:is|are|:|=)?\s*:?)\s*\}}", ""),
    ("=", rf"{_FONT}\s*\{{([^{{}}]*=\s*)\}}", r"\1"),
    ("", r"^\s*([\"'])(.*)\1\s*$", r"\2"),
    (" ", rf"^\s*({_FONT}\s*\{{)?\s*(?i:option|choice)\s+(?=\(?[A-Z]\b)", r"\1"),
    (" ", r"(\\text\s*\{)?\s*(\()?\s*\b(?:about|approximately|roughly)\s+([\d.]*\d)\s*(?(2)\))\s*(?(1)\})",
     r" \\approx \3 "),
    ("+", r"^\s*\+-(?=\s*[\d\\])|\+/-", r"\\pm "),
    (".", rf"(?<=\d)\s*({_FONT}\s*\{{)?\s*([AaPp])\.\s?[mM]\.?\s*(?(1)\}})", r" \2m "),
    ("\\frac", rf"\\frac\s*\{{\s*{_FONT}\s*\{{\s*(\w+)\s*\}}\s*\}}\s*\{{\s*{_FONT}\s*\{{\s*(\w+)\s*\}}\s*"
     r"(\^\s*\{?[23]\}?)?\s*\}", r"\\text{ \1/\2}\3"),
    ("\\pmod", r"\\pmod\s*(\w)", r"\\pmod{\1}"),
    ("C", r"(?:^|(?<=[-+*/=(])|\{\s*\})\s*[_^]\s*(?:(\w)|\{\s*(\w+)\s*\})\s*C\s*_\s*(?:(\w)|\{\s*(\w+)\s*\})",
     r"\\binom{\1\2}{\3\4}"),
    ("per cent", r"\bper cent\b", "percent"),
    ("\\big", r"\\big(cup|cap)(?![A-Za-z])(?!\s*_)", r"\\\1 "),
    ("\\pounds", r"\\pounds(?![a-z])", " gbp "),
    ("\\prime", r"\^\s*\{?\s*\\prime\s*\\prime(?![a-z])\s*\}?", "''"),
    ("\\prime", r"\^\s*\{?\s*\\prime(?![a-z])\s*\}?", "'"),
    ("\\", r"\\(?:hat|vec|widehat)\s*\{\s*\\(?:mathbf|boldsymbol|textbf)\s*\{\s*\\?([ijk])(?:math)?\s*\}\s*\}", r"\1 "),
    ("\\", r"\\(?:hat|vec|widehat)\s*\{\s*\\?([ijk])(?:math)?\s*\}", r"\1 "),
    ("\\", rf"(?<=[\d ,~])({_FONT}\s*\{{[^{{}}]*)\}}\s*(\\cdot|/|\*)\s*{_FONT}\s*\{{", r"\1 \2 "),
)]  # fmt: skip
"""(substring that must occur for the pattern to be tried, pattern, replacement)"""
_NUMBER_TWICE = re.compile(r"\b(\d{1,2})\s*\(([a-z]+(?:-[a-z]+)?)\)\s*$")


def clean(text: str) -> str:
    r"""Normalise a formula: ASCII, few commands, fonts as \text{...}, no delimiters; the meaning stays the same."""
    text = " ".join(_ascii(text).split())
    text = _unboxed(text).replace("...", r"\ldots ")
    for needle, wrapper, plain in _WRAPPERS:
        if needle in text:
            text = wrapper.sub(plain, text)
    text = _NUMBER_TWICE.sub(_number_once, text)
    text = re.sub(r"(?<=\d)\s*(?:(?:\\!|\{\s*,\s*\}|,\s*\\!)\s*)+,?\s*(?=\d{3})", "\u0001", text)
    text = re.sub(r"(?<=\d)\\[,: ](?=\d{3}(?!\d))", "\u0001", text).replace("\u0001", "")
    text = _COMMAND.sub(_command, text)
    text = re.sub(r"\\hspace\{[^{}]*\}|\\phantom\{[^{}]*\}|\\!|\\label\{[^{}]*\}", "", text)
    text = re.sub(r"(?<!\\)\\[,;:> ]|~|&(?=\s*=)", " ", text)
    text = re.sub(r"(?<!\\)\\[()[\]]|(?<!\\)\$\$", " ", text)
    text = " ".join(_dollars(text).split())
    text = re.sub(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-z]))", "^\\\\circ ", text)
    text = re.sub(r"(?<=[\w)])\*\*(?=[\w(-])", "^", text).replace("**", "").replace("`", "")
    text = re.sub(r"(?<=\d)\s*[xX]\s*(?=10\s*\^)", " * ", text.replace("\\%", "%"))
    text = _MULTIPLE.sub(lambda m: f"*{_MULTIPLES[m.group(2).lower()]} {m.group(1) or ''}", text)
    text = _TEXT.sub(_plain_text, text)
    return re.sub(r"\s+", " ", text).strip().rstrip(".,;:\\").strip()


def _number_once(match: re.Match[str]) -> str:
    """Reduce `5 (five)` to 5."""
    return match.group(1) if number_said(match.group(2)) == int(match.group(1)) else match.group()


def _ascii(text: str) -> str:
    text = re.sub(rf"(\d?)([{''.join(_VULGAR)}])", _vulgar, text)
    text = re.sub(
        f"[{''.join(_SUPERSCRIPT)}]+", lambda m: "^{" + "".join(_SUPERSCRIPT[c] for c in m.group()) + "}", text
    )
    text = re.sub(f"[{''.join(_SUBSCRIPT)}]+", lambda m: "_{" + "".join(_SUBSCRIPT[c] for c in m.group()) + "}", text)
    text = "".join(_UNICODE.get(char, char) for char in text)
    return unicodedata.normalize("NFKC", text)


def _vulgar(match: re.Match[str]) -> str:
    numerator, denominator = _VULGAR[match.group(2)].split("/")
    return f"{match.group(1)}\\frac{{{numerator}}}{{{denominator}}}"


def _unboxed(text: str) -> str:
    for _ in range(8):
        found = boxes(text)
        if not found or found[-1].content is None:
            return text
        box = found[-1]
        text = f"{text[: box.start]} {box.content} {text[box.end :]}"
    return text


def _command(match: re.Match[str]) -> str:
    name = match.group(1)
    if name in _DROPPED:
        return ""
    if name in _SPACES:
        return " "
    if name in _TEXTS:
        return "\\text"
    if name not in _SYNONYMS:
        return match.group()
    word = _SYNONYMS[name]
    return f"\\{word} " if word[0].isalpha() else f" {word} "


def _dollars(text: str) -> str:
    r"""Remove formula delimiters; the sign of a price becomes `\$`."""
    if text.count("$") - text.count("\\$") == 1 and re.match(r"-?(?:(?:US|CA|A) ?)?\$\s?[\d.]", text):
        return text.replace("$", "\\$")
    return re.sub(r"(?<!\\)\$", " ", text)


def _plain_text(match: re.Match[str]) -> str:
    r"""Unwrap a function, a letter, a number, "and" and "or" from \text; keep other words."""
    inner = match.group(1)
    word = inner.strip()
    before = match.string[max(match.start() - 20, 0) : match.start()]
    follows_number = bool(re.search(r"[\d)}]\s*$", before))
    if word in _FUNCTIONS and not (word == "min" and follows_number):
        return f"\\{word} "
    if word.lower() in ("and", "or", ", and", ", or", ",and"):
        return f" {word.strip(', ').lower()} "
    is_apart = word in _UNIT_CAPITALS and (inner[0] == " " or before[-1:] == " ")
    if (word in _UNIT_LETTERS or is_apart) and follows_number:
        return f"\\text{{{word}}}"
    if re.fullmatch(r"[A-Za-z]|[-+]?[\d.,/]+|", word):
        return word + " "
    return f"\\text{{{inner}}}"


@lru_cache(maxsize=2048)
def squeeze(text: str) -> str:
    """Clean a text and remove redundant spaces: the form in which opaque answers are compared."""
    text = _TEXT.sub(r"\1", clean(text))
    return re.sub(r"(?<![A-Za-z0-9]) +| +(?![A-Za-z0-9])", "", text).strip()


@lru_cache(maxsize=2048)
def words(text: str) -> str:
    r"""Remove case, spaces, punctuation and \text: the form in which words are compared."""
    bare = re.sub(r"\\[A-Za-z]+", lambda m: m.group()[1:], _TEXT.sub(r"\1", clean(text)))
    return re.sub(r"[\W_]+", "", bare.casefold())


def is_balanced(text: str) -> bool:
    """Return whether the braces match."""
    depth = 0
    for match in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if depth < 0:
            return False
    return depth == 0


def is_broken(text: str) -> bool:
    """Return whether a cleaned text is a fragment of a formula or a sentence with numbers, not unknown notation."""
    opened, closed = (len(re.findall(brackets, text)) for brackets in (r"[(\[]", r"[)\]]"))
    words = re.findall(r"(?<![\\A-Za-z])[A-Za-z]{2,}", _TEXT.sub(r"\1", text))
    is_prose = len(words) > 2 and bool(re.search(r"\d", text))
    return opened != closed or is_prose or bool(re.search(r"[A-Za-z}]\s*\{\s*\}|[-+*/^_=<>]$", text))


def group_at(text: str, start: int) -> tuple[str, int] | None:
    """Return the content of the {...} at `start` and the position after it, or None."""
    if text[start : start + 1] != "{":
        return None
    end = closing_brace(text, start)
    return None if end is None else (text[start + 1 : end], end + 1)
