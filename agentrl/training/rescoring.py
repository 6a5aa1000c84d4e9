"""Reverification: stored episodes run again without a model, and another version of their verifier scores them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agentrl.config.models import locate
from agentrl.env.registry import is_address
from agentrl.errors import ConfigError, WorkerLostError
from agentrl.records.manifest import PluginSource, read_manifest
from agentrl.records.store import TrajectoryStore
from agentrl.report.flips import SAME, Rescored, Reverification, value_of
from agentrl.roles.spec import specs_of
from agentrl.rollout.boundary import with_signals
from agentrl.rollout.faults import fault_of
from agentrl.rollout.recording import Recording
from agentrl.rollout.task_order import epoch_seed, evaluation_seed
from agentrl.rollout.worker import RolloutWorker, is_compared
from agentrl.training.evaluation import is_success
from agentrl.training.reverify import Plan, Stored, damage_of
from agentrl.training.rollouts import episode_seed, episode_settings
from agentrl.types import EpisodeRequest, SampleId, StopReason, Trajectory

GROUPS = 16
"""Groups whose episodes run at once."""


async def reverify(plans: Sequence[Plan]) -> Reverification:
    """Run the episodes of all plans again and score them.

    Raises ConfigError if an environment has no tasks, or ends the process in which it scores.
    """
    rescored = [one for plan in plans for one in await Reverifier.of(plan).run()]
    one = plans[0]
    changes = [_change(plan) for plan in plans]
    return Reverification(str(one.folder.path), changes, rescored, one.evaluation, damage_of(plans))


def _change(plan: Plan) -> str:
    """Return what scored before, and what scores now."""
    manifest, index = read_manifest(plan.folder), plan.config.env.index(plan.section)
    was, now = manifest.envs[index] if manifest else None, plan.source
    is_same = was is not None and (was.sha256, was.wraps) == (now.sha256, now.wraps)
    before = "unknown: the run has no manifest" if was is None else "the same source" if is_same else _source(was)
    return f"{plan.section.label}: scored by {_source(now)}; before: {before}"


def _source(source: PluginSource) -> str:
    version = f" {source.version}" if source.version else ""
    return f"{source.distribution or source.name}{version} (sha256 {source.sha256[:12]})"


@dataclass(frozen=True)
class Reverifier:
    """Scores the trajectories of one plan again."""

    plan: Plan
    worker: RolloutWorker
    recording: Recording
    store: TrajectoryStore
    _sizes: dict[str, int | None] = field(default_factory=dict)
    """The number of tasks by split: read once, before any call hangs."""

    @classmethod
    def of(cls, plan: Plan) -> Reverifier:
        """Load the environment, and the tokenizer of the run's model."""
        recording, config, verifier = Recording(), plan.config, plan.verifier
        model = str(locate(config.model.name, has_weights=False))
        context, seed = config.model.max_context, config.seed
        keys = config.roles_of(plan.section)
        roles = specs_of({name: keys[name] for name in plan.roles if name in keys}).values()
        worker = RolloutWorker(
            verifier.name,
            verifier.options,
            model,
            recording,
            context,
            seed,
            roles,
            python=verifier.python,
            restarts=config.engine.restarts if is_address(verifier.name) else 0,
            is_apart=True,
        )
        return cls(plan, worker, recording, TrajectoryStore(plan.store))

    async def run(self) -> list[Rescored]:
        """Score all groups, some at once."""
        room = asyncio.Semaphore(GROUPS)
        done: dict[int, list[Rescored]] = {}

        async def one(number: int, group: Sequence[Stored]) -> None:
            async with room:
                done[number] = await self._group(group)

        groups = self.plan.groups
        try:
            async with asyncio.TaskGroup() as tasks:
                for number, group in enumerate(groups):
                    tasks.create_task(one(number, group))
        except ExceptionGroup as failed:
            error = failed.exceptions[0]
            if not isinstance(error, WorkerLostError) or is_address(self.plan.verifier.name):
                raise error from None
            left = [group for number, group in enumerate(groups) if number not in done]
            raise await self._culprit(left, error) from None
        finally:
            await self.worker.close()
        return [rescored for number in range(len(groups)) for rescored in done[number]]

    async def _culprit(self, groups: Sequence[Sequence[Stored]], error: WorkerLostError) -> ConfigError:
        """Return the error that names the trajectory whose scoring ends the process, found by scoring each alone."""
        alone, name = Reverifier.of(self.plan), ""
        alone._sizes.update(self._sizes)
        try:
            for group in groups:
                repeated = []
                for one in group:
                    name = f"trajectory {one.sample}{f'.{one.attempt}' if one.attempt else ''}"
                    repeated.append(await alone._repeated(self.store.read(one.sample, one.attempt), one.epoch))
                name = f"the group of {name}"
                await alone._compared([trajectory for trajectory, _ in repeated])
        except WorkerLostError as again:
            return ConfigError(f"{self.plan.section.label}: {name} cannot be scored: {again}")
        finally:
            await alone.worker.close()
        return ConfigError(
            f"{self.plan.section.label}: {error}. Scored alone, no trajectory does that: episodes that run at once "
            "disturb each other, or the machine lacks memory"
        )

    async def _compared(self, members: Sequence[Trajectory]) -> list[Trajectory]:
        """Return the members of a group with its rewards."""
        new = list(await self.worker.score_group(members)) if await self.worker.has_group_rewards() else list(members)
        for one in new:
            await self._check_alive(one)
        return new

    async def _check_alive(self, trajectory: Trajectory) -> None:
        """Raise WorkerLostError if the environment's process has ended, and the trajectory with it."""
        if trajectory.stop_reason is StopReason.INFRA_ERROR:
            try:
                await self.worker.has_group_rewards()
            except WorkerLostError:
                raise WorkerLostError(trajectory.error) from None

    async def _group(self, group: Sequence[Stored]) -> list[Rescored]:
        """Score the members of a group, and compare those that the run compared: all of them, or none."""
        old = [self.store.read(one.sample, one.attempt) for one in group]
        repeated = await asyncio.gather(*map(self._repeated, old, [one.epoch for one in group]))
        new, refusals = [trajectory for trajectory, _ in repeated], [reason for _, reason in repeated]
        if await self.worker.has_group_rewards():
            if {one.sample.group for one in group} & {sample.group for sample in self.plan.lost}:
                refusals = [reason or "another member of its group cannot be read" for reason in refusals]
            had_part = _had_part(old)
            compared = {t.sample: t for t in await self._compared([t for t in new if t.sample in had_part])}
            new = [compared.get(t.sample, t) for t in new]
            refused = [reason for t, reason in zip(new, refusals, strict=True) if reason and t.sample in compared]
            others = f"another member of its group is refused: {refused[0]}" if refused else ""
            refusals = [
                reason or (others if t.sample in compared else "") for t, reason in zip(new, refusals, strict=True)
            ]
        models = {keys.name for keys in self.plan.config.reward.models}
        return [_rescored(*pair, models) for pair in zip(old, new, refusals, strict=True)]

    async def _repeated(self, old: Trajectory, epoch: int) -> tuple[Trajectory, str]:
        """Run an episode again. Returns it, and why it is another episode, "" if it is the same."""
        if not old.action_tokens:
            return old, f"no token was sampled ({old.stop_reason})"
        if old.split not in self._sizes:
            self._sizes[old.split] = await self.worker.task_count(old.split)
        size = self._sizes[old.split]
        if size is not None and old.task_index >= size:
            return old, f"the split {old.split!r} has {size} tasks, and this was task {old.task_index}"
        self.recording.begin(old)
        try:
            new = await self.worker.run(self._request(old, epoch))
        finally:
            difference = self.recording.end((old.sample, old.attempt))
        await self._check_alive(new)
        if new.task_id != old.task_id:
            return new, f"task {old.task_index} of {old.split!r} has another id"
        if difference and not new.stop_reason.is_scored and new.stop_reason is not StopReason.MODEL_ERROR:
            return new, ""  # the environment failed, which is the result
        return new, difference

    def _request(self, old: Trajectory, epoch: int) -> EpisodeRequest:
        plan = self.plan
        seed = episode_seed(plan.config, plan.section)
        settings = replace(
            episode_settings(plan.config, plan.section),
            temperature=old.temperature,
            asks_success=plan.evaluation is not None,
        )
        return EpisodeRequest(
            old.sample,
            old.attempt,
            old.split,
            old.task_index,
            evaluation_seed(seed) if plan.evaluation is not None else epoch_seed(seed, epoch),
            settings,
            old.env,
            epoch,
        )


def _had_part(members: Sequence[Trajectory]) -> set[SampleId]:
    """Return which members of a stored group the run compared; if it compared none, those whose verifier failed.

    A group reward that fails ends all that it compares.
    """
    compared = {t.sample for t in members if is_compared(t)}
    return compared or {t.sample for t in members if t.stop_reason is StopReason.VERIFIER_ERROR}


def _rescored(old: Trajectory, new: Trajectory, refusal: str, models: set[str]) -> Rescored:
    """Compare two scorings; the signals of reward models, which are not asked again, stay as stored."""
    was = old.reward if old.is_trainable else None
    where = (old.sample, old.attempt, old.env, old.task_id)
    if refusal:
        return Rescored(*where, was, None, reason=refusal, is_refused=True)
    new = with_signals(new, tuple(signal for signal in old.signals if signal.name in models))
    fault = fault_of(new)
    return Rescored(
        *where,
        was,
        None if fault else new.reward,
        old.is_trainable and is_success(old),
        not fault and is_success(new),
        fault.reason if fault else "",
        _changed(old, new),
    )


def _changed(old: Trajectory, new: Trajectory) -> str:
    """Name the signals whose values changed, with both values."""
    before, after = ({(s.name, s.turn, s.agent): s.value for s in t.judgements} for t in (old, new))
    return "; ".join(
        f"{key[0]} {value_of(before.get(key))} → {value_of(after.get(key))}"
        for key in dict.fromkeys([*before, *after])
        if not _is_equal(before.get(key), after.get(key))
    )


def _is_equal(one: float | None, other: float | None) -> bool:
    return one is other if one is None or other is None else abs(one - other) <= SAME
