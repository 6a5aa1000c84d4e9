"""Agents that write token ids: exactly what the engine received and sampled is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from agentrl.endpoint import Tokens
from agentrl.engine.scripted import Raise, ScriptedEngine
from agentrl.env import AgentEnv, Context, Limits, Model, Task, Tasks, play, reward
from agentrl.errors import EngineError
from agentrl.rollout.episode import EpisodeRunner
from agentrl.types import StopReason, Trajectory
from tests.unit.rollout.cases import Listening, check_law_1, request, stage
from tests.unit.rollout.templates import encode, tokenizer

Agent = Callable[[Tokens], Awaitable[object]]


class Played(AgentEnv):
    """Whose agent is a function of the test."""

    blocking = False
    limits = Limits(max_turns=8)
    agent: Agent

    def tasks(self, split: str) -> Tasks:
        return [Task(f"{split}-{i}", i) for i in range(100)]

    async def play(self, task: Task, ctx: Context, model: Model) -> object:
        return await type(self).agent(model.tokens)

    @reward
    def good(self, ctx: Context) -> float:
        return 1.0


def of(agent: Agent) -> type[AgentEnv]:
    return type("Mine", (Played,), {"agent": staticmethod(agent)})


async def run(agent: Agent, *script: Any, context: int = 4000, **changes: Any) -> tuple[Trajectory, Listening]:
    engine = await ScriptedEngine.ready(
        script or ("four", "five"),
        encode=lambda text: encode(tokenizer(), text),
        vocab_size=len(tokenizer()),
        max_model_len=context,
    )
    heard = Listening(engine)
    runtime = stage(heard, of(agent), context)
    try:
        return await EpisodeRunner(request(**{"max_tokens": 200, **changes}), runtime).run(), heard
    finally:
        await runtime.endpoint.close()


def ids_of(tokens: Tokens, text: str) -> list[int]:
    return list(tokens.tokenizer.encode(text, add_special_tokens=False))


async def twice(tokens: Tokens) -> None:
    ids = ids_of(tokens, "one?")
    ids += (await tokens.generate(ids)).ids
    await tokens.generate(ids + ids_of(tokens, "two?"))


async def test_a_prompt_that_continues_is_one_sequence_of_the_sampled_tokens() -> None:
    trajectory, heard = await run(twice)
    assert (trajectory.stop_reason, trajectory.error, trajectory.turns) == (StopReason.AGENT_DONE, "", 2)
    assert (len(trajectory.sequences), trajectory.reward) == (1, 1.0)
    check_law_1(trajectory, heard.calls)
    assert [(m["role"], m["content"]) for m in trajectory.messages] == [
        ("user", "one?"), ("assistant", "four"), ("user", "two?"), ("assistant", "five"),
    ]  # fmt: skip


async def test_any_other_prompt_is_context_of_a_sequence_of_its_own() -> None:
    async def rewriting(tokens: Tokens) -> None:
        ids = ids_of(tokens, "one?")
        completion = await tokens.generate(ids)
        await tokens.generate([*ids, *completion.ids[:-1], *ids_of(tokens, "two?")])
        await asyncio.gather(*(tokens.generate(ids_of(tokens, "three?")) for _ in range(3)))

    trajectory, heard = await run(rewriting)
    assert [sum(sequence.mask) for sequence in trajectory.sequences] == [len(c.ids) for _, _, c in heard.calls]
    check_law_1(trajectory, heard.calls)


async def test_a_prompt_continues_the_longest_context_that_it_begins_with() -> None:
    async def two(tokens: Tokens) -> None:
        ids = ids_of(tokens, "one?")
        first = [*ids, *(await tokens.generate(ids)).ids]
        longer = [*first, *ids_of(tokens, "more")]
        longer += (await tokens.generate(longer)).ids
        await tokens.generate(first)  # its branch has gone on
        await tokens.generate(longer)

    trajectory, heard = await run(two, "four", "five", "six", "seven")
    assert [sum(s.is_action for s in sequence.segments) for sequence in trajectory.sequences] == [3, 1]
    assert len(heard.calls) == 4


async def test_limits_end_the_episode_as_in_every_mode() -> None:
    async def long(tokens: Tokens) -> None:
        await tokens.generate(ids_of(tokens, "one?"))
        await tokens.generate([7] * tokens.max_context)

    trajectory, _ = await run(long, context=300)
    assert (trajectory.stop_reason, trajectory.reward) == (StopReason.CONTEXT_OVERFLOW, 1.0)
    trajectory, _ = await run(twice, max_turns=1)
    assert (trajectory.stop_reason, trajectory.turns) == (StopReason.MAX_TURNS, 1)
    trajectory, _ = await run(twice, Raise(EngineError("gone")))
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.MODEL_ERROR, False)


def test_without_a_model_tokens_are_bytes() -> None:
    [episode] = play(of(twice)(), ["four", "five"])
    assert [m["content"] for m in episode.messages] == ["one?", "four", "two?", "five"]
