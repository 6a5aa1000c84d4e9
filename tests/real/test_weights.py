"""Law 4 on a real engine: it serves exactly the learner's weights; verification and canary each catch each fault."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from agentrl.engine.vllm.engine import VllmEngine
from agentrl.errors import EngineRefusedError, WeightsError
from agentrl.types import Completion, Prompt, Sampling, VersionSpan
from agentrl.weights.canary import FLOAT32_TOLERANCE, LogprobCanary
from agentrl.weights.collective import Source, SyncClient
from agentrl.weights.staging import StagedBucket
from tests.real.vllm_kit import DEADLINE_S, UNCLOSED, Trainer, in_worker, model_at, publish, skip_a_layer, spec
from tests.tiny import tiny_tokenizer

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings(UNCLOSED),
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]
CANARY = tuple(range(20, 84))
EOS = 2


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    return Trainer(model_at(tmp_path_factory.mktemp("model")), tmp_path_factory.mktemp("scratch"))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine(trainer: Trainer) -> AsyncIterator[VllmEngine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")
        engine = VllmEngine(spec(trainer.folder))
        await engine.start(240.0)
        yield engine
        await engine.close()


@pytest_asyncio.fixture(loop_scope="module")
async def whole(engine: VllmEngine, trainer: Trainer) -> VllmEngine:
    """The engine, serving the trainer's newest version and nothing else."""
    await deliver(engine, trainer)
    return engine


async def deliver(engine: Any, trainer: Trainer) -> float:
    """Train one step and publish it; returns the canary's largest difference."""
    trainer.step()
    timings, replaced = await publish(trainer, engine, canary=LogprobCanary(CANARY, "float32"))
    assert replaced == {}
    return timings.canary


async def without_verification(engine: VllmEngine) -> None:
    """Leave the canary alone with the next faults."""

    def believe(worker: Any) -> None:
        worker.worker.verify_weights = lambda promised: ""

    await in_worker(engine, believe)


class Faulty:
    """An engine that loses a layer inside the worker, or its last bucket on the way, or gets an older one for it."""

    def __init__(self, engine: VllmEngine, fault: str, buckets: Sequence[StagedBucket]) -> None:
        self.engine, self._fault, self._old = engine, fault, buckets
        self._loaded = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    async def start_update(self, deadline_s: float) -> None:
        await self.engine.start_update(deadline_s)
        if self._fault == "stale layer":
            await skip_a_layer(self.engine)

    async def load(self, bucket: dict[str, Any], deadline_s: float) -> None:
        self._loaded += 1
        is_last = self._loaded == len(self._old)
        if is_last and self._fault == "stale tensor":
            bucket = self._old[-1].load
        if not (is_last and self._fault == "dropped bucket"):
            await self.engine.load(bucket, deadline_s)


async def test_a_publication_passes_verification_and_canary_and_names_every_token(
    whole: VllmEngine, trainer: Trainer
) -> None:
    assert await deliver(whole, trainer) <= FLOAT32_TOLERANCE
    completion = await whole.generate(Prompt((5, 6, 7)), Sampling(16, seed=1), DEADLINE_S)
    assert completion.versions == (VersionSpan(trainer.version, 0, len(completion.ids)),)


async def test_publications_in_mid_generation_keep_requests_and_logprobs(whole: VllmEngine, trainer: Trainer) -> None:
    async def sample(seed: int) -> Completion:
        return await whole.generate(Prompt((5, 6, 7, seed)), Sampling(450, temperature=0.7, seed=seed), DEADLINE_S)

    requests = [asyncio.create_task(sample(seed)) for seed in range(8, 24)]
    await whole.generate(Prompt((5,)), Sampling(1), DEADLINE_S)
    await deliver(whole, trainer)
    await whole.generate(Prompt((5,)), Sampling(1), DEADLINE_S)
    await deliver(whole, trainer)
    completions = await asyncio.gather(*requests)
    assert max(len(completion.versions) for completion in completions) == 3
    for seed, completion in zip(range(8, 24), completions, strict=True):
        for span in completion.versions:
            expected = trainer.logprobs((5, 6, 7, seed, *completion.ids), 0.7, span.version)[3:]
            sampled = list(completion.logprobs[span.start : span.end])
            assert sampled == pytest.approx(expected[span.start : span.end], abs=FLOAT32_TOLERANCE)


async def test_the_end_token_ends_a_completion_where_it_is_a_stop_token_and_only_there(whole: VllmEngine) -> None:
    async def sample(seed: int, stop: tuple[int, ...]) -> Completion:
        return await whole.generate(Prompt((5, 6)), Sampling(400, seed=seed, stop_token_ids=stop), DEADLINE_S)

    stopped = await asyncio.gather(*(sample(seed, (EOS,)) for seed in range(32)))
    assert any(completion.finish_reason == "stop" for completion in stopped)
    for completion in stopped:
        assert EOS not in completion.ids[:-1]
        assert (completion.ids[-1] == EOS) == (completion.finish_reason == "stop")
    longest = await asyncio.gather(*(sample(seed, ()) for seed in range(8)))
    assert {(len(completion.ids), completion.finish_reason) for completion in longest} == {(400, "length")}


async def test_a_stop_string_ends_a_completion_and_keeps_its_tokens(whole: VllmEngine) -> None:
    free = await whole.generate(Prompt((5, 6)), Sampling(64, seed=3, stop=("never sampled",)), DEADLINE_S)
    text = tiny_tokenizer().decode(free.ids[10])
    stopped = await whole.generate(Prompt((5, 6)), Sampling(64, seed=3, stop=(text,)), DEADLINE_S)
    assert stopped.finish_reason == "stop"
    assert stopped.ids == free.ids[: len(stopped.ids)]
    assert len(stopped.ids) == len(stopped.logprobs) <= 11


async def test_a_prefix_in_the_cache_changes_neither_logprobs_nor_scores(whole: VllmEngine, trainer: Trainer) -> None:
    prompt = Prompt(tuple(20 + index % 200 for index in range(300)))
    for _ in range(2):
        completion = await whole.generate(prompt, Sampling(8, seed=1), DEADLINE_S)
        expected = trainer.logprobs((*prompt.ids, *completion.ids))
        assert list(completion.logprobs) == pytest.approx(expected[299:], abs=FLOAT32_TOLERANCE)
        scores = await whole.score((*prompt.ids, *completion.ids), DEADLINE_S)
        assert list(scores) == pytest.approx(expected, abs=FLOAT32_TOLERANCE)


async def test_a_skipped_publication_is_caught_by_the_canary(whole: VllmEngine, trainer: Trainer) -> None:
    served = await whole.version()
    trainer.step()
    assert await whole.version() == served != trainer.version
    with pytest.raises(WeightsError, match="does not serve the published weights"):
        LogprobCanary(CANARY, "float32").check(await whole.score(CANARY, DEADLINE_S), trainer.logprobs(CANARY))


@pytest.mark.parametrize("fault", ["dropped bucket", "stale layer", "stale tensor"])
async def test_the_canary_alone_catches(
    whole: VllmEngine, trainer: Trainer, fault: str, request: pytest.FixtureRequest
) -> None:
    await without_verification(whole)
    old = trainer.stage()
    request.addfinalizer(lambda: [bucket.discard() for bucket in old])
    trainer.step()
    _, replaced = await publish(trainer, Faulty(whole, fault, old), canary=LogprobCanary(CANARY, "float32"))
    assert "canary" in replaced[0]


async def test_one_bad_engine_is_named_and_the_good_one_serves(whole: VllmEngine, trainer: Trainer) -> None:
    class Dead:
        async def pause(self, deadline_s: float) -> None:
            raise EngineRefusedError("it is gone")

    trainer.step()
    _, replaced = await publish(trainer, whole, Dead(), canary=LogprobCanary(CANARY, "float32"))
    assert replaced == {1: "it is gone"}
    assert await whole.version() == trainer.version


async def test_what_the_gpu_transfers_are_given_fits_vllm(trainer: Trainer) -> None:
    from vllm.distributed.weight_transfer.base import VLLMWeightSyncClient

    source = Source(trainer.model.named_parameters, trainer.model.named_parameters)
    declared = [(meta.name, meta.dtype, meta.shape) for meta in source.metadata()]
    source.begin()
    assert declared == [(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in source]
    assert isinstance(SyncClient([], asyncio.get_running_loop(), 1.0), VLLMWeightSyncClient)
