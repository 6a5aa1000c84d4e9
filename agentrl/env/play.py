"""Episodes played by hand: the members of one group, each by a policy, with every reward."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from agentrl.env.base import Env, Policy
from agentrl.env.context import Episode, Start, StepResult
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.driver.loop import run_on_private_loop
from agentrl.env.policies import checked_policy, turn_of
from agentrl.env.tasks import Task, check_choice
from agentrl.types import Signal, StopReason


def play(env: Env, *policies: Policy, index: int = 0, split: str = "train", seed: int = 0) -> list[Episode]:
    """Play the task at `index` once for each policy, as the members of one group, and compute every reward.

    Each member has its own object, made with the config of `env`. The signals of an episode are those of its turns,
    its end and its group, as in training; a failed one is invalid and says why (`Signal.reason`).
    Raises ConfigError for an unknown split.
    """
    check_choice(split, index)
    return run_on_private_loop(_play_index(env, policies, index, split, seed))


async def _play_index(env: Env, policies: tuple[Policy, ...], index: int, split: str, seed: int) -> list[Episode]:
    return await aplay(env, policies, await EnvDriver(env).task(split, index, seed), seed)


async def aplay(env: Env, policies: tuple[Policy, ...], task: Task, seed: int = 0, max_turns: int = 0) -> list[Episode]:
    """Play a task on the running loop, as `play` does. Raises what the environment's code raises outside rewards."""
    episodes = []
    for member, policy in enumerate(policies):
        driver = EnvDriver(type(env)(env.config), max_turns)
        episodes.append(await _episode(driver, policy, task, seed, member))
    rows = await EnvDriver(env).score_group(episodes)
    return [episode.with_signals(row) for episode, row in zip(episodes, rows, strict=True)]


async def _episode(driver: EnvDriver, policy: Policy, task: Task, seed: int, member: int) -> Episode:
    try:
        async for _ in walk(driver, policy, task, seed=seed, member=member):
            pass
        ctx = driver.ctx
        is_judged = all(signal.valid or not signal.weight for signal in ctx.signals)
        success = await driver.success() if ctx.signals and is_judged else None
        assert ctx.stop_reason is not None, "the episode has ended"
        return Episode(task, member, ctx.messages, tuple(ctx.signals), ctx.stop_reason, success)
    finally:
        await driver.close()


async def walk(
    driver: EnvDriver, policy: Policy, task: Task, *, seed: int = 0, member: int = 0
) -> AsyncGenerator[Start | StepResult | tuple[Signal, ...], None]:
    """Play an episode; yield what the environment returns at the reset, after each turn and at the final scoring."""
    checked_policy(policy)
    yield await driver.reset(task, seed=seed, member=member)
    stop_reason = StopReason.MAX_TURNS
    for turn in range(driver.max_turns):
        result = await driver.step(turn_of(policy, turn, driver.ctx.messages))
        yield result
        if result.done:
            stop_reason = driver.done_reason
            break
    yield await driver.finish(stop_reason)
