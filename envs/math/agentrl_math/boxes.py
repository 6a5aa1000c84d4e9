r"""Positions of the boxes in a text, found by counting braces in one pass."""

from typing import NamedTuple


class Mark(NamedTuple):
    """A mark of an answer in a text; `content` is None for an unclosed \\boxed."""

    content: str | None
    start: int
    end: int
    is_box: bool = False


def boxes(text: str) -> list[Mark]:
    r"""Return every outermost \boxed, \fbox or \framebox, in order."""
    found: list[Mark] = []
    position = 0
    while (at := text.find("box", position)) >= 0:
        start, end = _name_at(text, at)
        if start >= position and not text[end : end + 1].isalpha():
            found.append(_box(text, start, end))
        position = found[-1].end if found and found[-1].end > end else end
    return found


def _name_at(text: str, at: int) -> tuple[int, int]:
    r"""Return start and end of the \boxed, \fbox or \framebox whose "box" is at `at`; start is -1 for another word."""
    if text.startswith("\\boxed", at - 1) and at:
        return at - 1, at + 5
    name = next((name for name in ("\\f", "\\frame") if text.endswith(name, 0, at)), None)
    return (at - len(name) if name else -1), at + 3


def _box(text: str, start: int, at: int) -> Mark:
    while text[at : at + 1].isspace():
        at += 1
    if text[at : at + 1] != "{":
        end = at
        while end < len(text) and not text[end].isspace() and text[end] not in "$\\{}":
            end += 1
        return Mark(text[at:end].rstrip(".,;"), start, end)
    closed = closing_brace(text, at)
    return Mark(None, start, len(text)) if closed is None else Mark(text[at + 1 : closed], start, closed + 1)


def closing_brace(text: str, start: int) -> int | None:
    """Return where the brace opened at `start` closes, or None; escaped braces do not count."""
    depth, at = 0, start
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char in "{}":
            depth += 1 if char == "{" else -1
            if depth == 0:
                return at
        at += 1
    return None
