"""Parts of the report's page as data; `templates/parts.html.jinja` turns them into HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class Share:
    """A bar in a table's cell, `percent` of its width long, in a colour of the page."""

    percent: float
    tone: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text and bars. The last `numbers` columns are right-aligned; the row with the index `total` is bold."""

    head: Sequence[str]
    rows: Sequence[Sequence[str | Share]]
    numbers: int = 0
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """A chart (Markup), a table or a sentence with a title, the current value, a legend (names, colours) and a note."""

    title: str
    value: str
    content: Markup | Table | str
    legend: Sequence[tuple[str, str]] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure in large type."""

    title: str
    value: str
    note: str
    tone: str = ""
    is_wide: bool = False
