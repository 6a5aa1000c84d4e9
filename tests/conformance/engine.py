"""What every engine promises, as one suite: subclass `EngineConformance` and provide three fixtures.

`kit`: a `Kit`. `engine`: started, one version published, shared by the module. `disposable_engine`: started, nothing
published, one for each test that asks (three tests break it). In the subclassing module:

    pytestmark = pytest.mark.asyncio(loop_scope="module")
    @pytest_asyncio.fixture(loop_scope="module", scope="module")
    async def engine(kit): ...
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import pytest

from agentrl.engine.protocol import Engine
from agentrl.errors import DeadlineError, EngineDiedError, EngineRefusedError, WeightsError
from agentrl.types import Completion, Prompt, Sampling, Version

Fault = Literal["none", "dropped", "stale"]


class Kit(ABC):
    """What the suite must know of the engine under test."""

    prompt: Prompt
    vocab_size: int
    can_sleep: bool
    max_model_len: int
    tolerance: float  # largest difference of a logprob from the reference
    long_tokens: int  # a completion that takes long enough to meet an update
    quiet_s: float  # how long a paused engine is watched
    deadline_s: float  # for every call that must succeed
    death_s: float  # a death reaches every caller within it

    @abstractmethod
    async def update(self, engine: Engine, fault: Fault = "none") -> Version:
        """Send new, different weights to a paused engine, start_update to finish_update, with a fault on request."""

    @abstractmethod
    def reference(self, ids: Sequence[int], temperature: float, version: Version) -> Sequence[float]:
        """Logprobs of ids[1:], each given all before it, under the weights published as `version`."""

    @abstractmethod
    async def kill(self, engine: Engine) -> None:
        """End the engine's process as kill -9 does."""


async def publish(engine: Engine, kit: Kit) -> Version:
    """Pause, update, resume."""
    await engine.pause(kit.deadline_s)
    version = await kit.update(engine)
    await engine.resume(kit.deadline_s)
    return version


class EngineConformance:
    """The suite."""

    async def sample(self, engine: Engine, kit: Kit, **sampling: object) -> Completion:
        fields = {"max_tokens": 8, "seed": 1} | sampling
        return await engine.generate(kit.prompt, Sampling(**fields), kit.deadline_s)  # type: ignore[arg-type]

    async def begin_long(self, engine: Engine, kit: Kit, count: int = 4) -> list[asyncio.Task[Completion]]:
        """Long requests that have begun: one token of a request sent after them was sampled."""
        begun = [
            asyncio.create_task(self.sample(engine, kit, max_tokens=kit.long_tokens, seed=seed))
            for seed in range(count)
        ]
        await asyncio.sleep(0)
        await self.sample(engine, kit, max_tokens=1)
        assert not any(task.done() for task in begun), "long_tokens of the kit is too short for this engine"
        return begun

    def assert_aligned(self, kit: Kit, completion: Completion) -> None:
        """One logprob and one version for every id, all ids known, spans without gaps, versions never going back."""
        assert len(completion.ids) == len(completion.logprobs)
        assert all(0 <= token < kit.vocab_size for token in completion.ids)
        assert all(logprob <= 0 for logprob in completion.logprobs)
        position = 0
        for span in completion.versions:
            assert span.start == position < span.end
            position = span.end
        assert position == len(completion.ids)
        versions = [span.version for span in completion.versions]
        assert versions == sorted(set(versions))

    def assert_logprobs(self, kit: Kit, completion: Completion, temperature: float = 1.0) -> None:
        """Every logprob is that of the version its span names, in the very context it was sampled in."""
        ids = (*kit.prompt.ids, *completion.ids)
        for span in completion.versions:
            reference = kit.reference(ids, temperature, span.version)[len(kit.prompt.ids) - 1 :]
            expected = pytest.approx(list(reference[span.start : span.end]), abs=kit.tolerance)
            assert list(completion.logprobs[span.start : span.end]) == expected

    async def test_tokens_in_tokens_out(self, engine: Engine, kit: Kit) -> None:
        completion = await self.sample(engine, kit)
        self.assert_aligned(kit, completion)
        assert [span.version for span in completion.versions] == [await engine.version()]

    @pytest.mark.parametrize("temperature", [1.0, 0.7])
    async def test_logprobs_are_those_of_the_distribution_sampled_from(
        self, engine: Engine, kit: Kit, temperature: float
    ) -> None:
        self.assert_logprobs(kit, await self.sample(engine, kit, temperature=temperature), temperature)

    async def test_score_gives_the_logprobs_of_forced_tokens(self, engine: Engine, kit: Kit) -> None:
        version = await engine.version()
        assert version is not None
        ids = (*kit.prompt.ids, *reversed(kit.prompt.ids), kit.vocab_size - 1)
        scores = await engine.score(ids, kit.deadline_s)
        assert len(scores) == len(ids) - 1
        assert list(scores) == pytest.approx(list(kit.reference(ids, 1.0, version)), abs=kit.tolerance)

    async def test_score_of_a_sampled_sequence_is_its_sampled_logprobs(self, engine: Engine, kit: Kit) -> None:
        completion = await self.sample(engine, kit)
        scores = await engine.score((*kit.prompt.ids, *completion.ids), kit.deadline_s)
        tail = list(scores[len(kit.prompt.ids) - 1 :])
        assert tail == pytest.approx(list(completion.logprobs), abs=kit.tolerance)

    async def test_without_stop_tokens_a_completion_runs_to_its_length(self, engine: Engine, kit: Kit) -> None:
        completion = await self.sample(engine, kit, max_tokens=kit.long_tokens)
        assert (len(completion.ids), completion.finish_reason) == (kit.long_tokens, "length")

    async def test_a_stop_token_ends_the_completion_and_is_its_last_id(self, engine: Engine, kit: Kit) -> None:
        free = await self.sample(engine, kit)
        stop = free.ids[3]
        stopped = await self.sample(engine, kit, stop_token_ids=(stop,))
        assert stopped.ids == free.ids[: free.ids.index(stop) + 1]
        assert stopped.finish_reason == "stop"
        self.assert_aligned(kit, stopped)

    async def test_the_same_seed_gives_the_same_tokens_and_another_seed_others(self, engine: Engine, kit: Kit) -> None:
        first, again, other = [await self.sample(engine, kit, seed=seed) for seed in (7, 7, 8)]
        assert first.ids == again.ids
        assert first.ids != other.ids

    async def test_concurrent_requests_do_not_mix(self, engine: Engine, kit: Kit) -> None:
        completions = await asyncio.gather(*(self.sample(engine, kit, seed=seed) for seed in range(32)))
        assert len({completion.ids for completion in completions}) > 16
        for completion in completions:
            self.assert_aligned(kit, completion)
            self.assert_logprobs(kit, completion)

    async def test_a_prompt_that_leaves_no_room_is_refused(self, engine: Engine, kit: Kit) -> None:
        ids = kit.prompt.ids * (kit.max_model_len // len(kit.prompt.ids) + 1)
        with pytest.raises(EngineRefusedError):
            await engine.generate(Prompt(ids), Sampling(8), kit.deadline_s)

    async def test_cancelling_aborts_the_request_and_no_other(self, engine: Engine, kit: Kit) -> None:
        first, *others = await self.begin_long(engine, kit)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        for completion in await asyncio.gather(*others):
            assert len(completion.ids) == kit.long_tokens

    async def test_nothing_is_sampled_while_paused_and_everything_finishes_after(
        self, engine: Engine, kit: Kit
    ) -> None:
        begun = await self.begin_long(engine, kit)
        await engine.pause(kit.deadline_s)
        await engine.pause(kit.deadline_s)
        tasks = [*begun, asyncio.create_task(self.sample(engine, kit, max_tokens=1))]
        done, _ = await asyncio.wait(tasks, timeout=kit.quiet_s)
        assert not done
        await engine.resume(kit.deadline_s)
        await engine.resume(kit.deadline_s)
        completions = await asyncio.gather(*tasks)
        assert [len(completion.ids) for completion in completions] == [kit.long_tokens] * len(begun) + [1]
        for completion in completions:
            self.assert_aligned(kit, completion)
            self.assert_logprobs(kit, completion)

    async def test_a_deadline_ends_the_wait(self, engine: Engine, kit: Kit) -> None:
        await engine.pause(kit.deadline_s)
        with pytest.raises(DeadlineError):
            await engine.generate(kit.prompt, Sampling(1), 0.05)
        with pytest.raises(DeadlineError):
            await engine.score(kit.prompt.ids, 0.05)
        await engine.resume(kit.deadline_s)
        assert len((await self.sample(engine, kit)).ids) == 8

    async def test_an_update_in_mid_generation_is_seen_in_the_spans(self, engine: Engine, kit: Kit) -> None:
        old = await engine.version()
        begun = await self.begin_long(engine, kit)
        new = await publish(engine, kit)
        completions = await asyncio.gather(*begun)
        assert await engine.version() == new
        for completion in completions:
            assert len(completion.ids) == kit.long_tokens
            self.assert_aligned(kit, completion)
            self.assert_logprobs(kit, completion)
        assert any([span.version for span in c.versions] == [old, new] for c in completions)

    async def test_a_request_that_comes_during_an_update_waits_for_its_end(self, engine: Engine, kit: Kit) -> None:
        publishing = asyncio.create_task(publish(engine, kit))
        asked = []
        while not publishing.done():
            asked.append(asyncio.create_task(self.sample(engine, kit, max_tokens=1)))
            await asyncio.wait({publishing}, timeout=0.005)
        assert [len(completion.ids) for completion in await asyncio.gather(*asked)] == [1] * len(asked)

    async def test_new_weights_score_differently(self, engine: Engine, kit: Kit) -> None:
        before = await engine.score(kit.prompt.ids, kit.deadline_s)
        await publish(engine, kit)
        after = await engine.score(kit.prompt.ids, kit.deadline_s)
        assert max(abs(a - b) for a, b in zip(before, after, strict=True)) > 10 * kit.tolerance

    async def test_an_update_needs_a_paused_engine(self, engine: Engine, kit: Kit) -> None:
        with pytest.raises(EngineRefusedError):
            await engine.start_update(kit.deadline_s)

    async def test_it_sleeps_and_wakes_or_refuses(self, engine: Engine, kit: Kit) -> None:
        if not kit.can_sleep:
            with pytest.raises(EngineRefusedError):
                await engine.sleep(kit.deadline_s)
            with pytest.raises(EngineRefusedError):
                await engine.wake(kit.deadline_s)
            return
        await engine.sleep(kit.deadline_s)
        with pytest.raises(EngineRefusedError):
            await self.sample(engine, kit)
        await engine.wake(kit.deadline_s)
        assert await engine.version() is None
        with pytest.raises(EngineRefusedError):
            await self.sample(engine, kit)
        version = await publish(engine, kit)
        self.assert_logprobs(kit, completion := await self.sample(engine, kit))
        assert [span.version for span in completion.versions] == [version]

    @pytest.mark.parametrize("fault", ["dropped", "stale"])
    async def test_it_serves_nothing_before_its_weights_arrived_whole(
        self, disposable_engine: Engine, kit: Kit, fault: Fault
    ) -> None:
        assert await disposable_engine.version() is None
        with pytest.raises(EngineRefusedError):
            await self.sample(disposable_engine, kit)
        await disposable_engine.pause(kit.deadline_s)
        with pytest.raises(WeightsError):
            await kit.update(disposable_engine, fault)
        with pytest.raises(EngineRefusedError):
            await disposable_engine.resume(kit.deadline_s)
        with pytest.raises(EngineRefusedError):
            await self.sample(disposable_engine, kit)

    async def test_a_death_reaches_every_caller_at_once_and_closing_twice_is_fine(
        self, disposable_engine: Engine, kit: Kit
    ) -> None:
        await publish(disposable_engine, kit)
        begun = await self.begin_long(disposable_engine, kit)
        await kit.kill(disposable_engine)
        done, _ = await asyncio.wait(begun, timeout=kit.death_s)
        assert len(done) == len(begun)
        for task in begun:
            assert isinstance(task.exception(), EngineDiedError)
        for call in (self.sample(disposable_engine, kit), disposable_engine.score(kit.prompt.ids, kit.deadline_s)):
            with pytest.raises(EngineDiedError):
                await call
        await disposable_engine.close()
        await disposable_engine.close()
        with pytest.raises(EngineDiedError):
            await self.sample(disposable_engine, kit)
