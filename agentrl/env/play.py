"""Episodes played by hand: the members of one group, each by a policy, with every reward."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.env.base import Env, Policy
from agentrl.env.context import Episode
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.driver.loop import run_on_private_loop
from agentrl.env.tasks import Task
from agentrl.errors import EnvError
from agentrl.types import Message, StopReason

SILENCE = ""
TOOL_CALL = "<tool_call>"
CALLING = "a turn that calls tools is a message: Message(role='assistant', content='', tool_calls=[…])"


def play(env: Env, *policies: Policy, index: int = 0, split: str = "train", seed: int = 0) -> list[Episode]:
    """Play the task at `index` once for each policy, as the members of one group, and ask every reward.

    Each member has its own object, made with the config of `env`. The signals of an episode are those of its turns,
    its end and its group, as in training; a failed one is invalid and says why (`Signal.reason`).
    """
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
        await driver.reset(task, seed=seed, member=member)
        stop_reason = await _converse(driver, policy)
        signals = await driver.finish(stop_reason)
        is_judged = all(signal.valid or not signal.weight for signal in signals)
        success = await driver.success() if signals and is_judged else None
        return Episode(task, member, tuple(driver.ctx.messages), signals, stop_reason, success)
    finally:
        await driver.close()


async def _converse(driver: EnvDriver, policy: Policy) -> StopReason:
    for turn in range(driver.max_turns):
        if (await driver.step(turn_of(policy, turn, driver.ctx.messages))).done:
            return StopReason.ENV_DONE
    return StopReason.MAX_TURNS


def turn_of(policy: Policy, turn: int, messages: list[Message]) -> Message | str:
    """Return the policy's next turn; a list that has ended gives empty ones."""
    if callable(policy):
        text = policy(list(messages))
    elif isinstance(policy, str):
        raise EnvError(f"a policy is a list of turns: write [{policy!r}]")
    elif isinstance(policy, Sequence):
        text = policy[turn] if turn < len(policy) else SILENCE
    else:
        raise EnvError(f"a policy is a list of turns, or a function of the messages so far; this is {policy!r}")
    if isinstance(text, str) and TOOL_CALL in text:
        raise EnvError(f"only rehearse reads calls in text: here, {CALLING}")
    return text
