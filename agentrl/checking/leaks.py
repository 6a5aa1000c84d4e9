"""Whether prompt or tools contain the answer where a reader finds it without solving anything."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from agentrl.checking.attempts import earned, offered
from agentrl.checking.check import TASKS, FailedError, Subject
from agentrl.env.base import Policy
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
LIMIT = 0.5
"""Share of the tasks that a reader may solve by chance."""
FORMS = ("{}", "\\boxed{{{}}}", "<answer>{}</answer>")

Reader = Callable[[str], str]


def _last_word(text: str) -> str:
    words = text.split()
    return words[-1].strip(".,:;!?()[]{}\"'`") if words else ""


def _last_number(text: str) -> str:
    return next(reversed(NUMBER.findall(text)), "")


def _marked(text: str) -> str:
    return next(reversed(MARKED.findall(text)), "").strip(" .,\"'`}")


def _value(text: str) -> str:
    return next(reversed(VALUE.findall(text)), "").strip(" .")


READERS: dict[str, Reader] = {
    "the last word": _last_word,
    "the last number": _last_number,
    "the last line": lambda text: (text.splitlines() or [""])[-1],
    "what follows a word such as 'answer'": _marked,
    "the value after a word such as 'answer'": _value,
    "the first word after a word such as 'answer'": lambda text: (_value(text).split() or [""])[0].strip("."),
}


async def check_leak(subject: Subject) -> str:
    """Check that nobody solves the tasks by repeating a certain part of the prompt, or of what describes the tools."""
    tasks = await sample_tasks(subject.make(), TASKS // 2)
    described = await play_each(partial(_described, subject), tasks)
    cases = list[tuple[str, Task, Policy]]()
    for (name, read), form in itertools.product(READERS.items(), FORMS):
        cases += [(f"{name} of the prompt", task, partial(_answer, read, form)) for task in tasks]
        if any(described):
            answers = [saying(form.format(read(text))) for text in described]
            cases += [(f"{name} of the tools", *told) for told in zip(tasks, answers, strict=True)]

    async def attempted(case: tuple[str, Task, Policy]) -> bool:
        what, task, policy = case
        return (await earned(subject, task, policy, what)).is_solved

    found = await play_each(attempted, cases)
    for start in range(0, len(cases), len(tasks)):
        solved = sum(found[start : start + len(tasks)])
        if solved > LIMIT * len(tasks):
            raise FailedError(f"{cases[start][0]} solves {solved} of {len(tasks)} tasks")
    return ""


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
