"""Law 1 on real vLLM: what is trained on in a game of several turns is exactly what the engine sampled."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from pathlib import Path

import pytest

from agentrl.algorithms import resolve
from agentrl.algorithms.driver import assign
from agentrl.algorithms.sample import samples_of, train_sequences
from agentrl.engine.vllm.engine import VllmEngine
from agentrl.rollout.worker import RolloutWorker
from agentrl.types import (
    Completion,
    EpisodeRequest,
    EpisodeSettings,
    Group,
    Prompt,
    SampleId,
    Sampling,
    Trajectory,
    Version,
)
from tests.real.vllm_kit import UNCLOSED, Trainer, model_at, publish, spec

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings(UNCLOSED), pytest.mark.timeout(300)]

GROUPS, MEMBERS, TURNS = 3, 4, 3


class Tap:
    """An engine's line to the worker that remembers what was asked and what came back."""

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine
        self.seen: list[tuple[tuple[int, ...], Completion]] = []
        self.third = asyncio.Event()

    async def generate(
        self, prompt: Prompt, sampling: Sampling, deadline_s: float, key: Hashable | None = None
    ) -> Completion:
        completion = await self._engine.generate(prompt, sampling, deadline_s)
        self.seen.append((prompt.ids, completion))
        if len(self.seen) == 3:
            self.third.set()
        return completion


def request(group: int, member: int) -> EpisodeRequest:
    settings = EpisodeSettings(0.8, 12, TURNS, 120.0, 60.0)
    return EpisodeRequest(SampleId(group, member), 0, "train", group, 7, settings)


async def test_guess_trains_on_exactly_the_tokens_and_logprobs_that_vllm_returned(tmp_path: Path) -> None:
    trainer = Trainer(model_at(tmp_path / "model"), tmp_path)
    engine = VllmEngine(spec(trainer.folder))
    await engine.start(240.0)
    try:
        trainer.step()
        await publish(trainer, engine)
        tap = Tap(engine)
        worker = RolloutWorker("guess", {"turns": TURNS}, str(trainer.folder), tap, 512)
        runs = [asyncio.create_task(worker.run(request(g, m))) for g in range(GROUPS) for m in range(MEMBERS)]
        await asyncio.wait_for(tap.third.wait(), 60)
        trainer.step()
        await publish(trainer, engine)
        trajectories = await asyncio.gather(*runs)
        await worker.close()
    finally:
        await engine.close()

    for trajectory in trajectories:
        assert trajectory.is_valid, trajectory.error
        assert_as_sampled(trajectory, tap.seen)
    versions = {v for t in trajectories for s in t.sequences for v in s.versions if v is not None}
    assert versions == {Version(0, 0), Version(0, 1)}, "an update fell into the middle of the games"
    assert max(t.turns for t in trajectories) == TURNS
    assert_trained_as_sampled(trajectories)
    assert_sampler_logprobs_are_the_models(trainer, trajectories)


def assert_as_sampled(trajectory: Trajectory, seen: list[tuple[tuple[int, ...], Completion]]) -> None:
    """Every action is one completion, whole, behind exactly the prompt that the engine was given for it."""
    sampled = 0
    for sequence in trajectory.sequences:
        context: list[int] = []
        for segment in sequence.segments:
            if segment.is_action:
                answer = (tuple(context), Completion(segment.ids, segment.logprobs, segment.versions, "stop"))
                assert any(same(answer, other) for other in seen), f"{trajectory.sample}: not what the engine returned"
                sampled += 1
            context.extend(segment.ids)
    assert sampled == trajectory.turns


def same(ours: tuple[tuple[int, ...], Completion], theirs: tuple[tuple[int, ...], Completion]) -> bool:
    (context, a), (prompt, b) = ours, theirs
    return context == prompt and (a.ids, a.logprobs, a.versions) == (b.ids, b.logprobs, b.versions)


def assert_trained_as_sampled(trajectories: list[Trajectory]) -> None:
    """The learner's rows hold the sampled ids and logprobs where the mask is 1, and nothing else there."""
    groups = [Group(g, tuple(t for t in trajectories if t.sample.group == g)) for g in range(GROUPS)]
    samples = samples_of(groups)
    assign(resolve("grpo")(), samples)
    rows = {row.sample: row for row in train_sequences(samples)}
    for trajectory in trajectories:
        row = rows[trajectory.sample]
        actions = [s for s in trajectory.segments if s.is_action]
        trained = list(zip(row.ids[row.mask].tolist(), row.columns.sampler.tolist(), strict=True))
        assert trained == [pair for s in actions for pair in zip(s.ids, s.logprobs, strict=True)]
        assert row.temperature == 0.8


def assert_sampler_logprobs_are_the_models(trainer: Trainer, trajectories: list[Trajectory]) -> None:
    """Tokens of one version have the logprobs that transformers gives them under that version, in the whole context."""
    checked = 0
    for trajectory in trajectories:
        for sequence in trajectory.sequences:
            for version in (Version(0, 0), Version(0, 1)):
                reference = trainer.logprobs(sequence.ids, 0.8, version)
                for index, (logprob, sampled_by) in enumerate(zip(sequence.logprobs, sequence.versions, strict=True)):
                    if sampled_by == version:
                        assert logprob == pytest.approx(reference[index - 1], abs=2e-4)
                        checked += 1
    assert checked == sum(t.action_tokens for t in trajectories)
