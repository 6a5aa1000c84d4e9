"""Check whether a gold has a computable value, independent of any answer."""

from agentrl_math.forms import Answer, Items, Matrix, Opaque, Relation, Scalar, Union
from agentrl_math.judge import Judge, is_beyond


def settled(answer: Answer, judge: Judge) -> bool:
    """Return whether every part of an answer has a computable value."""
    if isinstance(answer, Scalar):
        return judge.settles(answer.node)
    if isinstance(answer, Opaque):
        return not is_beyond(answer.text) or judge.settles_opaque(answer.text)
    return all(settled(part, judge) for part in parts(answer))


def parts(answer: Answer) -> tuple[Answer, ...]:
    """Return the parts of an answer."""
    if isinstance(answer, Items | Union):
        return answer.members
    if isinstance(answer, Matrix):
        return tuple(cell for row in answer.rows for cell in row)
    return answer.sides if isinstance(answer, Relation) else ()
