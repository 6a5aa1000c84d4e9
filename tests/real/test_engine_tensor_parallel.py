"""An engine whose matrices two workers share: every worker loads its part of what is published, and is checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agentrl.engine.vllm.engine import VllmEngine
from agentrl.types import Prompt, Sampling, VersionSpan
from agentrl.weights.canary import FLOAT32_TOLERANCE, LogprobCanary
from tests.real.vllm_kit import DEADLINE_S, UNCLOSED, Trainer, model_at, publish, skip_a_layer, spec

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings(UNCLOSED),
    pytest.mark.timeout(300),
]
CANARY = LogprobCanary(tuple(range(20, 84)), "float32")


async def test_both_workers_serve_what_is_published_and_a_lie_of_the_second_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model has a vocabulary of 320 that two workers share, and tied embeddings."""
    monkeypatch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")
    trainer = Trainer(model_at(tmp_path / "model"), tmp_path)
    one = spec(trainer.folder)
    engine = VllmEngine(replace(one, engine=one.engine.model_copy(update={"tensor_parallel": 2})))
    await engine.start(240.0)
    try:
        for _ in range(2):
            trainer.step()
            timings, replaced = await publish(trainer, engine, canary=CANARY)
            assert replaced == {}
            assert timings.canary <= FLOAT32_TOLERANCE
        completion = await engine.generate(Prompt((5, 6, 7)), Sampling(64, temperature=0.7, seed=1), DEADLINE_S)
        assert completion.versions == (VersionSpan(trainer.version, 0, len(completion.ids)),)
        expected = trainer.logprobs((5, 6, 7, *completion.ids), 0.7)[2:]
        assert list(completion.logprobs) == pytest.approx(expected, abs=FLOAT32_TOLERANCE)

        begin = engine.start_update

        async def begin_and_lose(deadline_s: float) -> None:
            await begin(deadline_s)
            await skip_a_layer(engine, rank=1)

        monkeypatch.setattr(engine, "start_update", begin_and_lose)
        trainer.step()
        _, replaced = await publish(trainer, engine, canary=CANARY)
        assert "model.layers.1." in replaced[0]
    finally:
        await engine.close()
