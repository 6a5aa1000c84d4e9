"""Writers of step and evaluation records: metrics.jsonl always, TensorBoard and Weights & Biases if configured."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import asdict, fields, replace
from typing import Any, Protocol

from agentrl.config.schema import Config
from agentrl.metrics.step import STEP_PHASES, EnvStep, EvaluationRecord, StepRecord
from agentrl.records.checkpoints import steps_in
from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import JsonLines, explained, read_jsonl


class Tracker(Protocol):
    """A service that draws curves."""

    def log(self, scalars: dict[str, float], step: int, at: float) -> None:
        """Add a point to each curve; `at` is in Unix seconds."""

    def close(self) -> None:
        """Flush everything."""


class Metrics:
    """Writes every record to the run folder and to the configured trackers."""

    def __init__(self, folder: RunFolder, config: Config) -> None:
        self._steps, self._evaluations = JsonLines(folder.metrics), JsonLines(folder.evaluations)
        self._trackers: list[Tracker] = []
        if config.track.tensorboard:
            self._trackers.append(TensorBoard(folder))
        if config.track.wandb:
            self._trackers.append(WeightsAndBiases(folder, config))

    def step(self, record: StepRecord) -> None:
        """Write the record of a step."""
        record = replace(record, learner=replace(record.learner, samples=()))
        self._steps.append(record)
        self._track(step_scalars(record), record.step, record.at)

    def evaluation(self, record: EvaluationRecord) -> None:
        """Write the record of an evaluation."""
        self._evaluations.append(record)
        self._track(evaluation_scalars(record), record.step, record.at)

    def sync(self) -> None:
        """Wait until every record is on the disk itself: the conservation check compares them with the journal."""
        self._steps.sync()
        self._evaluations.sync()

    def close(self) -> None:
        """Flush and close everything. Idempotent."""
        self._steps.close()
        self._evaluations.close()
        for tracker in self._trackers:
            tracker.close()
        self._trackers.clear()

    def _track(self, scalars: dict[str, float], step: int, at: float) -> None:
        for tracker in self._trackers:
            tracker.log({name: value for name, value in scalars.items() if math.isfinite(value)}, step, at)


def read_steps(folder: RunFolder) -> list[StepRecord]:
    """Return the steps of the current lineage in order; a step that a resume repeated counts once."""
    return _lineage(read_jsonl(folder.metrics, StepRecord))


def read_evaluations(folder: RunFolder) -> list[EvaluationRecord]:
    """Return the evaluations of the current lineage in order."""
    return _lineage(read_jsonl(folder.evaluations, EvaluationRecord))


def best_evaluation(folder: RunFolder) -> EvaluationRecord | None:
    """Return the evaluation with the highest pass@1 of a step that has a checkpoint, the later one of equals."""
    saved = steps_in(folder.checkpoints)
    scored = [r for r in read_evaluations(folder) if r.step in saved and math.isfinite(r.pass_at_1.mean)]
    return max(scored, key=lambda r: (r.pass_at_1.mean, r.step), default=None)


def _lineage(records: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for record in records:
        while kept and kept[-1].step >= record.step:
            kept.pop()
        kept.append(record)
    return kept


def step_scalars(r: StepRecord) -> dict[str, float]:
    """Return the curves of a step by name; without an update the learner's means are left out."""
    left_out = {"samples", "meters", "digest", "layout", "gpu", "deterministic"}
    left_out |= set() if r.learner.has_learned else {"loss", "grad_norm"}
    learner = {f"learner/{f.name}": getattr(r.learner, f.name) for f in fields(r.learner) if f.name not in left_out}
    meters = {f"learner/{name}": value for name, value in r.learner.meters.items()}
    seconds = {f"seconds/{name}": getattr(r.seconds, name) for name in STEP_PHASES}
    return {
        "reward/mean": r.reward_mean,
        "reward/std": r.reward_std,
        **{f"signal/{name}": value for name, value in r.signals.items()},
        **{
            f"samples/{name}": getattr(r, name)
            for name in ("trained", "filtered", "stale", "invalid", "unanswered", "lost", "truncated")
        },
        "policy/entropy": r.entropy,
        "groups/all": r.groups,
        "groups/mixed": r.groups_mixed,
        "length/mean": r.length_mean,
        "length/max": r.length_max,
        "length/turns": r.turns_mean,
        "length/sequences": r.sequences_mean,
        "tools/calls": r.tool_calls_mean,
        "tools/use": r.tool_use,
        "staleness/mean": r.staleness_mean,
        "staleness/mid_updates": r.mid_updates,
        "publish/mib": r.published_mib,
        "speed/sampled_per_s": r.sampled_per_s,
        "speed/trained_per_s": r.trained_per_s,
        "speed/tokens_per_s": r.tokens_per_s,
        **learner,
        **meters,
        **seconds,
        "seconds/total": r.seconds.total,
        **{f"tasks/{reason.replace(' ', '_')}": count for reason, count in r.set_aside.items()},
        **{f"roles/{role}/{name}": count for role, use in r.roles.items() for name, count in asdict(use).items()},
        **{f"env/{label}/{name}": value for label, part in r.envs.items() for name, value in env_scalars(part).items()},
    }


def env_scalars(part: EnvStep) -> dict[str, float]:
    """Return the curves of one environment by name; without a trained sample its means are left out."""
    counts = {
        name: getattr(part, name)
        for name in ("groups", "trained", "filtered", "stale", "invalid", "unanswered", "lost")
    }
    if not part.trained:
        return counts
    names = ("reward_mean", "length_mean", "turns_mean", "sequences_mean", "seconds_mean")
    means = {name: getattr(part, name) for name in names}
    return counts | means | {f"signal/{name}": value for name, value in part.signals.items()}


def evaluation_scalars(r: EvaluationRecord) -> dict[str, float]:
    """Return the curves of an evaluation by name."""
    return {
        "eval/pass_at_1": r.pass_at_1.mean,
        "eval/pass_at_1_low": r.pass_at_1.low,
        "eval/pass_at_1_high": r.pass_at_1.high,
        f"eval/pass_at_{r.k}": r.pass_at_k.mean,
        "eval/reward": r.reward_mean,
        **{f"eval/signal/{name}": value for name, value in r.signals.items()},
        "eval/length": r.length_mean,
        "eval/tool_use": r.tool_use,
        "eval/invalid": r.invalid,
        "eval/unanswered": r.unanswered,
        "eval/seconds": r.seconds,
        **{f"eval/{label}/pass_at_1": score.pass_at_1.mean for label, score in r.envs.items()},
        **{f"eval/{label}/reward": score.reward_mean for label, score in r.envs.items()},
    }


class TensorBoard:
    """Writes TensorBoard event files, without torch."""

    def __init__(self, folder: RunFolder) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._folder = folder.tensorboard
        self._writer = EventFileWriter(str(self._folder), flush_secs=10)

    def log(self, scalars: dict[str, float], step: int, at: float) -> None:
        """Add a point to each curve."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        try:
            self._writer.add_event(Event(wall_time=at, step=step, summary=Summary(value=values)))
            self._writer.flush()
        except OSError as error:
            raise explained(error, self._folder) from error

    def close(self) -> None:
        """Close the file; `log` has flushed everything."""
        with suppress(OSError):
            self._writer.close()


class WeightsAndBiases:
    """Logs to a Weights & Biases run with the name of the run folder."""

    def __init__(self, folder: RunFolder, config: Config) -> None:
        import wandb

        self._run = wandb.init(
            project=config.track.wandb_project,
            name=folder.path.name,
            dir=str(folder.path),
            config=config.model_dump(mode="json"),
        )
        self._run.define_metric("*", step_metric="step")

    def log(self, scalars: dict[str, float], step: int, at: float) -> None:
        """Add a point to each curve."""
        self._run.log({**scalars, "step": step, "_timestamp": at})

    def close(self) -> None:
        """Flush everything."""
        self._run.finish()
