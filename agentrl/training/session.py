"""A run in progress: its parts, and the verbs of its loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from agentrl.algorithms.base import Algorithm
from agentrl.algorithms.driver import adapt
from agentrl.cluster.learners import Learners
from agentrl.cluster.signals import Stop
from agentrl.cluster.workers import Workers
from agentrl.config.schema import Config
from agentrl.errors import LearnerError
from agentrl.learner.batch import groups_with_signal
from agentrl.metrics.step import Learned, merged_report, rewriters, step_record
from agentrl.metrics.timer import PhaseTimer
from agentrl.metrics.trackers import Metrics, best_evaluation
from agentrl.records.checkpoints import folder_of, prune, write_environments
from agentrl.records.folder import RunFolder
from agentrl.records.journal import RunJournal
from agentrl.records.jsonl import noted
from agentrl.report.terminal import TerminalView
from agentrl.report.words import rewriting_words
from agentrl.rollout.scheduler import Scheduler
from agentrl.training.credit import credited, with_meters
from agentrl.training.evaluation import Evaluation
from agentrl.types import Batch, SampleId, Trajectory, Version
from agentrl.weights.publisher import Publisher

SLACK_S = 600.0
MOST_UNSTABLE_STEPS = 3


@dataclass
class Session:
    """A run in progress. `step` counts the trained batches; learner and engines hold `version`.

    `unstable_steps` counts the latest consecutive steps without an update because no gradient was finite.
    `warned` are the environments of which the user knows that they rewrite histories.
    `is_whole` is False while the learner is ahead of the journal, when a checkpoint would be inconsistent. `state` is
    that of the algorithm after `step`. `saving` writes the checkpoint of `saved_step` while engines sample.
    """

    config: Config
    folder: RunFolder
    algorithm: Algorithm
    journal: RunJournal
    metrics: Metrics
    view: TerminalView
    stop: Stop
    workers: Workers
    learners: Learners
    publisher: Publisher
    scheduler: Scheduler
    evaluation: Evaluation | None
    version: Version
    step: int
    saved_step: int = field(init=False)
    state: dict[str, float] = field(init=False)
    is_whole: bool = True
    unstable_steps: int = 0
    warned: set[str] = field(default_factory=set)
    saving: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.saved_step, self.state = self.step, dict(self.algorithm.state)

    async def open(self, finished: list[Trajectory], attempts: dict[SampleId, int], unanswered: set[SampleId]) -> None:
        """Publish for the first time, then restore the samples that an earlier incarnation finished."""
        with self.timer.part("first publication"):
            async with self.publisher.lock:
                await self.publisher.publish(self.version)
        self.scheduler.restore(finished, attempts, unanswered)

    @property
    def timer(self) -> PhaseTimer:
        """The timer of the command's phases."""
        return self.view.timer

    async def sample(self) -> Batch:
        """Collect complete groups for one batch, within the staleness bound."""
        with self.timer.phase("rollout"):
            return await self.stop.cut(self.scheduler.next_batch(self.scheduler.settings.patience_s + SLACK_S))

    async def update(self, batch: Batch) -> Learned:
        """Train the batch and publish the new weights as the next version. If that fails, record the step first.

        If no weight changed, nothing is published: the engines already hold the learner's weights.
        """
        await self.saved()
        self.stop.check()
        async with self.publisher.lock:
            with self.timer.phase("learn"):
                if self.algorithm.requirements.columns:
                    await self.publisher.yield_gpus()
                deadline_s = self.config.learner.step_timeout_s
                sequences = await credited(self.algorithm, self.learners, batch.groups, deadline_s)
                with_signal = groups_with_signal(sequences)
                if with_signal or not self.algorithm.skips_zero_advantages:
                    await self.publisher.yield_gpus()
                self.is_whole = False
                trained = await self.learners.step(sequences, self.algorithm.state, deadline_s)
                reports = with_meters(self.algorithm, batch.groups, trained)
                adapt(self.algorithm, merged_report(reports))
                has_moved = any(report.has_learned for report in reports)
                self.step += 1
                self.version = self.version.next if has_moved else self.version
                baselines = [baseline.sample for group in batch.groups for baseline in group.greedy]
                self.journal.trained(self.version, self.step, [report.samples for report in reports], baselines)
                self.state, self.is_whole = dict(self.algorithm.state), True
            learned = Learned(tuple(reports), len(with_signal))
            try:
                with self.timer.phase("publish"):
                    publication = self.publisher.publish(self.version) if has_moved else self.publisher.keep()
                    learned = replace(learned, published_mib=(await publication).mib)
            except BaseException as error:
                with noted(error):
                    self.record(batch, learned)  # the checkpoint of the end has this step
                raise
        self.scheduler.trained(self.version)
        return learned

    def record(self, batch: Batch, learned: Learned) -> None:
        """Record and show the step. Raises LearnerError after several steps in a row without a finite gradient."""
        shares = self.scheduler.settings.shares
        record = step_record(self.step, self.version, batch, learned, self.timer.lap(), shares)
        record = replace(record, set_aside=self.scheduler.set_aside())
        self.metrics.step(record)
        self.view.step(record)
        for env, sequences in rewriters(batch).items():
            if env not in self.warned:
                self.view.note(rewriting_words(env, sequences))
                self.warned.add(env)
        is_unstable = record.learner.nonfinite_steps > 0 and not record.learner.has_learned
        self.unstable_steps = self.unstable_steps + 1 if is_unstable else 0
        if self.unstable_steps == MOST_UNSTABLE_STEPS:
            raise LearnerError(
                f"the gradient was not finite in {MOST_UNSTABLE_STEPS} steps in a row, the last of them step "
                f"{self.step}: lower learner.lr, and look for extreme rewards with `agentrl show`. The weights are "
                "intact"
            )

    async def checkpoint(self) -> None:
        """Begin to write a checkpoint, once for each step; `saved` waits for it. A failure stops the run."""
        await self.saved()
        if self.saved_step == self.step or not self.is_whole:
            return
        with self.timer.phase("checkpoint"):
            self.journal.sync()
            self.metrics.sync()
        self.saved_step = self.step
        self.saving = asyncio.create_task(self._save(self.step, dict(self.state)))
        self.saving.add_done_callback(self.stop.if_failed)

    async def _save(self, step: int, state: dict[str, float]) -> None:
        async with self.publisher.lock:  # an engine that was replaced gets its weights afterwards
            deadline_s = self.stop.patience_s(self.config.learner.step_timeout_s)
            checkpoint = folder_of(self.folder.checkpoints, step)
            await self.learners.save(checkpoint, state, deadline_s)
            write_environments(checkpoint, self.folder)
        best = best_evaluation(self.folder)
        for failure in prune(self.folder.checkpoints, self.config.checkpoint.keep, [best.step] if best else []):
            self.view.note(f"an old checkpoint cannot be removed: {failure}")

    async def saved(self) -> None:
        """Wait for the checkpoint that is being written. Raises, once, what went wrong."""
        saving, self.saving = self.saving, None
        if saving is not None:
            with self.timer.phase("checkpoint"):
                await saving

    async def evaluate(self) -> None:
        """Evaluate the present version on held-out tasks."""
        if self.evaluation is None:
            return
        with self.timer.phase("evaluate"):
            folder = self.folder.evaluated(self.step)
            work = self.evaluation.run(self.workers, self.step, self.version, folder)
            record = await self.stop.cut(work)
        self.metrics.evaluation(record)
        self.view.evaluation(record)

    def is_due(self, every: int) -> bool:
        """Return whether this is an `every`-th step (0: never)."""
        return every > 0 and self.step % every == 0

    async def close(self) -> None:
        """Cancel what is in flight, and write a checkpoint if there is time for it."""
        self.timer.enter("close")
        await self.scheduler.stop()
        await self.checkpoint()
        await self.saved()
