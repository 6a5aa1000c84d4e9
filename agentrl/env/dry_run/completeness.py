"""Whether an environment can teach anything: it needs a reward that counts, and enough turns to use its tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_args

from agentrl.env.base import Env
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.rewards import rewards_of
from agentrl.env.tools import tools_of
from agentrl.errors import ConfigError
from agentrl.types import Scope

MORE_TURNS = "write limits = Limits(max_turns=8), or as many turns as a solution takes"
UNPAID = (
    "there is nothing to learn from: write a @reward method, or score(ctx). Only a run with reward models, which score "
    "its episodes, needs neither (docs/reward-models.md)"
)


def check_complete(driver: EnvDriver, *, has_reward_models: bool = False) -> None:
    """Raise one ConfigError with everything that prevents learning in this environment.

    With reward models an environment needs no rewards of its own.
    """
    env_class = type(driver.env)
    faults = [*(() if has_reward_models else _rewards(env_class)), *_tools(driver)]
    if faults:
        raise ConfigError("\n".join(f"{env_class.__name__}: {fault}" for fault in faults))


def has_rewards(env_class: type[Env]) -> bool:
    """Return whether an environment has rewards of its own, which only a run with reward models does without."""
    return env_class.score is not Env.score or any(rewards_of(env_class, scope) for scope in get_args(Scope))


def _rewards(env_class: type[Env]) -> Iterator[str]:
    if env_class.score is not Env.score:
        return
    rewards = [reward for scope in get_args(Scope) for reward in rewards_of(env_class, scope)]
    if not has_rewards(env_class):
        yield UNPAID
    elif not any(reward.weight for reward in rewards):
        names = ", ".join(reward.name for reward in rewards)
        yield f"there is nothing to learn from: every reward has weight 0, which records without counting ({names})"


def _tools(driver: EnvDriver) -> Iterator[str]:
    if (tools := tools_of(type(driver.env))) and lacks_turns(driver):
        yield unread_tools(tools, driver)


def lacks_turns(driver: EnvDriver) -> bool:
    """Return whether episodes end before the model reads results of tools, which the author has not asked for.

    An environment with a `respond` of its own may end after the calls, because they are what it scores.
    """
    return driver.max_turns == 1 and type(driver.env).respond is Env.respond


def unread_tools(tools: Iterable[str], driver: EnvDriver) -> str:
    """Return what is wrong with an episode of one turn that offers these tools."""
    where = "limits leave" if driver.env.limits.max_turns == 1 else "--rollout.max_turns 1 leaves"
    return f"{where} one turn, so the model never reads what its tools ({', '.join(tools)}) return: {MORE_TURNS}"
