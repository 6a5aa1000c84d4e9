"""An environment played by hand: the members of one group, each by a policy, and every reward asked."""

from __future__ import annotations

from agentrl.env.base import Env, Policy
from agentrl.env.context import Episode
from agentrl.env.driver.loop import run_on_private_loop
from agentrl.env.tasks import Task
from agentrl.types import Message, StopReason

SILENCE = ""


def play(env: Env, *policies: Policy, index: int = 0, split: str = "train", seed: int = 0) -> list[Episode]:
    """Play the task at `index` once for each policy, as the members of a group are, and ask every reward.

    Each member has an env object of its own, made with the config of `env`. The signals of an episode are those of its
    turns, its end and its group, as in training: one that failed is invalid and says why (`Signal.reason`).
    """
    return run_on_private_loop(_played_at(env, policies, index, split, seed))


async def _played_at(env: Env, policies: tuple[Policy, ...], index: int, split: str, seed: int) -> list[Episode]:
    return await aplay(env, policies, await env.atask(split, index, seed), seed)


async def aplay(env: Env, policies: tuple[Policy, ...], task: Task, seed: int = 0, max_turns: int = 0) -> list[Episode]:
    """`play` of a task on the running loop; raises what an environment's own code raised outside its rewards."""
    episodes = [await _member(env, policy, task, seed, member, max_turns) for member, policy in enumerate(policies)]
    rows = await env.agroup(episodes)
    return [episode.with_signals(row) for episode, row in zip(episodes, rows, strict=True)]


async def _member(env: Env, policy: Policy, task: Task, seed: int, member: int, max_turns: int) -> Episode:
    own = type(env)(env.config)
    try:
        await own.areset(task, seed=seed, member=member)
        stop_reason = await _conversed(own, policy, max_turns or own.limits.max_turns)
        signals = await own.afinish(stop_reason)
        is_judged = all(signal.valid or not signal.weight for signal in signals)
        success = await own.asuccess() if signals and is_judged else None
        return Episode(task, member, tuple(own.ctx.messages), signals, stop_reason, success)
    finally:
        await own.aclose()


async def _conversed(env: Env, policy: Policy, max_turns: int) -> StopReason:
    for turn in range(max_turns):
        if (await env.astep(_turn(policy, turn, env.ctx.messages))).done:
            return StopReason.ENV_DONE
    return StopReason.MAX_TURNS


def _turn(policy: Policy, turn: int, messages: list[Message]) -> Message | str:
    """What the policy says; one that has no more turns to say is silent."""
    if callable(policy):
        return policy(list(messages))
    return policy[turn] if turn < len(policy) else SILENCE
