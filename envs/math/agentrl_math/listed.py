"""Readers of lists of answers, of ± and of relations."""

import re
from itertools import pairwise, product

from agentrl_math.brackets import closes_last, split
from agentrl_math.forms import Answer, Items, Opaque, Read, Relation, Union
from agentrl_math.limits import MAX_ITEMS, LimitError

SEPARATOR = re.compile(
    r",|;|\\text\s*\{\s*,?\s*(?:and|or)\s*\}"
    r"|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])"
)
_RELATION = re.compile(r"\\(?:le|ge|ne|approx|equiv|in|to|sim|subset|subseteq|notin)(?![A-Za-z])|<=|>=|!=|[=<>:]")
_WHOLE = re.compile(r"-?\d{1,9}")
_TO = re.compile(r"(-?[\d.]+)\s*(?:to|\\text\s*\{\s*to\s*\})\s*(-?[\d.]+)")
_SIGNS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])")
_ORDERS = {"<", ">", "<=", ">="}
_OPS = {"\\le": "<=", "\\ge": ">=", "\\ne": "!=", "\\approx": "~", "\\in": "in", "\\sim": "~", "\\equiv": "=="}
MAX_SIGNS = 4
"""Maximum number of \\pm in one formula, each of which may be either sign."""


def plus_minus(text: str, read: Read) -> Answer | None:
    r"""Read 1 \pm x as the list 1 + x, 1 - x; two \pm give four answers, \pm together with \mp two."""
    signs = _SIGNS.findall(text)
    if not signs or split(text, SEPARATOR)[1:]:
        return None
    if _is_bracketed(text) and text[:2] not in ("(\\", "(-") and not re.match(r"\([^()]*,", text):
        return None
    free = signs.count("\\pm")
    if free > MAX_SIGNS or (free > 1 and free < len(signs)):
        return Opaque(text)
    choices = list(product("+-", repeat=free)) if free > 1 else [("+",) * len(signs), ("-",) * len(signs)]
    return Items("list", tuple(read(_signed(text, choice)) for choice in choices))


def _is_bracketed(text: str) -> bool:
    return text.startswith(("(", "[", "{", "\\{", "\\begin")) and closes_last(text)


def _signed(text: str, choice: tuple[str, ...]) -> str:
    """Replace every \\pm by its sign and every \\mp by the opposite one."""
    signs = iter(choice)

    def sign(found: re.Match[str]) -> str:
        chosen = next(signs)
        return chosen if found.group() == "\\pm" else {"+": "-", "-": "+"}[chosen]

    return _SIGNS.sub(sign, text)


def several(text: str, read: Read) -> Answer | None:
    """Read answers separated by commas, "and" or "or"."""
    parts = _filled([part for part in (part.strip() for part, _ in split(text, SEPARATOR)) if part])
    if len(parts) < 2:
        return None
    if len(parts) > MAX_ITEMS:
        raise LimitError(f"more than {MAX_ITEMS} answers")
    members = _flat(tuple(read(part) for part in parts))
    joints = set(re.findall("and|or", " ".join(joint for _, joint in split(text, SEPARATOR))))
    return _joined(members, joints) or _shared_name(members)


def _filled(parts: list[str]) -> list[str]:
    r"""Expand 1, 2, \ldots, 10 to all ten numbers; return other parts unchanged."""
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
    """Read `x<1 or x>2` as a union, and `x>1 and x<2` or `x>0, x \\ne 1` as conditions that must all hold."""
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
    """Read `x=1, 2` and `x=1 or x=2` as one relation with a list of values; else return a list."""
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


def related(text: str, read: Read) -> Answer | None:
    """Read a relation, or a ratio such as 1:2 or `1 to 2`."""
    if ratio := _TO.fullmatch(text):
        return Items(":", (read(ratio.group(1)), read(ratio.group(2))))
    pieces = split(text, _RELATION)
    if len(pieces) < 2:
        return None
    texts = tuple(piece.strip() for piece, _ in pieces)
    ops = tuple(_OPS.get(op, op) for _, op in pieces[:-1])
    if set(ops) == {":"}:
        return Items(":", tuple(read(piece) for piece in texts)) if all(texts) else Opaque(text)
    if ops in (("~",), ("=",)) and not texts[0]:
        return read(texts[1])
    if not all(texts) or ":" in ops:
        return Opaque(text)
    return Relation(ops, tuple(read(piece) for piece in texts), texts)
