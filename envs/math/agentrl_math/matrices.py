"""Readers of matrices, scaled matrices and determinants."""

import re

from agentrl_math.expr import Node
from agentrl_math.forms import Answer, Matrix, Opaque, Read, Scalar

_MATRIX = re.compile(
    r"^\\begin\s*\{([pbBvV]?matrix|smallmatrix|array|cases|aligned|gathered)\}\s*(?:\{[^{}]*\})?(.*)\\end\s*\{\1\}$",
    re.DOTALL,
)
MAX_ROWS = 4
"""Size of the largest determinant that is expanded."""


def matrix(text: str, read: Read) -> Answer | None:
    """Read a matrix, a number times a matrix, a determinant as its value, or the lines of `cases` as a list."""
    found = _MATRIX.match(text)
    if not found:
        return _scaled(text, read)
    rows = [row for row in re.split(r"\\\\(?:\[[^\]]*\])?|\\cr(?![a-z])", found.group(2)) if row.strip()]
    if found.group(1) in ("cases", "aligned", "gathered"):
        return Opaque(text) if "&" in found.group(2) else read(", ".join(rows))
    cells = tuple(tuple(read(cell) for cell in row.split("&")) for row in rows)
    return (_determinant(cells) or Opaque(text)) if found.group(1)[0] in "vV" else Matrix(cells)


def _determinant(rows: tuple[tuple[Answer, ...], ...]) -> Scalar | None:
    """Expand a determinant by the first row; None if it is not square or has more than MAX_ROWS rows."""
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


def _scaled(text: str, read: Read) -> Answer | None:
    r"""Read \frac12 before a matrix as a factor of its cells, or before a determinant of its value."""
    start = text.find("\\begin")
    found = matrix(text[start:], read) if start > 0 and "matrix}" in text[start : start + 24] else None
    if not isinstance(found, Matrix | Scalar):
        return None
    rows = found.rows if isinstance(found, Matrix) else ((found,),)
    factor = text[:start].strip().rstrip("*").strip()
    by = read(f"{factor}1" if factor in ("-", "+") else factor)
    if not isinstance(by, Scalar) or by.unit or not all(isinstance(cell, Scalar) for row in rows for cell in row):
        return None
    scaled = tuple(tuple(_times(by, cell) for cell in row) for row in rows)
    return Matrix(scaled) if isinstance(found, Matrix) else scaled[0][0]


def _times(factor: Scalar, cell: Answer) -> Answer:
    return Scalar(Node("mul", (factor.node, cell.node))) if isinstance(cell, Scalar) else cell
