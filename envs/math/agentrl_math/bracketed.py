"""Readers of sets, tuples, intervals and their combinations, and of vectors."""

import re

from agentrl_math.brackets import closes_last, split
from agentrl_math.forms import Answer, Combined, Items, Matrix, Opaque, Read, Union
from agentrl_math.limits import MAX_ITEMS, LimitError

_COMMA = re.compile("[,;]")
_CUP = re.compile(r"\\cup(?![A-Za-z])|(?<=[)\]}])\s*[uU]\s*(?=[(\[\\])")
_CAP = re.compile(r"\\cap(?![A-Za-z])")
_SETMINUS = re.compile(r"\\(?:setminus|backslash)(?![A-Za-z])|\\\\(?=\s*\\\{)|(?<=\})\s*-\s*(?=\\\{)")
_BUILDER = re.compile(r"^\\\{\s*([a-z])(?:\s*\\in\s*\\mathbb\{R\})?\s*[|:]\s*(.*\1.*)\\\}$")
_REAL_MEMBER = re.compile(
    r"^\s*[a-z]\s*\\in\s*\\mathbb\s*\{?\s*R\s*\}?\s*(?:,|and)|(?:,|and)\s*[a-z]\s*\\in\s*\\mathbb\s*\{?\s*R\s*\}?\s*$"
)
_TRANSPOSE = re.compile(r"\^\s*(?:T|\{\s*(?:T|\\text\s*\{\s*T\s*\})\s*\}|\{?\s*\\(?:top|intercal)\s*\}?)$")
_COMMA_PAIR = re.compile(r"(-?\d+),(\d+)\s*;\s*(-?\d+),(\d+)")


def united(text: str, read: Read) -> Answer | None:
    r"""Read a union such as (1,2) \cup (3,4)."""
    parts = split(text, _CUP)
    return Union(tuple(read(part) for part, _ in parts)) if len(parts) > 1 else None


def combined(text: str, read: Read) -> Answer | None:
    r"""Read \mathbb{R} \setminus \{2\}, [1,3] \cap [2,4] and `all real numbers except 2`."""
    for op, pattern in (("minus", _SETMINUS), ("cap", _CAP)):
        parts = [part for part, _ in split(text, pattern)]
        if len(parts) < 2:
            continue
        members = tuple(read(part) for part in parts)
        return Combined(op, members) if all(isinstance(m, Items | Union | Combined) for m in members) else Opaque(text)
    return None


def bracketed(text: str, read: Read) -> Answer | None:
    """Read a set, a tuple or interval, a list of lists as a matrix, or the content of plain brackets."""
    if text.startswith("\\{") and text.endswith("\\}") and closes_last(text):
        if built := _BUILDER.match(text):
            return read(_REAL_MEMBER.sub("", built.group(2)))
        inner = read(text[2:-2])
        return Items("set", inner.members if isinstance(inner, Items) and inner.kind == "list" else (inner,))
    if text.startswith("{") and text.endswith("}") and closes_last(text):
        inner = read(text[1:-1])
        return Items("set", inner.members) if isinstance(inner, Items) and inner.kind == "list" else inner
    if text.startswith("\\langle") and text.endswith("\\rangle"):
        return read(f"({text[7:-7]})")
    if text[:1] not in ("(", "[") or text[-1:] not in (")", "]") or not closes_last(text):
        return None
    inside = text[1:-1].strip()
    if ";" in inside and (pair := _COMMA_PAIR.fullmatch(inside)):
        inside = "{}.{};{}.{}".format(*pair.groups())
    parts = [part.strip() for part, _ in split(inside, _COMMA)]
    if len(parts) == 1:
        is_plain = text[0] + text[-1] == "()" or parts[0].startswith("\\begin")
        return read(parts[0]) if is_plain and parts[0] else None
    if len(parts) > MAX_ITEMS:
        raise LimitError(f"more than {MAX_ITEMS} answers")
    members = tuple(read(part) for part in parts)
    if text[0] == "[" and all(isinstance(m, Items) and m.kind == "[]" for m in members):
        return Matrix(tuple(m.members for m in members if isinstance(m, Items)))
    return Items(text[0] + text[-1], members)


def angled(text: str, read: Read) -> Answer | None:
    """Read <1,2> as a vector."""
    is_vector = text[:1] == "<" and text[-1:] == ">" and "," in text and not re.search("[<>=]", text[1:-1])
    return read(f"({text[1:-1]})") if is_vector else None


def transposed(text: str, read: Read) -> Answer | None:
    r"""Read (1,2)^T as a column."""
    found = _TRANSPOSE.search(text, max(len(text) - 40, 0))
    inner = read(text[: found.start()]) if found and text[:1] in "([\\" else None
    if isinstance(inner, Matrix) and len({len(row) for row in inner.rows}) == 1:
        return Matrix(tuple(zip(*inner.rows, strict=True)))
    is_row = isinstance(inner, Items) and inner.kind in ("()", "[]")
    return Matrix(tuple((member,) for member in inner.members)) if is_row and isinstance(inner, Items) else None
