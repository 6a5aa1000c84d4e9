"""Meaning of relations: the interval of an inequality, the value of `x = 5`, the names on the left of an `=`."""

import re

from agentrl_math.expr import Node, symbols
from agentrl_math.forms import Answer, Combined, Items, Relation, Scalar, Union
from agentrl_math.latex import squeeze

FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!=", "~": "~", "==": "=="}
_SOLVED_NAME = re.compile(r"\s*(?:(?![ei]\s*$)[A-Za-z]|[A-Z]{2,}|\\(?!pi)[A-Za-z]+)(?:_\w|_\{\w+\})?'*\s*")
_CALL = re.compile(r"[A-Za-z]\w*'*(?:\^\{-1\})?\([^()]*\)|\\frac\s*\{d[^{}]*\}\s*\{d[^{}]*\}")
_NAME_PARTS = re.compile(
    r"\bP\([^()]*\)|\\begin\{[pb]?matrix\}[A-Za-z_\\& ]*\\end\{[pb]?matrix\}|"
    r"\\frac\s*\{d\^?\d?[a-z]\}\s*\{d[a-z]\^?\d?\}|"
    r"(?<=[A-Za-z])\^\{-1\}(?=\()|\\text\s*\{[^{}]*\}|_\{[^{}]*\}|_\w|\\(?:alpha|beta|gamma|theta|lambda|mu|phi|sigma|"
    r"omega|Delta|angle|triangle|measuredangle|overline|widehat|hat|vec|ell)(?![a-z])|(?<=[A-Za-z])\([^()=]*\)|[{}]"
)


def by_name(items: Items) -> tuple[Answer, ...] | None:
    """Return the values of `y = 2, x = 1` in the order of the names."""
    return tuple(value for _, value in sorted(_pairs(items), key=lambda pair: pair[0])) if named(items) else None


def named(items: Items) -> bool:
    """Return whether the members assign values to distinct names: `a = 2, b = 3`."""
    left = [name for name, _ in _pairs(items)]
    return len(left) == len(items.members) > 1 and len(set(left)) == len(left) and all(map(is_variable, left))


def _pairs(items: Items) -> list[tuple[str, Answer]]:
    return [(m.texts[0], m.sides[1]) for m in items.members if isinstance(m, Relation) and m.ops == ("=",)]


def between(answer: Answer) -> Answer:
    """Rewrite `x > 1 and x < 2` as `1 < x < 2`, and other conditions on one variable as an intersection."""
    if not isinstance(answer, Items) or answer.kind != "and":
        return answer
    bounds = [bound for bound in map(_bound, answer.members) if bound]
    low = next((bound for bound in bounds if bound[0][0] == ">"), None)
    high = next((bound for bound in bounds if bound[0][0] == "<"), None)
    if len(answer.members) != 2 or low is None or high is None or low[1] != high[1]:
        return Combined("cap", answer.members) if len(variables(answer)) == 1 else answer
    middle = Scalar(Node("sym", value=low[1]), text=low[1])
    return Relation((FLIPPED[low[0]], high[0]), (low[2], middle, high[2]), ("", low[1], ""))


def variables(answer: Answer) -> frozenset[str]:
    """Return the variables of the relations in an answer."""
    if isinstance(answer, Relation):
        if _distance(answer):
            return frozenset([variable(answer)])
        return frozenset(text.strip() for text in answer.texts if is_variable(text))
    parts = answer.members if isinstance(answer, Items | Union | Combined) else ()
    return frozenset[str]().union(*map(variables, parts))


def _bound(relation: Answer) -> tuple[str, str, Answer] | None:
    """Return (">", "x", 3) for `x > 3` and `3 < x`, or None."""
    if not isinstance(relation, Relation) or len(relation.ops) != 1 or interval(relation) is None:
        return None
    if _distance(relation):
        return None
    if is_variable(relation.texts[0]):
        return relation.ops[0], relation.texts[0].strip(), relation.sides[1]
    return FLIPPED[relation.ops[0]], relation.texts[1].strip(), relation.sides[0]


def pieces(answer: Answer) -> tuple[Answer, ...] | None:
    """Return the members of a union or of a list of inequalities, or None."""
    if isinstance(answer, Union):
        return answer.members
    if isinstance(answer, Relation) and answer.ops == ("!=",) and is_variable(answer.texts[0]):
        low, high = Scalar(Node("neg", (Node("inf"),))), Scalar(Node("inf"))
        if isinstance(answer.sides[1], Items):
            return (Combined("minus", (Items("()", (low, high)), answer.sides[1])),)
        return (Items("()", (low, answer.sides[1])), Items("()", (answer.sides[1], high)))
    if isinstance(answer, Relation) and (found := _distance(answer)) and found[0] in (">", ">="):
        is_closed = found[0] == ">="
        low, high = Scalar(Node("neg", (Node("inf"),))), Scalar(Node("inf"))
        left, right = found[1]
        return (Items("(]" if is_closed else "()", (low, left)), Items("[)" if is_closed else "()", (right, high)))
    if isinstance(answer, Items) and answer.kind == "list":
        pieces = [interval(member) for member in answer.members if isinstance(member, Relation)]
        whole = tuple(piece for piece in pieces if piece is not None)
        return whole if len(whole) == len(answer.members) else None
    return (answer,) if isinstance(answer, Items) else None


def interval(relation: Relation) -> Items | None:
    """Return the interval of `x > 3` or `1 <= x < 2`, or None."""
    ops = relation.ops
    if (found := _distance(relation)) and found[0] in ("<", "<="):
        return Items("[]" if found[0] == "<=" else "()", found[1])
    if not set(ops) <= {"<", "<="} and not set(ops) <= {">", ">="}:
        return None
    sides, texts = relation.sides, relation.texts
    if ops[0][0] == ">":
        sides, texts, ops = sides[::-1], texts[::-1], tuple(FLIPPED[op] for op in ops[::-1])
    low, high = Scalar(Node("neg", (Node("inf"),))), Scalar(Node("inf"))
    if len(ops) == 1 and is_variable(texts[0]) and is_constant(sides[1]):
        return Items("(" + ("]" if ops[0] == "<=" else ")"), (low, sides[1]))
    if len(ops) == 1 and is_variable(texts[1]) and is_constant(sides[0]):
        return Items(("[" if ops[0] == "<=" else "(") + ")", (sides[0], high))
    if len(ops) == 2 and is_variable(texts[1]) and is_constant(sides[0]) and is_constant(sides[2]):
        return Items(("[" if ops[0] == "<=" else "(") + ("]" if ops[1] == "<=" else ")"), (sides[0], sides[2]))
    return None


def _distance(relation: Relation) -> tuple[str, tuple[Scalar, Scalar]] | None:
    """Return the sign and the two ends of `|x - 1| < 2`, or None; not for z, which may be complex."""
    if len(relation.ops) != 1:
        return None
    (one, other), op = relation.sides, relation.ops[0]
    if isinstance(other, Scalar) and other.node.op == "abs":
        one, other, op = other, one, FLIPPED.get(op, op)
    if not isinstance(one, Scalar) or not isinstance(other, Scalar) or one.unit or other.unit:
        return None
    if one.node.op != "abs" or symbols(other.node):
        return None
    inner = one.node.args[0]
    terms = inner.args if inner.op == "add" else (inner,)
    shift = [term for term in terms if not symbols(term)]
    if len(shift) != len(terms) - 1 or not any(term.op == "sym" and term.value != "z" for term in terms):
        return None
    ends = (Node("neg", (other.node,)), other.node)
    low, high = (Scalar(Node("add", (end, *(Node("neg", (term,)) for term in shift)))) for end in ends)
    return op, (low, high)


def solution(relation: Relation) -> tuple[str, str, Answer] | None:
    """Return name, sign and value of `x = 5`, `5 = x` or `x >= 3`; None for a relation that is not solved."""
    op = relation.ops[0]
    for at, sign in ((0, op), (1, FLIPPED.get(op, op))):
        value = relation.sides[1 - at]
        if _SOLVED_NAME.fullmatch(relation.texts[at]) and is_constant(value):
            return squeeze(relation.texts[at]), sign, value
    return None


def membership(relation: Relation) -> Answer:
    """Return the set in `x in S`; return other relations unchanged."""
    if relation.ops != ("in",) or not is_name(relation.texts[0]) or is_constant(relation.sides[1]):
        return relation
    return relation.sides[1]


def variable(relation: Relation) -> str:
    """Return the side that is a single variable, or the variable whose distance the relation bounds."""
    bounded = (name for side in relation.sides for name in names(side))
    return next((text for text in relation.texts if is_variable(text)), None) or next(bounded)


def is_variable(text: str) -> bool:
    """Return whether this is a single symbol, with or without an index; e and i are numbers."""
    return bool(re.fullmatch(r"(?![ei]$)[A-Za-z](?:_\{?\w+\}?)?|\\(?:theta|alpha|beta|lambda|phi)\s*", text.strip()))


def is_constant(answer: Answer) -> bool:
    """Return whether this is an expression without symbols."""
    return isinstance(answer, Scalar) and not symbols(answer.node)


def is_name(text: str) -> bool:
    """Return whether the left side of an = only names the right side: x, f(2), m+n, AB, Area, (x, y)."""
    return not re.search(r"[^A-Za-z '|+,()]", _NAME_PARTS.sub(" ", text))


def names(answer: Answer) -> frozenset[str]:
    """Return the symbols that a left side defines or a gold uses; the x of f(x) is neither."""
    if not isinstance(answer, Scalar) or _CALL.fullmatch(answer.text.strip()):
        return frozenset()
    return symbols(answer.node)


def difference(relation: Relation) -> Node | None:
    """Return the left side minus the right one; None unless both are expressions."""
    left, right = relation.sides[0], relation.sides[1]
    if not isinstance(left, Scalar) or not isinstance(right, Scalar):
        return None
    return Node("add", (left.node, Node("neg", (right.node,))))
