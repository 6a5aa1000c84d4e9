"""Setup of a run, new or resumed: its records, its actors and the first publication."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from agentrl.algorithms.base import Algorithm
from agentrl.algorithms.driver import has_signal
from agentrl.cluster.actors import Actors, actors, clean_up
from agentrl.cluster.placement import is_shared
from agentrl.cluster.signals import Stop
from agentrl.cluster.workers import Workers
from agentrl.config.models import encode
from agentrl.config.schema import Config, LoraSection
from agentrl.metrics.trackers import Metrics
from agentrl.records.checkpoints import folder_of
from agentrl.records.folder import RunFolder
from agentrl.records.journal import RunJournal
from agentrl.records.jsonl import closing
from agentrl.records.manifest import read_manifest
from agentrl.report.terminal import TerminalView
from agentrl.rollout.groups import RolloutSettings
from agentrl.rollout.scheduler import Scheduler
from agentrl.training.evaluation import Evaluation
from agentrl.training.inputs import RunInputs, algorithm_of
from agentrl.training.session import Session
from agentrl.types import HELD_OUT, TRAIN, EpisodeSettings, Version
from agentrl.weights.canary import LogprobCanary
from agentrl.weights.publisher import Publisher
from agentrl.weights.staging import stage_folder
from agentrl.weights.transfer import CollectiveTransfer, StagedTransfer

CANARY_TEXT = "The quick brown fox jumps over the lazy dog. 12 + 34 = 46, and 7 x 8 = 56. What is it that you know?"


@asynccontextmanager
async def open_run(
    config: Config, inputs: RunInputs, folder: RunFolder, stop: Stop, view: TerminalView, resumed_at: int | None
) -> AsyncIterator[Session]:
    """Open a run, ready for its loop; `resumed_at` is the step from which it continues, None for a new run."""
    await clean_up(folder.path)
    with closing(RunJournal(folder)) as journal, closing(Metrics(folder, config)) as metrics:
        if read_manifest(folder) is None:  # a resume has compared its inputs before anything was loaded
            await asyncio.to_thread(inputs.write_manifest, config, folder)
        incarnation = journal.ledger.begin_incarnation(resumed_at)
        version, step = Version(incarnation, journal.ledger.published()[-1]), resumed_at or 0
        algorithm = algorithm_of(config)
        async with actors(config, inputs.model, folder, stop, view.timer, view.note) as team:
            if step:
                with view.timer.part("checkpoint"):
                    checkpoint = folder_of(folder.checkpoints, step)
                    algorithm.state = await team.learners.load(checkpoint, config.learner.step_timeout_s)
            publisher = publisher_of(config, inputs.model, team)
            team.engines.watch(publisher.refill)
            held_out = await team.workers.task_count(HELD_OUT) if config.eval.tasks else 0
            session = Session(
                config=config,
                folder=folder,
                algorithm=algorithm,
                journal=journal,
                metrics=metrics,
                view=view,
                stop=stop,
                workers=team.workers,
                learners=team.learners,
                publisher=publisher,
                scheduler=await _scheduler(config, algorithm, team.workers, journal, version, step),
                evaluation=evaluation_of(config, held_out) if config.eval.tasks else None,
                version=version,
                step=step,
            )
            await stop.cut(session.open(*journal.restored()))
            yield session


@asynccontextmanager
async def open_evaluation(
    config: Config, inputs: RunInputs, folder: RunFolder, stop: Stop, view: TerminalView
) -> AsyncIterator[tuple[Actors, Evaluation]]:
    """Open an evaluation: engines that serve the weights of the model folder, without a learner."""
    weights = config.weights.model_copy(update={"transfer": "shm"})
    config = config.model_copy(update={"weights": weights, "lora": LoraSection()})  # a saved model is merged
    async with actors(config, inputs.model, folder, stop, view.timer, view.note, learns=False) as team:
        transfer = StagedTransfer(partial(stage_folder, inputs.model, folder.path, weights.bucket_mib << 20))
        publisher = Publisher(team.engines, transfer, weights.publish_timeout_s)
        team.engines.watch(publisher.refill)
        async with publisher.lock:
            await stop.cut(publisher.publish(Version(0, 0)))
        yield team, evaluation_of(config, await team.workers.task_count(HELD_OUT))


async def _scheduler(
    config: Config, algorithm: Algorithm, workers: Workers, journal: RunJournal, version: Version, step: int
) -> Scheduler:
    return Scheduler(
        rollout_settings(config, algorithm, await workers.task_count(TRAIN)),
        workers.dispatch,
        journal,
        version,
        journal.ledger.published(),
        journal.ledger.next_group(),
        score_group=workers.score_group if await workers.has_group_rewards() else None,
        has_signal=partial(has_signal, algorithm) if algorithm.config.filter_zero_variance else None,
        trained=step,
    )


def rollout_settings(config: Config, algorithm: Algorithm, tasks: int | None) -> RolloutSettings:
    """Return the settings of the scheduler; `tasks` is the length of the training split, None if it is endless."""
    rollout = config.rollout
    return RolloutSettings(
        seed=config.seed,
        prompts=rollout.prompts,
        group_size=rollout.group_size,
        greedy=algorithm.requirements.greedy,
        episode=episode_settings(config),
        max_staleness=rollout.max_staleness,
        on_stale=rollout.on_stale,
        max_invalid=rollout.max_invalid,
        min_valid=algorithm.requirements.group_size,
        max_filtered_batches=algorithm.config.max_filtered_batches,
        steps=config.steps,
        tasks=tasks,
    )


def evaluation_of(config: Config, available: int | None) -> Evaluation:
    """Return what to evaluate; `available` is the length of the held-out split, None if it is endless."""
    section = config.eval
    return Evaluation(
        split=HELD_OUT,
        tasks=section.tasks if available is None else min(section.tasks, available),
        samples=section.samples,
        k=section.k,
        seed=config.seed,
        episode=replace(episode_settings(config), temperature=section.temperature, asks_success=True),
    )


def episode_settings(config: Config) -> EpisodeSettings:
    """Return the settings of training episodes."""
    rollout = config.rollout
    return EpisodeSettings(
        temperature=rollout.temperature,
        max_tokens=rollout.max_tokens,
        max_turns=rollout.max_turns,
        episode_timeout_s=rollout.episode_timeout_s,
        turn_timeout_s=rollout.turn_timeout_s,
    )


def publisher_of(config: Config, model: Path, team: Actors) -> Publisher:
    """Make the publisher of a run with learners."""
    is_staged = config.weights.transfer == "shm"
    return Publisher(
        team.engines,
        StagedTransfer(team.learners.stage) if is_staged else CollectiveTransfer(team.learners.send),
        config.weights.publish_timeout_s,
        _canary(config, model) if config.weights.verify else None,
        team.learners.logprobs,
        shares_gpus=is_shared(config),
    )


def _canary(config: Config, model: Path) -> LogprobCanary:
    ids = encode(CANARY_TEXT, model)
    return LogprobCanary(ids[: config.model.max_context - 1], config.model.dtype, config.weights.canary_tolerance)
