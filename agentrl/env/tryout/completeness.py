"""Whether an environment can teach anything: it has rewards that count, and room for the tools it lends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_args

from agentrl.env.base import Env
from agentrl.env.rewards import rewards_of
from agentrl.env.tools import tools_of
from agentrl.errors import ConfigError
from agentrl.types import Scope

SIGNALLING = ("score", "astep", "afinish", "agroup")
"""Methods that may bring signals of their own."""


def check_complete(env: Env, max_turns: int = 0) -> None:
    """Raise one ConfigError with everything that keeps `env` from teaching; `max_turns` is the run's (0: the env's)."""
    faults = [*_rewards(type(env)), *_tools(env, max_turns)]
    if faults:
        raise ConfigError("\n".join(f"{type(env).__name__}: {fault}" for fault in faults))


def _rewards(env_class: type[Env]) -> Iterator[str]:
    if any(getattr(env_class, name) is not getattr(Env, name) for name in SIGNALLING):
        return
    rewards = [reward for scope in get_args(Scope) for reward in rewards_of(env_class, scope)]
    if not rewards:
        yield "there is nothing to learn from: write a @reward method, or score(ctx)"
    elif not any(reward.weight for reward in rewards):
        names = ", ".join(reward.name for reward in rewards)
        yield f"there is nothing to learn from: every reward has weight 0, which records without counting ({names})"


def _tools(env: Env, max_turns: int) -> Iterator[str]:
    if (tools := tools_of(type(env))) and has_one_turn(env, max_turns):
        yield unread(tools, max_turns)


def has_one_turn(env: Env, max_turns: int) -> bool:
    """True where an episode has one turn; `max_turns` is the run's (0: the env's)."""
    return (max_turns or env.limits.max_turns) == 1


def unread(tools: Iterable[str], max_turns: int) -> str:
    """What is wrong with an episode of one turn that offers these tools."""
    where = "--rollout.max_turns 1 leaves" if max_turns else "limits leave"
    return (
        f"{where} one turn, so the model never reads what its tools ({', '.join(tools)}) answer: "
        "write limits = Limits(max_turns=8), or what a solution takes"
    )
