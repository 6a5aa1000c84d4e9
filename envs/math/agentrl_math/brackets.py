"""Brackets in a formula: matching them, and splitting at separators outside of them."""

import re


def closes_last(text: str) -> bool:
    """Return whether the last bracket of the text closes the first one, unlike in `(a], [b)`."""
    pieces = _depths(text)
    return all(depth > 0 for _, depth in pieces[:-1]) if pieces else False


_BRACKET = re.compile(r"\\begin\s*\{|\\end\s*\{|\\[{}]|\\\\|\\l(?:angle|floor|ceil)|\\r(?:angle|floor|ceil)|[(\[{)\]}]")


def _depths(text: str) -> list[tuple[int, int]]:
    """Return (position, depth after it) of every bracket."""
    found, depth = [], 0
    for match in _BRACKET.finditer(text):
        token = match.group()
        if token == "\\\\":
            continue
        if token.startswith("\\begin"):
            depth += 2
        elif token.startswith("\\end"):
            pass
        elif token in ("(", "[", "{", "\\{") or token.startswith("\\l"):
            depth += 1
        else:
            depth -= 1
        found.append((match.start(), depth))
    return found


def split(text: str, pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """Split a text at matches outside of all brackets; return every part with the separator after it."""
    parts, start = [], 0
    marks = [(len(text), 0), *reversed(_depths(text))]
    depth, mark = 0, marks.pop()
    for match in pattern.finditer(text):
        while mark[0] < match.start() and marks:
            depth, mark = mark[1], marks.pop()
        if depth == 0:
            parts.append((text[start : match.start()], match.group().strip()))
            start = match.end()
    return [*parts, (text[start:], "")]


def in_one_notation(text: str) -> str:
    """Rewrite `]1,2[` as `(1,2)` wherever a bracket faces away from its interval; leave other text unchanged."""
    if "[" not in text and "]" not in text:
        return text
    chars, start, depth, commas, previous, is_index = list(text), -1, 0, 0, "", False
    for at, char in enumerate(text):
        if char == " ":
            continue
        if is_index or (char == "[" and text.endswith(("\\sqrt", "\\sqrt "), 0, at)):
            is_index = char != "]"
        elif start < 0:
            start, commas = (at, 0) if char in "([]" else (-1, 0)
        elif depth == 0 and (char in ")]" or (char == "[" and commas and previous not in ",;")):
            if text[start] == "]" or char == "[":
                if commas != 1:
                    return text
                chars[start], chars[at] = text[start].replace("]", "("), char.replace("[", ")")
            start = -1
        elif depth == 0 and char == "[":
            return text
        else:
            depth += (char in "({[") - (char in ")}]")
            commas += depth == 0 and char in ",;"
        previous = char
    return "".join(chars) if start < 0 else text
