"""A whole run folder without a run: real ledger, store, metrics and audit, with numbers that look like learning."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agentrl.config.schema import Config
from agentrl.metrics import statistics
from agentrl.metrics.step import STEP_PHASES, EvaluationRecord, PhaseSeconds, StepRecord
from agentrl.metrics.trackers import Metrics, read_evaluations, read_steps
from agentrl.records import manifest
from agentrl.records.audit import AuditLog, RankReport, read_audit
from agentrl.records.conservation import check
from agentrl.records.folder import RunFolder
from agentrl.records.ledger import Ledger, State
from agentrl.records.store import TrajectoryStore
from agentrl.report import summary
from agentrl.types import (
    AttemptId,
    EpisodeRequest,
    EpisodeSettings,
    Message,
    SampleId,
    Segment,
    Signal,
    StepReport,
    StopReason,
    Timings,
    TokenSequence,
    ToolCall,
    Trajectory,
    Version,
    VersionSpan,
)

STARTED = 1_760_000_000.0
WORDS = ("so", "we", "add", "the", "two", "numbers", "and", "carry", "one", "then", "the", "answer", "is")


def float32(value: float) -> float:
    """A logprob as a sampler computes it, in 32 bits."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def request(sample: SampleId, attempt: int = 0, split: str = "train") -> EpisodeRequest:
    """A request for the task with the number of the group."""
    return EpisodeRequest(sample, attempt, split, sample.group, 0, EpisodeSettings(1.0, 48, 1, 60.0, 30.0))


def trajectory(
    group: int,
    member: int,
    attempt: int = 0,
    *,
    turns: int = 1,
    reward: float | None = 1.0,
    version: int = 0,
    text: str = "",
    is_split: bool = False,
) -> Trajectory:
    """A finished episode; `reward=None` makes its signal invalid, `is_split` lets two versions sample its last turn."""
    rng = random.Random(f"{group} {member} {attempt}")
    segments: list[Segment] = []
    messages: list[Message] = [{"role": "system", "content": "You add numbers. End with the number alone."}]
    for turn in range(turns):
        question = f"What is {2 + group % 8} + {2 + rng.randrange(8)}?"
        answer = text or " ".join(rng.choice(WORDS) for _ in range(rng.randrange(8, 40))) + f" {rng.randrange(18)}"
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        ids = tuple(answer.encode())
        spans: tuple[VersionSpan, ...] = (VersionSpan(Version(0, version), 0, len(ids)),)
        if is_split and turn == turns - 1:
            middle = len(ids) // 2
            old, new = Version(0, version), Version(0, version + 1)
            spans = (VersionSpan(old, 0, middle), VersionSpan(new, middle, len(ids)))
        logprobs = tuple(float32(-rng.expovariate(3)) for _ in ids)
        segments += [Segment(tuple(question.encode()), False, turn=turn), Segment(ids, True, logprobs, spans, turn)]
    stop = StopReason.ENV_DONE if reward is not None else StopReason.VERIFIER_ERROR
    signal = Signal("correct", reward, evidence={"gold": str(group % 8), "parsed": "7"}, verifier="agentrl-math")
    if reward is None:
        signal = Signal.invalid("correct", "the verifier ran past 2 s", verifier="agentrl-math")
    return Trajectory(
        SampleId(group, member), attempt, "train", group, f"level1/{group}", (TokenSequence(tuple(segments)),),
        tuple(messages), (signal,), stop, 1.0, turns, Timings(1.3, 1.1, 0.05, 0.02),
    )  # fmt: skip


def learner_report(step: int, rng: random.Random, samples: tuple[SampleId, ...] = (), tokens: int = 3000) -> StepReport:
    """A plausible report of a learner."""
    return StepReport(
        loss=0.02 * rng.gauss(0, 1), grad_norm=0.8 + 0.5 * rng.random() + 2 / step, lr=2e-5,
        meters={
            "entropy": 0.35 + 1.1 / (1 + step / 6), "mismatch_kl": 0.004 + 0.002 * rng.random(),
            "clip_fraction": 0.01 * rng.random(), "importance_mean": 1.0, "importance_capped": 0.001,
        },
        tokens=tokens, optimizer_steps=1, samples=samples, seconds=7.0, learned_tokens=tokens,
    )  # fmt: skip


@dataclass
class SyntheticRun:
    """Writes `steps` steps of a run into `folder` as the loop would."""

    folder: RunFolder
    steps: int = 30
    prompts: int = 4
    group_size: int = 4

    def play(self) -> RunFolder:
        """Write everything but the report."""
        self.folder.path.mkdir(parents=True, exist_ok=True)
        self.folder.config.write_text('steps = 30\n\n[env]\nname = "math"\n\n[learner]\nlr = 2e-05\n')
        self.ledger, self.store = Ledger(self.folder.ledger), TrajectoryStore(self.folder.trajectories)
        self.audit, self.metrics = AuditLog(self.folder.audit), Metrics(self.folder, Config())
        self.rng = random.Random(0)
        self.ledger.begin_incarnation()
        for step in range(1, self.steps + 1):
            if (step - 1) % 10 == 0:
                self._evaluate(step - 1)
            self._step(step)
        self._evaluate(self.steps)
        self.ledger.sync()
        self._close()
        return self.folder

    def score(self, step: int) -> float:
        """The chance of a right answer after so many steps."""
        return 0.07 + 0.77 / (1 + math.exp(-(step - 13) / 3))

    def _step(self, step: int) -> None:
        first = (step - 1) * self.prompts
        samples = [SampleId(g, m) for g in range(first, first + self.prompts) for m in range(self.group_size)]
        attempts: list[AttemptId] = [(sample, 0) for sample in samples]
        self.ledger.dispatched([request(sample) for sample in samples])
        self.audit.dispatched(attempts)
        batch = [self._sample(step, sample) for sample in samples]
        self.store.append(batch)
        self.ledger.finished(batch)
        invalid = [t for t in batch if not t.is_valid]
        stale = [t for t in batch if t.is_valid and self.rng.random() < 0.03]
        fresh = [t for t in batch if t.is_valid and t not in stale]
        self.ledger.settle([(t.sample, 0) for t in invalid], State.INVALID, "correct: the verifier ran past 2 s")
        self.ledger.settle([(t.sample, 0) for t in stale], State.STALE, "older than 2 updates")
        trained = tuple(t.sample for t in fresh)
        self.audit.trained(RankReport(0, step, 0, trained))
        self.ledger.trained(trained, step)
        self.metrics.step(self._record(step, fresh, len(stale), len(invalid)))

    def _sample(self, step: int, sample: SampleId) -> Trajectory:
        reward = None if self.rng.random() < 0.02 else float(self.rng.random() < self.score(step))
        behind = min(step - 1, self.rng.choice((0, 0, 0, 1, 1, 2)))
        text = "<script>alert('model output')</script> & done" if sample == SampleId(0, 0) else ""
        version = step - 1 - behind
        turns = 1 + sample.member % 2
        return trajectory(*sample, turns=turns, reward=reward, version=version, text=text, is_split=behind > 0)

    def _record(self, step: int, batch: Sequence[Trajectory], stale: int, invalid: int) -> StepRecord:
        rewards = [t.reward for t in batch]
        lengths = [t.action_tokens for t in batch]
        ages = [step - 1 - t.oldest_version.n for t in batch if t.oldest_version is not None]
        mean = sum(rewards) / len(rewards)
        checkpoint = 1.2 * (step % 10 == 0)
        seconds = PhaseSeconds(5 + self.rng.random(), 7 + self.rng.random(), 0.9, checkpoint=checkpoint, other=0.2)
        return StepRecord(
            step, f"0.{step}", STARTED + 15 * step, mean, math.sqrt(mean * (1 - mean)), len(batch),
            learner_report(step, self.rng), seconds, stale=stale, invalid=invalid, groups=self.prompts, groups_mixed=3,
            action_tokens=sum(lengths), length_mean=sum(lengths) / len(lengths),
            length_max=max(lengths), turns_mean=1.5,
            truncated=self.rng.randrange(3), staleness=tuple(ages.count(a) for a in range(3)),
            mid_updates=sum(age > 0 for age in ages), samples=tuple(t.sample for t in batch),
        )  # fmt: skip

    def _evaluate(self, step: int) -> None:
        right = [sum(self.rng.random() < self.score(step) for _ in range(8)) for _ in range(24)]
        first, any_of = (statistics.pass_at_k_interval(right, [8] * 24, k) for k in (1, 8))
        self.metrics.evaluation(
            EvaluationRecord(
                step, f"0.{step}", STARTED + 15 * step, "heldout", 24, 8, first, any_of, 8, first.mean, 31.0, 0, 9.0
            )
        )

    def _close(self) -> None:
        audit = read_audit(self.folder.audit)
        result = check(self.ledger, audit.dispatched, self.store.ids(), audit.trained, read_steps(self.folder))
        steps, evaluations = read_steps(self.folder), read_evaluations(self.folder)
        of_steps = {name: sum(getattr(r.seconds, name) for r in steps) for name in STEP_PHASES}
        seconds = replace(PhaseSeconds(**of_steps), evaluate=36.0, start=40.0, close=5.0)
        parts, versions = {"ray": 5.0, "engines": 31.0, "learner": 22.0}, manifest.packages()
        done = summary.summarize(
            "finished 30 steps", seconds, parts, steps, evaluations, self.ledger.counts(), result, 1, versions, 2
        )
        summary.write(self.folder, done)
        source = manifest.PluginSource("math", "agentrl-math", "0.1.0", "0" * 64)
        model = self.folder.path / "model"
        model.mkdir(exist_ok=True)
        (model / "config.json").write_text("{}")
        manifest.write_manifest(self.folder, manifest.build_manifest([source], [], {"model": model}))
        self.metrics.close()
        self.store.close()
        self.audit.close()
        self.ledger.close()


def synthetic_run(path: Path, steps: int = 30) -> RunFolder:
    """A finished run in `path`."""
    return SyntheticRun(RunFolder(path), steps).play()


def with_tool(episode: Trajectory) -> Trajectory:
    """The episode with a call of a calculator before its last message, and the calculator's answer."""
    call: ToolCall = {"id": "c1", "type": "function", "function": {"name": "calculator", "arguments": {"it": "6 * 7"}}}
    calls: list[Message] = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "<42> & no more", "tool_call_id": "c1", "name": "calculator"},
    ]
    return replace(episode, messages=(*episode.messages[:-1], *calls, episode.messages[-1]))
