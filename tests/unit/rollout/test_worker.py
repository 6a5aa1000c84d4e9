"""A worker runs thousands of episodes at once, scores groups, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrl.engine.scripted import Delay, Sampled, ScriptedEngine
from agentrl.errors import UnknownNameError
from agentrl.rollout.worker import RolloutWorker
from agentrl.types import SampleId, StopReason, Trajectory
from tests.unit.rollout.cases import Chat, Listening, Pooled, check_law_1, request
from tests.unit.rollout.templates import encode, tokenizer

Make = Callable[..., RolloutWorker]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.fixture
async def make(model: str, tmp_path: Path) -> AsyncIterator[Make]:
    """Makes workers on an env file that defines a subclass of one of `cases`, and closes them."""
    workers: list[RolloutWorker] = []

    def worker(engine: Any, env: str = "Chat", **options: Any) -> RolloutWorker:
        file = tmp_path / f"my_{env.lower()}.py"
        file.write_text(f"from tests.unit.rollout.cases import {env}\n\n\nclass Mine({env}):\n    pass\n")
        workers.append(RolloutWorker(str(file), options, model, engine, max_context=4000))
        return workers[-1]

    yield worker
    for made in workers:
        await made.close()


async def engine(*script: Any) -> Listening:
    return Listening(
        await ScriptedEngine.ready(
            script or (Sampled(),), encode=lambda text: encode(tokenizer(), text), vocab_size=len(tokenizer())
        )
    )


def actions(trajectory: Trajectory) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Each action of a trajectory with all that came before it in its sequence."""
    for sequence in trajectory.sequences:
        before: tuple[int, ...] = ()
        for segment in sequence.segments:
            if segment.is_action:
                yield before, segment.ids
            before += segment.ids


async def test_a_thousand_episodes_at_once_keep_law_1_and_leave_no_task(make: Make) -> None:
    together = asyncio.Event()
    waiting = 0

    async def meet() -> None:
        nonlocal waiting
        waiting += 1
        if waiting == 1000:
            together.set()
        await together.wait()

    heard = await engine(Delay(meet, Sampled()))
    worker = make(heard, turns=2)
    before = asyncio.all_tasks()
    requests = [request(i % 8, sample=SampleId(i // 8, i % 8), task_index=i // 8) for i in range(1000)]
    trajectories = await asyncio.gather(*(worker.run(o) for o in requests))
    assert asyncio.all_tasks() == before
    assert [t.sample for t in trajectories] == [o.sample for o in requests]
    calls = collections.Counter((prompt.ids, completion.ids) for prompt, _, completion in heard.calls)
    assert calls == collections.Counter(action for t in trajectories for action in actions(t))
    assert collections.Counter(len(t.sequences) for t in trajectories) == {1: 1000}


async def test_one_alone_is_recorded_exactly(make: Make) -> None:
    heard = await engine()
    check_law_1(await make(heard).run(request()), heard.calls)


async def test_the_turns_of_an_attempt_go_where_their_prefix_is(make: Make) -> None:
    heard = await engine()
    worker = make(heard)
    await asyncio.gather(worker.run(request(0)), worker.run(request(1)), worker.run(request(1, attempt=1)))
    assert sorted(collections.Counter(heard.keys).values()) == [3, 3, 3]


@pytest.mark.parametrize(("env", "options"), [("Ranked", {"turns": 1}), ("RankedAgent", {})])
async def test_group_rewards_see_the_whole_group_and_add_to_the_rest(
    make: Make, env: str, options: dict[str, Any]
) -> None:
    worker = make(await engine("a", "abc", "ab"), env, **options)
    assert await worker.has_group_rewards()
    group = await asyncio.gather(*(worker.run(request(member)) for member in range(3)))
    rewards = {"a": 1 + 0, "ab": 2 + 2, "abc": 3 + 4}
    said = [str(t.messages[-1]["content"]) for t in group]
    assert sorted(said) == sorted(rewards)
    assert [t.reward for t in await worker.score_group(group)] == [rewards[text] for text in said]


async def test_members_without_a_score_are_no_part_of_the_comparison(make: Make) -> None:
    worker = make(await engine("a", "abc"), "Ranked", turns=1)
    failing = make(await engine("abcdef"), "Ranked", turns=1, fault="respond")
    group = [await worker.run(request(0)), await failing.run(request(1)), await worker.run(request(2))]
    scored = await worker.score_group(group)
    assert scored[1] == group[1]
    assert [len(t.signals) for t in scored] == [2, 0, 2]
    assert [t.signals[-1].value for t in scored if t.signals] == [0.0, 1.0]


async def test_an_episode_without_an_answer_is_no_part_of_the_comparison(make: Make) -> None:
    worker = make(await engine("a", "abc"), "Ranked", turns=1)
    said = [await worker.run(request(member)) for member in range(2)]
    mute = dataclasses.replace(
        said[0], sample=SampleId(0, 2), sequences=(), stop_reason=StopReason.CONTEXT_OVERFLOW, signals=()
    )
    scored = await worker.score_group([*said, mute])
    assert scored[2] == mute
    assert [t.signals[-1].value for t in scored[:2]] == [0.0, 1.0]


async def test_a_failing_group_reward_leaves_no_reward_instead_of_0(make: Make) -> None:
    worker = make(await engine("a", "abc"), "Ranked", turns=1, fault="rank")
    group = [await worker.run(request(member)) for member in range(2)]
    scored = await worker.score_group(group)
    assert [t.stop_reason for t in scored] == [StopReason.VERIFIER_ERROR] * 2
    assert not any(t.is_valid for t in scored)
    assert "tripped" in scored[0].error


async def test_a_task_that_cannot_be_loaded_ends_the_episode_with_its_reason(make: Make) -> None:
    worker = make(await engine("a"))
    assert await worker.task_count("train") == 1000
    trajectory = await worker.run(request(task_index=5000))
    assert (trajectory.stop_reason, trajectory.task_id) == (StopReason.ENV_ERROR, "5000")
    assert "5000" in trajectory.error


async def test_closing_cancels_what_runs_and_tears_it_down(make: Make) -> None:
    Chat.torn_down.clear()
    reached = asyncio.Event()

    async def never() -> None:
        reached.set()
        await asyncio.Event().wait()

    worker = make(await engine(Delay(never, "a")))
    running = [asyncio.ensure_future(worker.run(request(member))) for member in range(3)]
    await asyncio.wait_for(reached.wait(), 5)
    await worker.close()
    assert all(task.cancelled() for task in running)
    assert sorted(Chat.torn_down) == [0, 1, 2]
    await worker.close()


async def test_what_episodes_share_is_made_once_and_closed_with_the_worker(make: Make) -> None:
    worker = make(await engine("a"), "Pooled")
    await asyncio.gather(*(worker.run(request(member)) for member in range(4)))
    assert Pooled.open_pools == ["pool"]
    await worker.close()
    assert Pooled.open_pools == []


async def test_an_unknown_environment_is_refused_at_once(model: str) -> None:
    with pytest.raises(UnknownNameError, match="maths"):
        RolloutWorker("maths", {}, model, await engine(), 100)
