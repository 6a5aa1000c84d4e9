"""A cleaned answer becomes a structure: number, text, list, set, tuple or interval, union, matrix, relation."""
# ruff: noqa: ARG001  (every reader takes the same arguments)

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product

from agentrl_math import expr, phrases
from agentrl_math.brackets import closes_last, in_one_notation, split
from agentrl_math.expr import Node, ParseError
from agentrl_math.latex import clean, words
from agentrl_math.limits import MAX_ANSWER_CHARS, MAX_DEPTH, MAX_ITEMS, LimitError
from agentrl_math.numerals import ungrouped, without_commas
from agentrl_math.prose import is_formula
from agentrl_math.units import in_parts, split_unit


@dataclass(frozen=True)
class Scalar:
    """One expression, its unit ("" for none) and the text it came from."""

    node: Node
    unit: str = ""
    text: str = ""


@dataclass(frozen=True)
class Based:
    """A numeral with its base: digits are compared, not values."""

    digits: str
    base: str


@dataclass(frozen=True)
class Words:
    """An answer in words, as written."""

    text: str


@dataclass(frozen=True)
class Opaque:
    """A formula outside the grammar, by its cleaned text."""

    text: str


@dataclass(frozen=True)
class Items:
    """Several answers; `kind` is list, set, and, a pair of brackets such as "(]", or ":" for a ratio or time."""

    kind: str
    members: tuple["Answer", ...]


@dataclass(frozen=True)
class Union:
    """Sets joined by \\cup or "or"."""

    members: tuple["Answer", ...]


@dataclass(frozen=True)
class Combined:
    """The first set cut down by the others: `cap` keeps what is in all of them, `minus` what is in none."""

    op: str
    members: tuple["Answer", ...]


@dataclass(frozen=True)
class Matrix:
    """Rows of answers."""

    rows: tuple[tuple["Answer", ...], ...]


@dataclass(frozen=True)
class Relation:
    """sides[0] ops[0] sides[1] ops[1] …"""

    ops: tuple[str, ...]
    sides: tuple["Answer", ...]
    texts: tuple[str, ...]


Answer = Scalar | Based | Words | Opaque | Items | Union | Combined | Matrix | Relation

_MATRIX = re.compile(
    r"^\\begin\s*\{([pbBvV]?matrix|smallmatrix|array|cases|aligned|gathered)\}\s*(?:\{[^{}]*\})?(.*)\\end\s*\{\1\}$",
    re.DOTALL,
)
_BASED = re.compile(
    r"^(?P<open>\()?(?P<digits>-?[0-9A-Za-z]+(?:\.[0-9A-Za-z]+)?)(?(open)\))\s*"
    r"(?:_\s*(?:\{\s*(?P<group>[^{}]*(?:\{[^{}]*\}[^{}]*)?)\s*\}|(?P<plain>\d+|[a-z]+))"
    r"|\(\s*base\s*(?P<said>\w+)\s*\)|(?:\\text\s*\{\s*)?base\s*(?:\})?\s*(?P<word>\w+)\s*\}?)$"
)
_BASE_NAME = re.compile(r"(?:\\text\s*\{)?\s*\(?\s*(?:base\s*)?\s*\}?\s*(\w+)\s*\)?\s*\}?")
_BASE_WORDS = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8",
               "nine": "9", "ten": "10", "twelve": "12", "sixteen": "16", "bin": "2", "hex": "16"}  # fmt: skip
_CHOICE = re.compile(r"^\(?\s*([A-Z])\s*\)?$|^\\text\s*\{\s*\(?\s*([A-Za-z])\s*\)?\s*[.:]?\s*\}$")
_LABELLED = re.compile(r"^(?:\(\s*([A-Z])\s*\)|\\text\s*\{\s*\(?([A-Z])\s*[).:]\s*\}|([A-Z])\s*[).:])\s*(?=\S)(.+)$")
_JOINED = re.compile(r"[,;/|]|(?:and|or)\b|\\(?:cup|cap|lor|text\s*\{\s*(?:or|and)\b)")
"""What makes of `(A) or 7` two answers, rather than a label and its content."""
_WORDY = re.compile(r"^[A-Za-z][A-Za-z' ,.\-]*$")
_RELATION = re.compile(r"\\(?:le|ge|ne|approx|equiv|in|to|sim|subset|subseteq|notin)(?![A-Za-z])|<=|>=|!=|[=<>:]")
_SEPARATOR = re.compile(
    r",|;|\\text\s*\{\s*,?\s*(?:and|or)\s*\}"
    r"|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])"
)
_COMMA = re.compile("[,;]")
_WHOLE = re.compile(r"-?\d{1,9}")
_CUP = re.compile(r"\\cup(?![A-Za-z])|(?<=[)\]}])\s*[uU]\s*(?=[(\[\\])")
_CAP = re.compile(r"\\cap(?![A-Za-z])")
_BUILDER = re.compile(r"^\\\{\s*([a-z])(?:\s*\\in\s*\\mathbb\{R\})?\s*[|:]\s*(.*\1.*)\\\}$")
_FONT = re.compile(r"\\text\s*\{([^{}]*)\}")
_EXCEPT = re.compile(
    r"(?i:(?:x is )?(?:all|any) (?:reals?|real numbers?)(?: [a-z])?,? except(?: for)?) (?:[a-z]\s*=\s*)?(.+)"
)
_REAL_MEMBER = re.compile(
    r"^\s*[a-z]\s*\\in\s*\\mathbb\s*\{?\s*R\s*\}?\s*(?:,|and)|(?:,|and)\s*[a-z]\s*\\in\s*\\mathbb\s*\{?\s*R\s*\}?\s*$"
)
_HALF_LINE = re.compile(r"\\mathbb\s*\{?\s*R\s*\}?\s*\^\s*\{?\s*([-+])\s*\}?")
ZERO = Scalar(expr.ZERO)
_LINE = Items("()", (Scalar(Node("neg", (Node("inf"),))), Scalar(Node("inf"))))
_SETMINUS = re.compile(r"\\(?:setminus|backslash)(?![A-Za-z])|\\\\(?=\s*\\\{)|(?<=\})\s*-\s*(?=\\\{)")
_EMPTY = Items("set", ())
_TO = re.compile(r"(-?[\d.]+)\s*(?:to|\\text\s*\{\s*to\s*\})\s*(-?[\d.]+)")
_TRANSPOSE = re.compile(r"\^\s*(?:T|\{\s*(?:T|\\text\s*\{\s*T\s*\})\s*\}|\{?\s*\\(?:top|intercal)\s*\}?)$")
_COMMA_PAIR = re.compile(r"(-?\d+),(\d+)\s*;\s*(-?\d+),(\d+)")
MAX_GROWTH = 2
"""How many times as long an answer may become by writing ½ as \\frac{1}{2}."""
MAX_PHRASE_CHARS = 120
MAX_ROWS = 4
"""The largest determinant that is expanded."""
MAX_SIGNS = 4
"""The most \\pm of one formula, each of which may be either sign."""


@lru_cache(maxsize=512)
def readings(text: str) -> tuple[Answer, ...]:
    """The structures a raw answer can be read as: one, or two where commas may group thousands or part items."""
    if len(text) > MAX_ANSWER_CHARS:
        raise LimitError(f"longer than {MAX_ANSWER_CHARS} characters")
    cleaned = clean(text)
    if len(cleaned) > MAX_GROWTH * MAX_ANSWER_CHARS:
        raise LimitError("too many signs that stand for formulas")
    cleaned = ungrouped(in_one_notation(cleaned))
    joined = without_commas(cleaned)
    return (read(cleaned),) if joined == cleaned else (read(joined), read(cleaned))


def read(text: str, depth: int = 0) -> Answer:
    """The structure of a cleaned answer; Words or Opaque where it is no formula of ours."""
    if depth > MAX_DEPTH:
        raise LimitError("nested too deeply")
    text = text.strip()
    for reader in _READERS:
        answer = reader(text, depth + 1)
        if answer is not None:
            return answer
    return _scalar(text)


def _special(text: str, depth: int) -> Answer | None:
    if half := _HALF_LINE.fullmatch(text):
        return Items("()", (ZERO, _LINE.members[1]) if half.group(1) == "+" else (_LINE.members[0], ZERO))
    if re.fullmatch(r"\\?\{\s*\\?\}", text):
        return _EMPTY
    if len(text) > MAX_PHRASE_CHARS or re.search(r"[-+*/^_()\[\]|<>=]|\\[{}]", text):
        return None
    return _meant(phrases.meaning(words(text)))


def _meant(meaning: str) -> Answer | None:
    if meaning in ("-", "+"):
        return _LINE.members[meaning == "+"]
    if meaning in ("empty", "reals"):
        return _EMPTY if meaning == "empty" else _LINE
    return Words(meaning) if meaning else None


def _quantity(text: str, depth: int) -> Answer | None:
    r"""`45^\circ 30'` and `1 hour 30 minutes` are one number in the first unit."""
    if len(text) > MAX_PHRASE_CHARS or not (text[-1:].isalpha() or text[-1:] in "'\"}."):
        return None
    found = in_parts(text)
    return Scalar(Node("num", value=found[0]), found[1], text) if found else None


def _choice(text: str, depth: int) -> Answer | None:
    found = _CHOICE.match(text)
    if found and (text[0] in "(\\" or text[-1] == ")"):
        return Words((found.group(1) or found.group(2)).casefold())
    return None


def _wordy(text: str, depth: int) -> Answer | None:
    inner = re.fullmatch(r"\\text\s*\{([^{}]*)\}", text)
    if inner and (re.search(r"\d", inner.group(1)) or (is_formula(inner.group(1)) and words(inner.group(1)))):
        return read(inner.group(1), depth)
    if inner:
        return Words(text) if not _SEPARATOR.search(inner.group(1)) else _several(inner.group(1), depth)
    if _WORDY.match(text) and not is_formula(text):
        return None if _SEPARATOR.search(text) else Words(text)
    return None


def _plus_minus(text: str, depth: int) -> Answer | None:
    r"""1 \pm x is the two answers 1 + x and 1 - x, as one list; two \pm are four answers, \pm and \mp are two."""
    signs = _SIGNS.findall(text)
    if not signs or split(text, _SEPARATOR)[1:]:
        return None
    if _is_bracketed(text) and text[:2] not in ("(\\", "(-") and not re.match(r"\([^()]*,", text):
        return None
    free = signs.count("\\pm")
    if free > MAX_SIGNS or (free > 1 and free < len(signs)):
        return Opaque(text)
    choices = list(product("+-", repeat=free)) if free > 1 else [("+",) * len(signs), ("-",) * len(signs)]
    return Items("list", tuple(read(_signed(text, choice), depth) for choice in choices))


_SIGNS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])")


def _is_bracketed(text: str) -> bool:
    return text.startswith(("(", "[", "{", "\\{", "\\begin")) and closes_last(text)


def _signed(text: str, choice: tuple[str, ...]) -> str:
    """The text with these signs for its \\pm, and the opposite ones for its \\mp."""
    signs = iter(choice)

    def sign(found: re.Match[str]) -> str:
        chosen = next(signs)
        return chosen if found.group() == "\\pm" else {"+": "-", "-": "+"}[chosen]

    return _SIGNS.sub(sign, text)


def _combined(text: str, depth: int) -> Answer | None:
    r"""\mathbb{R} \setminus \{2\}, [1,3] \cap [2,4] and `all real numbers except 2`."""
    for op, pattern in (("minus", _SETMINUS), ("cap", _CAP)):
        parts = [part for part, _ in split(text, pattern)]
        if len(parts) < 2:
            continue
        members = tuple(read(part, depth) for part in parts)
        return Combined(op, members) if all(isinstance(m, Items | Union | Combined) for m in members) else Opaque(text)
    return None


def _excepted(text: str, depth: int) -> Answer | None:
    """`all real numbers except 2 and 3`."""
    found = _EXCEPT.fullmatch(" ".join(_FONT.sub(r" \1 ", text).split())) if "except" in text else None
    if not found:
        return None
    holes = read(found.group(1), depth)
    values = holes.members if isinstance(holes, Items) and holes.kind == "list" else (holes,)
    return Combined("minus", (_LINE, Items("set", values)))


def _angled(text: str, depth: int) -> Answer | None:
    """<1,2> is a vector."""
    is_vector = text[:1] == "<" and text[-1:] == ">" and "," in text and not re.search("[<>=]", text[1:-1])
    return read(f"({text[1:-1]})", depth) if is_vector else None


def _transposed(text: str, depth: int) -> Answer | None:
    r"""(1,2)^T is a column."""
    found = _TRANSPOSE.search(text, max(len(text) - 40, 0))
    inner = read(text[: found.start()], depth) if found and text[:1] in "([\\" else None
    if isinstance(inner, Matrix) and len({len(row) for row in inner.rows}) == 1:
        return Matrix(tuple(zip(*inner.rows, strict=True)))
    is_row = isinstance(inner, Items) and inner.kind in ("()", "[]")
    return Matrix(tuple((member,) for member in inner.members)) if is_row and isinstance(inner, Items) else None


def _several(text: str, depth: int) -> Answer | None:
    parts = _filled([part for part in (part.strip() for part, _ in split(text, _SEPARATOR)) if part])
    if len(parts) < 2:
        return None
    if len(parts) > MAX_ITEMS:
        raise LimitError(f"more than {MAX_ITEMS} answers")
    members = _flat(tuple(read(part, depth) for part in parts))
    joints = set(re.findall("and|or", " ".join(joint for _, joint in split(text, _SEPARATOR))))
    return _joined(members, joints) or _shared_name(members)


def _filled(parts: list[str]) -> list[str]:
    r"""1, 2, \ldots, 10 with all ten; other parts as they are."""
    numbers = [part for part in parts if part != "\\ldots"]
    if "\\ldots" not in parts[1:-1] or len(numbers) + 1 < len(parts) or not all(map(_WHOLE.fullmatch, numbers)):
        return parts
    at = parts.index("\\ldots")
    before, after = [int(part) for part in parts[:at]], parts[at + 1 :]
    steps = {b - a for a, b in pairwise(before)} or {1}
    step = steps.pop()
    if steps or len(after) != 1 or step == 0 or (int(after[0]) - before[-1]) % step:
        return parts
    rest = range(before[-1] + step, int(after[0]) + (1 if step > 0 else -1), step)
    return [*parts[:at], *map(str, rest)] if 0 < len(rest) <= MAX_ITEMS else parts


def _joined(members: tuple[Answer, ...], joints: set[str]) -> Answer | None:
    """`x<1 or x>2` as a union, `x>1 and x<2` and `x>0, x \\ne 1` as conditions that all hold."""
    ops = {op for member in members if isinstance(member, Relation) for op in member.ops}
    if len(joints) > 1 or not ops & _ORDERS or not all(isinstance(member, Relation) for member in members):
        return None
    if joints == {"or"}:
        return Union(members) if ops <= _ORDERS | {"="} else None
    is_and = ops <= _ORDERS | {"!="} and (joints or "!=" in ops)
    return Items("and", members) if is_and else None


def _flat(members: tuple[Answer, ...]) -> tuple[Answer, ...]:
    flat: list[Answer] = []
    for member in members:
        flat.extend(member.members if isinstance(member, Items) and member.kind == "list" else [member])
    if len(flat) > MAX_ITEMS:
        raise LimitError(f"more than {MAX_ITEMS} answers")
    return tuple(flat)


def _shared_name(members: tuple[Answer, ...]) -> Answer:
    """`x=1, 2` and `x=1 or x=2` list the values of x; `x<1 or x>2` is a union."""
    first = members[0]
    if not isinstance(first, Relation) or first.ops not in (("=",), ("!=",)):
        return Items("list", members)
    if not any(isinstance(m, Relation) for m in members[1:]):
        return Relation(
            first.ops, (first.sides[0], Items("list", (first.sides[1], *members[1:]))), (first.texts[0], "")
        )
    alike = [m for m in members if isinstance(m, Relation) and (m.ops, m.texts[0]) == (first.ops, first.texts[0])]
    if len(alike) < len(members):
        return Items("list", members)
    return Relation(
        first.ops, (first.sides[0], Items("list", _flat(tuple(m.sides[1] for m in alike)))), (first.texts[0], "")
    )


def _related(text: str, depth: int) -> Answer | None:
    if ratio := _TO.fullmatch(text):
        return Items(":", (read(ratio.group(1), depth), read(ratio.group(2), depth)))
    pieces = split(text, _RELATION)
    if len(pieces) < 2:
        return None
    texts = tuple(piece.strip() for piece, _ in pieces)
    ops = tuple(_OPS.get(op, op) for _, op in pieces[:-1])
    if set(ops) == {":"}:
        return Items(":", tuple(read(piece, depth) for piece in texts)) if all(texts) else Opaque(text)
    if ops in (("~",), ("=",)) and not texts[0]:
        return read(texts[1], depth)
    if not all(texts) or ":" in ops:
        return Opaque(text)
    return Relation(ops, tuple(read(piece, depth) for piece in texts), texts)


_ORDERS = {"<", ">", "<=", ">="}
_OPS = {"\\le": "<=", "\\ge": ">=", "\\ne": "!=", "\\approx": "~", "\\in": "in", "\\sim": "~", "\\equiv": "=="}


def _united(text: str, depth: int) -> Answer | None:
    parts = split(text, _CUP)
    return Union(tuple(read(part, depth) for part, _ in parts)) if len(parts) > 1 else None


def _bracketed(text: str, depth: int) -> Answer | None:
    if text.startswith("\\{") and text.endswith("\\}") and closes_last(text):
        if built := _BUILDER.match(text):
            return read(_REAL_MEMBER.sub("", built.group(2)), depth)
        inner = read(text[2:-2], depth)
        return Items("set", inner.members if isinstance(inner, Items) and inner.kind == "list" else (inner,))
    if text.startswith("{") and text.endswith("}") and closes_last(text):
        inner = read(text[1:-1], depth)
        return Items("set", inner.members) if isinstance(inner, Items) and inner.kind == "list" else inner
    if text.startswith("\\langle") and text.endswith("\\rangle"):
        return read(f"({text[7:-7]})", depth)
    if text[:1] not in ("(", "[") or text[-1:] not in (")", "]") or not closes_last(text):
        return None
    inside = text[1:-1].strip()
    if ";" in inside and (pair := _COMMA_PAIR.fullmatch(inside)):
        inside = "{}.{};{}.{}".format(*pair.groups())
    parts = [part.strip() for part, _ in split(inside, _COMMA)]
    if len(parts) == 1:
        is_plain = text[0] + text[-1] == "()" or parts[0].startswith("\\begin")
        return read(parts[0], depth) if is_plain and parts[0] else None
    if len(parts) > MAX_ITEMS:
        raise LimitError(f"more than {MAX_ITEMS} answers")
    members = tuple(read(part, depth) for part in parts)
    if text[0] == "[" and all(isinstance(m, Items) and m.kind == "[]" for m in members):
        return Matrix(tuple(m.members for m in members if isinstance(m, Items)))
    return Items(text[0] + text[-1], members)


def _matrix(text: str, depth: int) -> Answer | None:
    found = _MATRIX.match(text)
    if not found:
        return _scaled(text, depth)
    rows = [row for row in re.split(r"\\\\(?:\[[^\]]*\])?|\\cr(?![a-z])", found.group(2)) if row.strip()]
    if found.group(1) in ("cases", "aligned", "gathered"):
        return Opaque(text) if "&" in found.group(2) else read(", ".join(rows), depth)
    cells = tuple(tuple(read(cell, depth) for cell in row.split("&")) for row in rows)
    return (_determinant(cells) or Opaque(text)) if found.group(1)[0] in "vV" else Matrix(cells)


def _determinant(rows: tuple[tuple[Answer, ...], ...]) -> Scalar | None:
    """Expanded by the first row; None where it is no determinant, or one of more than four rows."""
    nodes = [[cell.node for cell in row if isinstance(cell, Scalar) and not cell.unit] for row in rows]
    if len(rows) > MAX_ROWS or any(len(row) != len(rows) for row in nodes):
        return None
    return Scalar(_expanded(nodes))


def _expanded(rows: list[list[Node]]) -> Node:
    if len(rows) == 1:
        return rows[0][0]
    terms = (
        Node("mul", (cell, _expanded([[*row[:at], *row[at + 1 :]] for row in rows[1:]])))
        for at, cell in enumerate(rows[0])
    )
    return Node("add", tuple(Node("neg", (term,)) if at % 2 else term for at, term in enumerate(terms)))


def _scaled(text: str, depth: int) -> Answer | None:
    r"""\frac12 before a matrix multiplies its cells."""
    start = text.find("\\begin")
    matrix = _matrix(text[start:], depth) if start > 0 and "matrix}" in text[start : start + 24] else None
    if not isinstance(matrix, Matrix):
        return None
    factor = text[:start].strip().rstrip("*").strip()
    by = _scalar(f"{factor}1" if factor in ("-", "+") else factor)
    if (
        not isinstance(by, Scalar)
        or by.unit
        or not all(isinstance(cell, Scalar) for row in matrix.rows for cell in row)
    ):
        return None
    return Matrix(tuple(tuple(_times(by, cell) for cell in row) for row in matrix.rows))


def _times(factor: Scalar, cell: Answer) -> Answer:
    return Scalar(Node("mul", (factor.node, cell.node))) if isinstance(cell, Scalar) else cell


def _based(text: str, depth: int) -> Answer | None:
    found = _BASED.match(text)
    if not found:
        return None
    name = _BASE_NAME.fullmatch(
        next(part for part in found.group("group", "plain", "said", "word") if part is not None)
    )
    digits, base = found.group("digits").upper(), name.group(1).lower() if name else ""
    base = _BASE_WORDS.get(base, base)
    if not _are_digits(digits.lstrip("-"), base, bool(found.group("open"))):
        return None
    if base == "10" and digits.isdigit():
        return read(digits, depth)
    return Based(digits.lstrip("0") or "0", base)


def _are_digits(text: str, base: str, is_group: bool) -> bool:
    """Whether this is a numeral rather than a symbol with an index; AF_{16} is one, A_{16} and X_{16} are not."""
    if text[0].isdigit():
        return text.replace(".", "").isdigit() or base.isdigit()
    is_long = len(text) > 1 or is_group
    return is_long and base.isdigit() and int(base) in range(11, 37) and all(_digit(char) < int(base) for char in text)


def _digit(char: str) -> int:
    return 0 if char == "." else int(char, 36) if char.isascii() and char.isalnum() else 99


def _scalar(text: str) -> Answer:
    number, unit = split_unit(text)
    if "^\\circ" in text:
        is_angle = re.search(r"sin|cos|tan|cot|sec|csc|cis", text)
        number, unit = (text, "") if is_angle else (number.replace("^\\circ", ""), unit or "degree")
    for candidate, its_unit in ((text, ""), (number, unit)) if not unit else ((number, unit),):
        try:
            return Scalar(expr.parse(candidate), its_unit, candidate)
        except ParseError:
            continue
    return Opaque(text)


def unlabelled(text: str) -> tuple[str, str] | None:
    r"""`(C) 12` as its label and its content."""
    found = _LABELLED.match(clean(text))
    if not found or _JOINED.match(found.group(4)):
        return None
    return found.group(1) or found.group(2) or found.group(3), found.group(4)


def is_choice(content: str) -> bool:
    """Whether what follows a label is, or holds, another label: `(A) C` and `(A) 5 (C) 6` choose twice."""
    is_label = _CHOICE.match(content) or re.fullmatch(r"\W*[A-Za-f]\W*", content)
    return bool(is_label or re.search(r"(?:^|[\s,;{])\(?[A-F]\s*[).:]\s*\S", content))


_READERS: tuple[Callable[[str, int], Answer | None], ...] = (
    _special, _choice, _excepted, _wordy, _quantity, _angled, _several, _related, _plus_minus, _united, _combined,
    _bracketed, _transposed, _matrix, _based,
)  # fmt: skip
