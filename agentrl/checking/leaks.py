"""Whether the prompt contains the answer where a reader finds it without solving anything."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from agentrl.checking.attempts import earned
from agentrl.checking.check import TASKS, FailedError, Subject
from agentrl.env.base import Policy
from agentrl.env.testing.episodes import sample_tasks
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
    """Check that nobody solves the tasks by repeating a certain part of the prompt."""
    tasks = await sample_tasks(subject.make(), TASKS // 2)
    for name, read in READERS.items():
        for form in FORMS:
            policy = _reading(read, form)
            solved = [(await earned(subject, task, policy, name)).is_solved for task in tasks]
            if sum(solved) > LIMIT * len(solved):
                raise FailedError(f"{name} of the prompt solves {sum(solved)} of {len(solved)} tasks")
    return ""


def _reading(read: Reader, form: str) -> Policy:
    return partial(_answer, read, form)


def _answer(read: Reader, form: str, messages: list[Message]) -> str:
    said = "\n".join(text_of(message) for message in messages if message["role"] in ("system", "user"))
    return form.format(read(said))
