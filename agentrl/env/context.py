"""The parts of an episode: its context, turns and replies."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from agentrl.env.tasks import Task
from agentrl.env.tools import Tool
from agentrl.env.tooltime import SHARE, ToolTime
from agentrl.errors import EnvError
from agentrl.types import Message, Signal, StopReason, ToolCall, ToolSpec, Trajectory, text_of


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the assistant with the results of its tool calls: one tool message each, in order."""

    index: int
    message: Message
    results: tuple[Message, ...] = ()
    agent: str = ""
    """The agent that speaks, where an episode has several."""

    @property
    def text(self) -> str:
        """The assistant's message as plain text."""
        return text_of(self.message)

    @property
    def tool_calls(self) -> Sequence[ToolCall]:
        """The tool calls the assistant made."""
        return self.message.get("tool_calls") or ()


@dataclass(frozen=True, slots=True)
class Reply:
    """An environment's answer to a turn: new messages, and whether the episode is over."""

    messages: tuple[Message, ...] = ()
    done: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.done, bool | np.bool_):
            raise EnvError(f"Reply(done={self.done!r}): done is True or False")

    @classmethod
    def say(cls, text: str) -> Reply:
        """Answer as the user and continue."""
        return cls(({"role": "user", "content": text},), done=False)

    @classmethod
    def end(cls) -> Reply:
        """End the episode."""
        return cls()

    @classmethod
    def go_on(cls) -> Reply:
        """Continue without a message, for example because the tools have answered."""
        return cls(done=False)


@dataclass(slots=True)
class Context:
    """State of the running episode. `state` belongs to the author; `tools` are those of the model.

    `messages` is a tuple: an episode adds messages to its prompt by what `setup` and `respond` return.
    """

    task: Task
    seed: int
    member: int
    rng: random.Random
    ends_at: float
    tool_time: ToolTime
    messages: tuple[Message, ...] = ()
    turns: list[Turn] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    state: SimpleNamespace = field(default_factory=SimpleNamespace)
    tools: dict[str, Tool] = field(default_factory=dict)
    stop_reason: StopReason | None = None
    result: Any = None
    """What `AgentEnv.play` returned."""

    @classmethod
    def begin(cls, task: Task, seed: int, member: int, deadline_s: float) -> Context:
        """Return a new context; its randomness depends only on (seed, split, task index, member)."""
        rng = random.Random(f"{seed}/{task.split}/{task.index}/{member}")
        return cls(task, seed, member, rng, time.monotonic() + deadline_s, ToolTime(SHARE * deadline_s))

    @property
    def split(self) -> str:
        """The task's split."""
        return self.task.split

    @property
    def text(self) -> str:
        """The assistant's last message as text; '' before its first turn."""
        return self.turns[-1].text if self.turns else ""

    @property
    def time_left_s(self) -> float:
        """Seconds until the episode's deadline."""
        return self.ends_at - time.monotonic()


@dataclass(frozen=True, slots=True)
class Start:
    """The first messages of an episode and the assistant's tools."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]


@dataclass(frozen=True, slots=True)
class StepResult:
    """Result of a turn: the new messages, whether the episode is over, and the signals of this turn."""

    messages: tuple[Message, ...]
    done: bool
    signals: tuple[Signal, ...]


@dataclass(frozen=True, slots=True)
class Episode:
    """A finished episode, as group rewards receive it."""

    task: Task
    member: int
    messages: tuple[Message, ...]
    signals: tuple[Signal, ...]
    stop_reason: StopReason
    success: Signal | None = None
    """Result of the environment's own `success`, if it has one and was called."""

    @classmethod
    def of(cls, task: Task, trajectory: Trajectory) -> Episode:
        """Return the author's view of a trajectory: messages without tokens."""
        t = trajectory
        return cls(task, t.sample.member, t.messages, t.signals, t.stop_reason)

    def with_signals(self, signals: Sequence[Signal]) -> Episode:
        """Return the same episode with further signals."""
        return replace(self, signals=(*self.signals, *signals))

    @property
    def reward(self) -> float:
        """The weighted sum of its valid signals."""
        return sum(s.weight * s.value for s in self.signals if s.valid and s.value is not None)

    @property
    def text(self) -> str:
        """The assistant's last message as text; '' if there is none."""
        replies = [m for m in self.messages if m["role"] == "assistant"]
        return text_of(replies[-1]) if replies else ""
