"""What one episode is made of: its context, its turns, and what the two sides say to each other."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

from agentrl.env.tasks import Task
from agentrl.env.tools import Tool
from agentrl.env.tooltime import ToolTime
from agentrl.types import Message, Signal, StopReason, ToolCall, ToolSpec, Trajectory, text_of


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the assistant, and what its tool calls answered (one tool message each, in order)."""

    index: int
    message: Message
    results: tuple[Message, ...] = ()

    @property
    def text(self) -> str:
        """What the assistant said, as plain text."""
        return text_of(self.message)

    @property
    def tool_calls(self) -> Sequence[ToolCall]:
        """The tool calls the assistant made."""
        return self.message.get("tool_calls") or ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What an environment answers to a turn: new messages, and whether the episode is over."""

    messages: tuple[Message, ...] = ()
    done: bool = True

    @classmethod
    def say(cls, text: str) -> Reply:
        """Answer as the user and go on."""
        return cls(({"role": "user", "content": text},), done=False)

    @classmethod
    def end(cls) -> Reply:
        """The episode is over."""
        return cls()

    @classmethod
    def go_on(cls) -> Reply:
        """Nothing to add (the tools have answered); the assistant's turn again."""
        return cls(done=False)


@dataclass(slots=True)
class Context:
    """Everything an author knows of the running episode. `state` is the author's own; `tools` are the model's."""

    task: Task
    seed: int
    member: int
    rng: random.Random
    ends_at: float
    tool_time: ToolTime
    messages: list[Message] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    state: SimpleNamespace = field(default_factory=SimpleNamespace)
    tools: dict[str, Tool] = field(default_factory=dict)
    stop_reason: StopReason | None = None

    @classmethod
    def begin(cls, task: Task, seed: int, member: int, deadline_s: float) -> Context:
        """A fresh context; its randomness follows from (seed, split, task index, member) and nothing else."""
        rng = random.Random(f"{seed}/{task.split}/{task.index}/{member}")
        return cls(task, seed, member, rng, time.monotonic() + deadline_s, ToolTime.of(deadline_s))

    @property
    def split(self) -> str:
        """The split that the task is from."""
        return self.task.split

    @property
    def text(self) -> str:
        """What the assistant said last ('' before its first turn)."""
        return self.turns[-1].text if self.turns else ""

    @property
    def time_left_s(self) -> float:
        """Seconds until the episode's deadline."""
        return self.ends_at - time.monotonic()


@dataclass(frozen=True, slots=True)
class Start:
    """The first messages of an episode and the tools the assistant has."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]


@dataclass(frozen=True, slots=True)
class StepResult:
    """The messages a turn brought, whether the episode is over, and the rewards of this turn."""

    messages: tuple[Message, ...]
    done: bool
    signals: tuple[Signal, ...]


@dataclass(frozen=True, slots=True)
class Episode:
    """A finished episode, as a group reward sees it."""

    task: Task
    member: int
    messages: tuple[Message, ...]
    signals: tuple[Signal, ...]
    stop_reason: StopReason
    success: Signal | None = None
    """What the environment's own `success` said, where it has one and was asked."""

    @classmethod
    def of(cls, task: Task, trajectory: Trajectory) -> Episode:
        """The author's view of a trajectory: messages, no tokens."""
        t = trajectory
        return cls(task, t.sample.member, t.messages, t.signals, t.stop_reason)

    def with_signals(self, signals: Sequence[Signal]) -> Episode:
        """The same episode, with more said of it."""
        return replace(self, signals=(*self.signals, *signals))

    @property
    def reward(self) -> float:
        """The weighted sum of its signals so far; those without a value are left out."""
        return sum(s.weight * s.value for s in self.signals if s.valid and s.value is not None)

    @property
    def text(self) -> str:
        """What the assistant said last ('' when it never spoke)."""
        spoken = [m for m in self.messages if m["role"] == "assistant"]
        return text_of(spoken[-1]) if spoken else ""
