"""Replay: stored trajectories are trained again from a checkpoint, and every step must give the same weights."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import groupby

from agentrl.algorithms.driver import adapt
from agentrl.cluster.actors import learner_ranks
from agentrl.cluster.learners import Learners
from agentrl.cluster.signals import Stop
from agentrl.config.models import locate, other_models
from agentrl.config.schema import Config
from agentrl.errors import ConfigError, RunError
from agentrl.learner.lr_schedule import learning_rate
from agentrl.metrics.step import StepRecord, merged_report
from agentrl.metrics.timer import PhaseTimer
from agentrl.metrics.trackers import read_steps
from agentrl.records.checkpoints import folder_of, steps_in
from agentrl.records.folder import RunFolder
from agentrl.records.ledger import AttemptRow, Ledger, State
from agentrl.records.manifest import (
    RunManifest,
    files_in,
    hash_file,
    manifests,
    model_changes,
    model_files,
    numerics,
    numerics_here,
    plugin_source,
    read_manifest,
    source_changes,
)
from agentrl.records.store import TrajectoryStore
from agentrl.training.credit import credited, with_meters
from agentrl.training.inputs import algorithm_of
from agentrl.types import Group, Version


@dataclass(frozen=True)
class ReplayPlan:
    """The steps to train again, and the checkpoint from which they start (0: the model before the first step)."""

    start: int
    steps: tuple[StepRecord, ...]


def plan_replay(folder: RunFolder, last: int | None = None) -> ReplayPlan:
    """Plan a replay up to step `last`, by default the last one, from the nearest checkpoint before it.

    Raises ConfigError for a step that was not trained, and for a run of which this machine cannot reproduce a digit.
    """
    records = {record.step: record for record in read_steps(folder)}
    last = max(records, default=0) if last is None else last
    if last not in records:
        trained = f"steps 1 to {max(records)}" if records else "no step"
        raise ConfigError(f"{folder.path} has {trained}: there is no step {last} to replay")
    start = max((step for step in steps_in(folder.checkpoints) if step < last), default=0)
    steps = tuple(records[step] for step in range(start + 1, last + 1))
    if silent := [record.step for record in steps if not record.learner.digest]:
        raise ConfigError(f"step {silent[0]} has no digest of its weights: an earlier version of agentrl trained it")
    for step, manifest in _inputs(folder, steps):
        _check_numerics(manifest, step)
    return ReplayPlan(start, steps)


def _inputs(folder: RunFolder, steps: Sequence[StepRecord]) -> Iterator[tuple[int, RunManifest]]:
    """Yield the manifests of the inputs that trained the steps, each with the first step of those that it trained.

    Raises ConfigError for a step without one.
    """
    every, last = list(manifests(folder)), None
    for record in steps:
        found = next((manifest for manifest in every if manifest.after < record.step), None)
        if found is None:
            raise ConfigError(
                f"{folder.path} has no manifest of step {record.step}: nothing says which libraries trained it"
            )
        if found is not last:
            yield record.step, found
        last = found


def _check_numerics(manifest: RunManifest, step: int) -> None:
    here = numerics_here()
    differences = [f"{name} {was} (here {here[name]})" for name, was in numerics(manifest).items() if here[name] != was]
    if differences:
        raise ConfigError(
            f"step {step} was trained with {', '.join(differences)}: a replay is exact only with the same kind of CPU "
            "and the same versions"
        )


def check_models(config: Config, folder: RunFolder) -> None:
    """Raise ConfigError if a model that the replay loads is not the one with which the run started."""
    began, names = read_manifest(folder), {"model": config.model.name} | other_models(config)
    now = model_files({role: locate(name) for role, name in names.items()})
    if began and (differences := model_changes(began, now)):
        raise ConfigError(
            f"models have changed since {folder.path} started: {'; '.join(differences)}. Restore these files first"
        )


def check_algorithm(config: Config, folder: RunFolder, plan: ReplayPlan) -> None:
    """Raise ConfigError for a step that was trained by another algorithm, loss or file of their keys than now."""
    algorithm = algorithm_of(config)
    own = algorithm.checked_loss()
    now = {"algorithm": plugin_source(config.algorithm.name, type(algorithm))}
    now |= {"loss": plugin_source(own.name, own.function)} if own else {}
    data = tuple(map(hash_file, files_in(config.algorithm.options)))
    for step, manifest in _inputs(folder, plan.steps):
        then = {"algorithm": manifest.algorithm, "loss": manifest.loss}
        changed = [change for what, source in now.items() for change in source_changes(what, then[what], source)]
        changed += [f"data: {file.name}" for file in data if file not in manifest.data]
        if changed:
            raise ConfigError(
                f"step {step} was trained by another source: {'; '.join(changed)}. Restore it, or choose steps "
                "that the present one trained"
            )


def check_settings(config: Config, plan: ReplayPlan) -> None:
    """Raise ConfigError for a step that was trained with other settings than those that a resume left.

    They are ranks, threads and ZeRO stages, the number of steps, on which the learning rate depends, and on GPUs
    `learner.deterministic`, without which nobody can repeat a step.
    """
    learner, now = config.learner, config.critic.layout(config.learner)
    alone = config.critic.warmup_steps  # the critic's steps before the first of the policy
    for record in plan.steps:
        if record.learner.layout not in ("", now):  # earlier versions, which could not change it, did not record it
            raise ConfigError(
                f"step {record.step} was trained by {record.learner.layout}, and a resume has changed that to {now}: a "
                "replay is exact only with the same. Choose a later step"
            )
        if config.device == "cuda" and not record.learner.deterministic:
            raise ConfigError(
                f"step {record.step} was trained on GPUs without learner.deterministic, or by an earlier version: its "
                "last digits differ whenever it is repeated. Choose a later step"
            )
        if not record.learner.optimizer_steps:  # a batch without a signal, or of the critic alone
            continue
        first = (record.step - 1 - alone) * learner.updates
        rates = [learning_rate(learner, first + n, config.steps - alone) for n in range(learner.updates)]
        if record.learner.lr not in rates:
            raise ConfigError(
                f"step {record.step} was trained with a learning rate of {record.learner.lr:g}, which is {rates[-1]:g} "
                f"since a resume has changed `steps` to {config.steps}: a replay is exact only with the same. Choose a "
                "later step"
            )


async def replay(config: Config, folder: RunFolder, plan: ReplayPlan) -> None:
    """Train the steps of the plan again, on learner ranks alone. Raises RunError for weights that differ."""
    stop, timer = Stop(), PhaseTimer()
    with stop.on_signals():
        try:
            async with learner_ranks(config, locate(config.model.name), folder, stop, timer) as learners:
                await stop.cut(_replayed(config, folder, plan, learners))
        except asyncio.CancelledError as error:
            raise stop.reason(error) from None


async def _replayed(config: Config, folder: RunFolder, plan: ReplayPlan, learners: Learners) -> None:
    algorithm, deadline_s = algorithm_of(config), config.learner.step_timeout_s
    if plan.start:
        algorithm.state = await learners.load(folder_of(folder.checkpoints, plan.start), deadline_s)
    has_moved = True
    for record, groups in zip(plan.steps, stored_batches(folder, plan), strict=True):
        if has_moved and config.learner.stage == 3:
            await _gathered(config, learners, deadline_s)
        sequences = await credited(algorithm, learners, groups, deadline_s)
        trained = await learners.step(sequences, algorithm.state, deadline_s)
        reports = with_meters(algorithm, groups, trained)
        adapt(algorithm, merged_report(reports))
        has_moved = any(report.has_learned for report in reports)
        digest, recorded = reports[0].digest, record.learner.digest
        if digest != recorded:
            kinds = [f" on {gpu}" if gpu else "" for gpu in (reports[0].gpu, record.learner.gpu)]
            raise RunError(
                f"step {record.step}: the weights are {digest}{kinds[0]}, the run recorded {recorded}{kinds[1]}"
            )
        print(f"step {record.step} · {len(sequences)} sequences · weights {digest}, as recorded", flush=True)


async def _gathered(config: Config, learners: Learners, deadline_s: float) -> None:
    """Gather the weights, as the run did to publish them: at ZeRO stage 3 the digits of the next step depend on it."""
    async with aclosing(learners.buckets(Version(0, 0), deadline_s)) as buckets:
        async for bucket in buckets:
            bucket.discard()
    if config.weights.verify:
        await learners.logprobs((0, 0), deadline_s)  # the canary's pass, which gathers what adapters leave out


def stored_batches(folder: RunFolder, plan: ReplayPlan) -> Iterator[list[Group]]:
    """Yield the groups of each step as they were trained, from the ledger and the trajectory store."""
    store, rows = TrajectoryStore(folder.trajectories), list(Ledger(folder.ledger, is_read_only=True).rows())
    attempts = {(row.step, row.sample): row.attempt for row in rows if row.state is State.TRAINED}
    baselines: dict[tuple[int | None, int], list[AttemptRow]] = defaultdict(list)
    for row in rows:
        if row.state is State.BASELINE:
            baselines[row.step, row.group].append(row)
    for record in plan.steps:
        members = [store.read(sample, attempts[record.step, sample]) for sample in record.samples]
        yield [
            Group(
                group,
                tuple(found),
                tuple(store.read(row.sample, row.attempt) for row in baselines[record.step, group]),
            )
            for group, found in groupby(members, lambda t: t.sample.group)
        ]
