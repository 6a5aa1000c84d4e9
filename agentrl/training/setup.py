"""Setup of a run, new or resumed: its records, its actors and the first publication."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from agentrl.algorithms.base import Algorithm
from agentrl.algorithms.driver import has_signal
from agentrl.cluster.actors import Actors, actors, clean_up
from agentrl.cluster.placement import Placement
from agentrl.cluster.relay import HostRelay
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
from agentrl.rollout.scheduler import Scheduler
from agentrl.training.evaluation import Evaluation, HeldOut
from agentrl.training.inputs import RunInputs, algorithm_of
from agentrl.training.rollouts import env_plans, episode_seed, episode_settings, rollout_settings
from agentrl.training.session import Session
from agentrl.types import HELD_OUT, TRAIN, Version
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
            evaluation = await _evaluation(config, team.workers) if config.eval.tasks else None
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
                evaluation=evaluation,
                version=version,
                step=step,
            )
            await stop.cut(session.open(*journal.restored()))
            yield session


@asynccontextmanager
async def open_evaluation(
    config: Config, inputs: RunInputs, folder: RunFolder, stop: Stop, view: TerminalView, split: str
) -> AsyncIterator[tuple[Actors, Evaluation]]:
    """Open an evaluation of tasks of `split`: engines that serve the weights of the model folder, without a learner."""
    weights = config.weights.model_copy(update={"transfer": "shm"})
    config = config.model_copy(update={"weights": weights, "lora": LoraSection()})  # a saved model is merged
    async with actors(config, inputs.model, folder, stop, view.timer, view.note, learns=False) as team:
        staged = partial(stage_folder, inputs.model, folder.path, weights.bucket_mib << 20)
        transfer = StagedTransfer(staged, HostRelay(team.agents))
        publisher = Publisher(team.engines, transfer, weights.publish_timeout_s)
        team.engines.watch(publisher.refill)
        async with publisher.lock:
            await stop.cut(publisher.publish(Version(0, 0)))
        yield team, await _evaluation(config, team.workers, split)


async def _scheduler(
    config: Config, algorithm: Algorithm, workers: Workers, journal: RunJournal, version: Version, step: int
) -> Scheduler:
    plans = env_plans(config, await workers.task_count(TRAIN), await workers.with_group_rewards())
    return Scheduler(
        rollout_settings(config, algorithm, plans),
        workers.dispatch,
        journal,
        version,
        journal.ledger.published(),
        journal.ledger.groups(),
        journal.ledger.outcomes(),
        score_group=workers.score_group,
        has_signal=partial(has_signal, algorithm) if algorithm.config.filter_zero_variance else None,
        trained=step,
    )


async def _evaluation(config: Config, workers: Workers, split: str = HELD_OUT) -> Evaluation:
    return evaluation_of(config, await workers.task_count(split), await workers.with_group_rewards(), split)


def evaluation_of(
    config: Config,
    available: Mapping[str, int | None],
    with_group_rewards: Collection[str] = (),
    split: str = HELD_OUT,
) -> Evaluation:
    """Return what to evaluate; `available` are the lengths of the split in each environment, None if endless."""
    section = config.eval
    lengths = {
        label: section.tasks if count is None else min(section.tasks, count) for label, count in available.items()
    }
    envs = tuple(
        HeldOut(
            label=env.label,
            tasks=lengths[env.label],
            episode=replace(episode_settings(config, env), temperature=section.temperature, asks_success=True),
            seed=episode_seed(config, env),
            has_group_rewards=env.label in with_group_rewards,
        )
        for env in config.env
    )
    return Evaluation(split=split, envs=envs, samples=section.samples, k=section.k, seed=config.seed)


def publisher_of(config: Config, model: Path, team: Actors) -> Publisher:
    """Make the publisher of a run with learners."""
    is_staged = config.weights.transfer == "shm"
    relay = HostRelay(team.agents, lambda: team.learners.host)
    return Publisher(
        team.engines,
        StagedTransfer(team.learners.buckets, relay) if is_staged else CollectiveTransfer(team.learners.send),
        config.weights.publish_timeout_s,
        _canary(config, model) if config.weights.verify else None,
        team.learners.logprobs,
        shares_gpus=Placement(config).is_shared,
    )


def _canary(config: Config, model: Path) -> LogprobCanary:
    ids = encode(CANARY_TEXT, model)
    return LogprobCanary(ids[: config.model.max_context - 1], config.model.dtype, config.weights.canary_tolerance)
