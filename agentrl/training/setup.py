"""A run is opened, new or from where an earlier process left it: its records, its actors, the first publication."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from transformers import AutoTokenizer

from agentrl.algorithms import algorithm
from agentrl.cluster.actors import END_S, Actors, actors
from agentrl.cluster.processes import ProcessRegistry
from agentrl.cluster.roles import is_shared
from agentrl.cluster.scratch import discard_scratch
from agentrl.cluster.signals import Stop
from agentrl.config.schema import Config
from agentrl.metrics.trackers import Metrics
from agentrl.records.checkpoints import folder_of
from agentrl.records.folder import RunFolder
from agentrl.records.journal import RunJournal
from agentrl.records.manifest import read_manifest
from agentrl.report.terminal import TerminalView
from agentrl.rollout.schedule import Schedule
from agentrl.rollout.scheduler import Scheduler
from agentrl.training.evaluation import Evaluation
from agentrl.training.inputs import RunInputs
from agentrl.training.publication import Publication
from agentrl.training.session import Session
from agentrl.training.transfers import of_folder, sent, staged
from agentrl.types import HELD_OUT, TRAIN, Version
from agentrl.weights.canary import LogprobCanary
from agentrl.weights.publisher import Probe

CANARY_TEXT = "The quick brown fox jumps over the lazy dog. 12 + 34 = 46, and 7 x 8 = 56. What is it that you know?"


@asynccontextmanager
async def opened(
    config: Config, inputs: RunInputs, folder: RunFolder, stop: Stop, view: TerminalView, resumed_at: int | None
) -> AsyncIterator[Session]:
    """The run, ready for its loop; `resumed_at` is the step it goes on from, None for a new run."""
    await asyncio.to_thread(ProcessRegistry(folder.path).end_leftovers, END_S)
    discard_scratch(folder.path)
    model = inputs.model
    journal, metrics = RunJournal(folder), Metrics(folder, config)
    try:
        if read_manifest(folder) is None:  # a resume has told what changed since, before anything was loaded
            await asyncio.to_thread(inputs.write_manifest, config, folder)
        incarnation = journal.ledger.begin_incarnation(resumed_at)
        version = Version(incarnation, journal.ledger.published()[-1])
        async with actors(config, model, folder, stop, view) as team:
            if resumed_at:
                checkpoint = folder_of(folder.checkpoints, resumed_at)
                with view.timer.part("checkpoint"):
                    await team.learners.load(checkpoint, config.learner.step_timeout_s)
            session = await _session(
                config, folder, model, journal, metrics, team, version, resumed_at or 0, stop, view
            )
            await stop.cut(session.open(*journal.restored()))
            yield session
    finally:
        metrics.close()
        journal.close()


@asynccontextmanager
async def examined(
    config: Config, inputs: RunInputs, folder: RunFolder, stop: Stop, view: TerminalView
) -> AsyncIterator[tuple[Actors, Evaluation]]:
    """The engines with the model as it lies in its folder, and what they are to be asked; there is no learner."""
    transfer = config.weights.model_copy(update={"transfer": "shm"})
    config = config.model_copy(update={"weights": transfer})
    bucket_bytes = transfer.bucket_mib << 20
    async with actors(config, inputs.model, folder, stop, view, learns=False) as team:
        bring = of_folder(inputs.model, folder.path, bucket_bytes)
        publication = Publication(bring, team.engines, _no_probe, transfer.publish_timeout_s)
        async with publication.still:
            await stop.cut(publication.publish(Version(0, 0)))
        yield team, evaluation_of(config, await team.workers.task_count(HELD_OUT))


async def _no_probe() -> None:
    """Without a learner there is nothing to compare an engine with; digests are compared all the same."""


async def _session(
    config: Config,
    folder: RunFolder,
    model: Path,
    journal: RunJournal,
    metrics: Metrics,
    team: Actors,
    version: Version,
    step: int,
    stop: Stop,
    view: TerminalView,
) -> Session:
    rule = algorithm(config.algorithm.name)
    held_out = await team.workers.task_count(HELD_OUT) if config.eval.tasks else 0
    scheduler = Scheduler(
        schedule_of(config, await team.workers.task_count(TRAIN)),
        team.workers.dispatch,
        journal,
        version,
        journal.ledger.published(),
        journal.ledger.next_group(),
        score_group=team.workers.score_group if await team.workers.has_group_rewards() else None,
        has_signal=rule.has_signal if config.algorithm.filter_zero_variance else None,
        trained=step,
    )
    return Session(
        config=config,
        folder=folder,
        algorithm=rule,
        journal=journal,
        metrics=metrics,
        view=view,
        stop=stop,
        workers=team.workers,
        learners=team.learners,
        publication=_publication(config, model, team),
        scheduler=scheduler,
        evaluation=evaluation_of(config, held_out) if config.eval.tasks else None,
        version=version,
        step=step,
    )


def schedule_of(config: Config, tasks: int | None) -> Schedule:
    """The scheduler's rules, from the configuration and the length of the training split."""
    rollout = config.rollout
    least = max(algorithm(config.algorithm.name).needs.min_group_size, min(2, rollout.group_size))
    return Schedule(
        seed=config.seed,
        prompts=rollout.prompts,
        group_size=rollout.group_size,
        max_tokens=rollout.max_tokens,
        max_turns=rollout.max_turns,
        temperature=rollout.temperature,
        max_staleness=rollout.max_staleness,
        on_stale=rollout.on_stale,
        episode_timeout_s=rollout.episode_timeout_s,
        turn_timeout_s=rollout.turn_timeout_s,
        max_invalid=rollout.max_invalid,
        min_valid=least,
        max_filtered_batches=config.algorithm.max_filtered_batches,
        steps=config.steps,
        tasks=tasks,
        split=TRAIN,
    )


def evaluation_of(config: Config, available: int | None) -> Evaluation:
    """What is evaluated; `available` is the length of the held-out split, None when it is endless."""
    rollout, wanted = config.rollout, config.eval
    return Evaluation(
        split=HELD_OUT,
        tasks=wanted.tasks if available is None else min(wanted.tasks, available),
        samples=wanted.samples,
        k=wanted.k,
        seed=config.seed,
        temperature=wanted.temperature,
        max_tokens=rollout.max_tokens,
        max_turns=rollout.max_turns,
        episode_timeout_s=rollout.episode_timeout_s,
        turn_timeout_s=rollout.turn_timeout_s,
    )


def _publication(config: Config, model: Path, team: Actors) -> Publication:
    deadline_s = config.weights.publish_timeout_s
    canary = _canary(config, model) if config.weights.verify else None

    async def probe() -> Probe | None:
        return Probe(canary, await team.learners.logprobs(canary.ids, deadline_s)) if canary else None

    bring = staged(team.learners.stage) if config.weights.transfer == "shm" else sent(team.learners)
    return Publication(bring, team.engines, probe, deadline_s, takes_turns=is_shared(config))


def _canary(config: Config, model: Path) -> LogprobCanary:
    ids = AutoTokenizer.from_pretrained(model)(CANARY_TEXT)["input_ids"]
    return LogprobCanary(ids[: config.model.max_context - 1], config.model.dtype, config.weights.canary_tolerance)
