"""Whether only the whole solution earns its reward: a part of it earns less, and words around it add nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os.path import commonprefix

from agentrl.checking.attempts import ROUNDING, earned
from agentrl.checking.canaries import FEW, MOST_ALIKE, check_unjudged, solution_text
from agentrl.checking.check import TASKS, Check, FailedError, Level, SkippedError, Subject
from agentrl.env.policies import saying, solution_reward
from agentrl.env.tasks import Task
from agentrl.env.testing.episodes import play_each, sample_tasks

LEAST = 4
"""Minimum number of solutions with a part that is no shorter form of them, as 7 is of 7.0 and y of yes."""
FILLER, FEW_WORDS, MANY_WORDS = "well ", 50, 500
PADDED = 2
"""Tasks of each split whose solution is padded."""
HALF = 0.5


async def check_part(subject: Subject) -> str:
    """Check that neither the first sign nor the first half of a solution earns its reward, at most tasks."""
    solved = await _solved(subject, TASKS)
    cut = [(task, part) for (task, _), parts in zip(solved, _parts([text for _, text in solved]), strict=True)
           for part in parts]  # fmt: skip
    least = solution_reward(subject.make()) or 0.0

    async def is_whole(case: tuple[Task, str]) -> bool:
        found = await earned(subject, case[0], saying(case[1]), f"the part {case[1]!r} of the solution")
        return found.is_solved and found.reward >= least - ROUNDING

    whole = dict[tuple[str, int], bool]()
    for (task, _), is_solved in zip(cut, await play_each(is_whole, cut), strict=True):
        whole[task.split, task.index] = whole.get((task.split, task.index), True) and is_solved
    if len(whole) < LEAST:
        raise SkippedError(f"fewer than {LEAST} sampled solutions have a part that could not be a shorter form of them")
    if sum(whole.values()) > MOST_ALIKE * len(whole):
        task, part = next((task, part) for task, part in cut if whole[task.split, task.index])
        raise FailedError(
            f"the first sign of a solution, and its first half, earn what the solution earns, at {sum(whole.values())} "
            f"of {len(whole)} tasks; at task {task.id!r} ({task.split}) it is {part!r}"
        )
    return ""


def _parts(solutions: Sequence[str]) -> Iterator[list[str]]:
    """Yield the parts of each solution: its first sign and its first half, between the words that all have in common.

    There are none of a solution that does not begin with two digits or two letters, nor of one of a few words.
    """
    front = _to_a_word(commonprefix(solutions))  # noqa: RUF071 (sign by sign)
    back = _to_a_word(commonprefix([text[len(front) :][::-1] for text in solutions]))[::-1]  # noqa: RUF071
    are_few = len({*solutions}) <= FEW
    for text in solutions:
        own = text[len(front) : len(text) - len(back)]
        begins = len(own) > 1 and (own[:2].isdecimal() or (own[:2].isalpha() and not are_few))
        lengths = {1, len(own) // 2} if begins else ()
        yield [f"{front}{own[:length]}{back}" for length in sorted(lengths)]


def _to_a_word(text: str) -> str:
    """Return a text without the word, or the part of one, at its end."""
    return text[: next((place for place in range(len(text), 0, -1) if not _is_word(text[place - 1])), 0)]


def _is_word(sign: str) -> bool:
    return sign.isalnum() or sign == "_"


async def check_padding(subject: Subject) -> str:
    """Check that a solution does not earn more, the more words stand before or behind it."""
    solved = await _solved(subject, PADDED)
    forms = ("{text}", "{few}\n{text}", "{many}\n{text}", "{text}\n{few}", "{text}\n{many}")
    few, many = FILLER * FEW_WORDS, FILLER * MANY_WORDS

    async def reward(case: tuple[Task, str, str]) -> float:
        task, text, form = case
        padded = form.format(text=text, few=few, many=many)
        return (await earned(subject, task, saying(padded), "a solution with words around it")).reward

    cases = [(task, text, form) for task, text in solved for form in forms]
    rewards = await play_each(reward, cases)
    rows = [rewards[start : start + len(forms)] for start in range(0, len(cases), len(forms))]
    for number, where in ((1, "before"), (3, "after")):
        grows = [row for row in rows if row[number + 1] > max(row[0], row[number]) + ROUNDING]
        if len(grows) > HALF * len(rows):
            alone, some, most = grows[0][0], *grows[0][number : number + 2]
            raise FailedError(
                f"a solution earns {alone:.3g}, with {FEW_WORDS} words {where} it {some:.3g}, and with {MANY_WORDS} "
                f"words {most:.3g}"
            )
    return ""


async def _solved(subject: Subject, count: int) -> list[tuple[Task, str]]:
    """Return tasks with their solutions. Raises SkippedError if none is one turn of text, or a role may judge it."""
    check_unjudged(subject)
    tasks, env = await sample_tasks(subject.make(), count), subject.make()
    if solved := [(task, text) for task in tasks if (text := solution_text(env, task))]:
        return solved
    raise SkippedError("no sampled task has a solution that is one turn of text")


CHECKS = (
    Check(
        "part", Level.TRUTH, "Does a part of a solution earn less than the solution?",
        "Compare the whole answer: with ==, or ask whether it contains the solution, not the other way round.",
        check_part,
    ),
    Check(
        "padding", Level.TRUTH, "Do words around a solution earn nothing?",
        "Do not pay for length, or pay up to a limit that an ordinary solution reaches.", check_padding,
    ),
)  # fmt: skip
