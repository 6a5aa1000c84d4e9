"""Env: the class that an author of environments writes."""
# ruff: noqa: ARG002  (the default methods ignore arguments that an author's own use)

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from agentrl.env.attributes import check_assignment, check_options, checked_names
from agentrl.env.config import EnvConfig, Limits, env_config
from agentrl.env.context import Context, Reply, Turn
from agentrl.env.definition import check_definition
from agentrl.env.rewards import passes
from agentrl.env.tasks import Task, Tasks
from agentrl.env.tools import Tool
from agentrl.types import Message, Signal

T = TypeVar("T")
MaybeAsync: TypeAlias = T | Awaitable[T]
Offer: TypeAlias = Tool | AbstractAsyncContextManager[Any] | object
"""A Tool, an object with `@tool` methods, or an async context manager that yields some of these."""
Policy = Sequence[Message | str] | Callable[[list[Message]], Message | str]
"""The assistant's side: its turns in order, or a function of the messages so far."""


class Env(ABC):
    """An environment: its tasks, its messages and its rewards. One object per episode, so keep it cheap to create.

    Write `tasks` and `setup`, and `@reward` methods or `score`; `respond` for several turns; `@tool` methods for tools.
    Every method may be `async def` or plain. Plain methods run in a thread, where they may block; with
    `blocking = False` they run on the event loop itself, which suits code that takes microseconds and never waits.
    """

    Config: ClassVar[type[EnvConfig]] = EnvConfig
    """Schema of the `--env.*` keys."""
    limits: Limits = Limits()
    blocking: ClassVar[bool] = True
    solved_reward: float | None = None
    """What a solved episode earns at least; None: 1, or whatever a `success` of the class says is solved."""
    wraps: ClassVar[tuple[str, ...]] = ()
    """Installed distributions, and folders or files by their absolute paths, whose code decides what episodes do.

    A run records and compares their hashes.
    """
    _drives: ClassVar[bool] = False
    """The author's `play` drives the episode (`AgentEnv`)."""

    config: Any
    """The object's configuration, an instance of `Config`."""
    ctx: Context
    """The running episode, for methods that do not take it as an argument; available from `tools` to `teardown`."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        check_definition(cls)

    def __init__(self, config: EnvConfig | None = None, **options: Any) -> None:
        check_options(type(self), config, options)
        vars(self)["config"] = config if config is not None else env_config(type(self), options)

    if not TYPE_CHECKING:  # type checkers accept every attribute of a class with __setattr__

        def __setattr__(self, name: str, value: Any) -> None:
            if name in checked_names(type(self)):
                check_assignment(self, name, value)
            super().__setattr__(name, value)

    def preflight(self) -> str:
        """Check that this machine can run the environment. Returns a one-line summary, or an empty string.

        Called once per run, before anything heavy starts. Raise an error that says what is missing and what to do.
        """
        return ""

    @abstractmethod
    def tasks(self, split: str) -> MaybeAsync[Tasks]:
        """Return the tasks of "train" or "test"; `agentrl.env.tasks.Tasks` lists the accepted types."""

    def tools(self, ctx: Context) -> MaybeAsync[Iterable[Offer]]:
        """Tools of this episode in addition to the `@tool` methods. Called before `setup`.

        An async context manager is entered at once and left after `teardown`, each within its deadline.
        """
        return ()

    @abstractmethod
    def setup(self, task: Task, ctx: Context) -> MaybeAsync[list[Message]]:
        """Begin an episode and return its first messages."""

    def respond(self, turn: Turn, ctx: Context) -> MaybeAsync[Reply]:
        """Answer a turn. By default the episode continues while the assistant calls tools, and ends otherwise."""
        return Reply.go_on() if turn.results else Reply.end()

    def score(self, ctx: Context) -> MaybeAsync[Sequence[Signal] | Signal | float]:
        """Score the finished episode. Without this method its `@reward` methods do."""
        return ()

    def success(self, ctx: Context) -> MaybeAsync[bool]:
        """Return whether a finished episode solved its task, as counted by pass@k of an evaluation.

        Called in evaluations after scoring; `ctx.signals` contains the rewards. Without this method the rewards
        decide, those of the group included (see `agentrl.env.rewards.passes`).
        """
        return passes(ctx.signals)

    def teardown(self, ctx: Context) -> MaybeAsync[None]:  # noqa: B027 (may be left out)
        """Release what `setup` acquired. Runs once, however the episode ended."""

    def oracle(self, task: Task) -> Policy | None:
        """Return a policy that solves this task, which proves that it can be solved; None if no solution is known."""
        return None

    def canaries(self, task: Task) -> Mapping[str, Policy]:
        """Policies that must not score well, by a name for what each of them tries."""
        return {}
