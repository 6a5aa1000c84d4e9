"""Whether prompt or tools contain the answer where a reader finds it without solving anything."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from agentrl.checking.attempts import earned, offered
from agentrl.checking.check import TASKS, FailedError, Subject
from agentrl.env.policies import saying
from agentrl.env.tasks import Task
from agentrl.env.testing.episodes import play_each, sample_tasks
from agentrl.types import Message, text_of

WORDS = "answer|solution|gold|label|target|secret|expected|correct"
MARKED = re.compile(rf"(?i)\b(?:{WORDS})\w*\W{{1,5}}(?:is\W+)?([^\n]+)")
VALUE = re.compile(
    rf"(?i)\b(?:{WORDS})\w*(?:[\"']?[ \t]*[:=]|[^\n.:=]{{0,60}}?\bis\b)[\s\"'(\[{{]*([^\n,;\"'()\[\]{{}}]+)"
)
"""A word such as 'answer', a colon, an equals sign or 'is', and the value up to a comma, a quote or a bracket."""
NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")
SIGNS = ".,:;!?()[]{}\"'`"
FEW, LIMIT = TASKS // 2, 0.5
"""Tasks of each split that every reader tries, and the share that it may solve by chance."""
MANY, MOST = 4 * TASKS, 0.7
"""The same for a reader that solves more: the first of two choices, for example, is right for half of the tasks."""
FORMS = ("{}", "\\boxed{{{}}}", "<answer>{}</answer>")

Reader = Callable[[str], str]
Reading = tuple[str, str, str]
"""What is read, in what, and the form of the answer."""


def _last_word(text: str) -> str:
    words = text.split()
    return words[-1].strip(SIGNS) if words else ""


def _last_number(text: str) -> str:
    return next(reversed(NUMBER.findall(text)), "")


def _marked(text: str) -> str:
    return next(reversed(MARKED.findall(text)), "").strip(" .,\"'`}")


def _value(text: str) -> str:
    return next(reversed(VALUE.findall(text)), "").strip(" .")


READERS: dict[str, Reader] = {
    "the first word": lambda text: (text.split() or [""])[0].strip(SIGNS),
    "the first number": lambda text: found[0] if (found := NUMBER.search(text)) else "",
    "the last word": _last_word,
    "the last number": _last_number,
    "the last line": lambda text: (text.splitlines() or [""])[-1],
    "what follows a word such as 'answer'": _marked,
    "the value after a word such as 'answer'": _value,
    "the first word after a word such as 'answer'": lambda text: (_value(text).split() or [""])[0].strip("."),
}


async def check_leak(subject: Subject) -> str:
    """Check that nobody solves the tasks by repeating a certain part of the prompt, or of what describes the tools."""
    readings = [*itertools.product(READERS, ("prompt", "tools"), FORMS)]
    tasks = await sample_tasks(subject.make(), FEW)
    solved = await _solved(subject, readings, tasks)
    for reading in (one for one, count in zip(readings, solved, strict=True) if count > LIMIT * len(tasks)):
        more = await sample_tasks(subject.make(), MANY)
        [count] = await _solved(subject, [reading], more)
        if count > MOST * len(more):
            name, place, _ = reading
            raise FailedError(f"{name} of the {place} solves {count} of {len(more)} tasks")
    return ""


async def _solved(subject: Subject, readings: list[Reading], tasks: list[Task]) -> list[int]:
    """Return how many tasks each reading solves."""
    described = await play_each(partial(_described, subject), tasks)

    async def is_solved(case: tuple[Reading, tuple[Task, str]]) -> bool:
        (name, place, form), (task, text) = case
        if place == "tools" and not text:
            return False
        read = READERS[name]
        policy = saying(form.format(read(text))) if place == "tools" else partial(_answer, read, form)
        return (await earned(subject, task, policy, f"{name} of the {place}")).is_solved

    found = await play_each(is_solved, itertools.product(readings, zip(tasks, described, strict=True)))
    return [sum(found[start : start + len(tasks)]) for start in range(0, len(found), len(tasks))]


def _answer(read: Reader, form: str, messages: list[Message]) -> str:
    said = "\n".join(text_of(message) for message in messages if message["role"] in ("system", "user"))
    return form.format(read(said))


async def _described(subject: Subject, task: Task) -> str:
    """Return what the tools of an episode say in the prompt, a value a line: parameters, then the description."""
    tools = await offered(subject, task)
    return "\n".join(line for tool in tools for line in (*_lines(tool["parameters"]), tool["description"]))


def _lines(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        schema = list(schema.values())
    if isinstance(schema, list):
        yield from itertools.chain.from_iterable(map(_lines, schema))
    else:
        yield str(schema)
