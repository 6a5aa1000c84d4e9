"""Reverification: stored episodes run again without a model, and another version of their verifier scores them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentrl.config.loading import load
from agentrl.config.models import locate
from agentrl.config.schema import Config, EnvSection
from agentrl.config.values import expanded
from agentrl.env.dry_run.verdict import DryRunRequest
from agentrl.errors import ConfigError, did_you_mean
from agentrl.hosting.environments import inspect_env
from agentrl.hosting.inspection import Inspection
from agentrl.packaging.added import with_interpreters
from agentrl.plugins.files import is_path
from agentrl.records.folder import RunFolder, existing_run
from agentrl.records.ledger import Ledger
from agentrl.records.manifest import PluginSource, read_manifest
from agentrl.records.store import TrajectoryStore, scan
from agentrl.report.export import stored
from agentrl.report.flips import SAME, Rescored, Reverification, value_of
from agentrl.roles.spec import specs_of
from agentrl.rollout.boundary import with_signals
from agentrl.rollout.faults import fault_of
from agentrl.rollout.recording import Recording
from agentrl.rollout.task_order import epoch_seed, evaluation_seed
from agentrl.rollout.worker import RolloutWorker
from agentrl.training.evaluation import is_success
from agentrl.training.rollouts import episode_seed, episode_settings
from agentrl.types import EpisodeRequest, SampleId, StopReason, Trajectory

GROUPS = 16
"""Groups whose episodes run at once."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One stored attempt, and the epoch over the tasks in which it was sampled."""

    sample: SampleId
    attempt: int
    epoch: int = 0


@dataclass(frozen=True)
class Plan:
    """Which trajectories of an environment are scored again, and by what."""

    folder: RunFolder
    config: Config
    section: EnvSection
    """The environment of the run."""
    verifier: EnvSection
    """The environment that scores, with the interpreter in which it does."""
    source: PluginSource
    """That of `verifier`."""
    roles: frozenset[str]
    """Those that `verifier` asks."""
    store: Path
    evaluation: int | None
    """The step of the evaluation whose trajectories are scored; None for those of training."""
    groups: tuple[tuple[Stored, ...], ...]

    @property
    def episodes(self) -> int:
        """The number of trajectories."""
        return sum(map(len, self.groups))


@dataclass(frozen=True, slots=True)
class Choice:
    """The trajectories to score again.

    `label` is an environment of the run ("" for all), `steps` the first and last training step (None for all), and
    `evaluation` the step of an evaluation, which is scored instead of training.
    """

    label: str = ""
    steps: tuple[int, int] | None = None
    evaluation: int | None = None


def plans_of(path: Path, choice: Choice, name: str = "", options: dict[str, Any] | None = None) -> list[Plan]:
    """Plan a reverification of the run in the folder `path`.

    `name` is the environment that scores ("" for that of the run), `options` are keys in which it differs from the run.
    It runs in the interpreter of the run, unless `options` have a `python` or `name` is no path: then in that which has
    this environment. Raises ConfigError for a choice that the run does not have, for an environment that cannot be made
    there, and for one with a role that the policy played.
    """
    folder = RunFolder(existing_run(path).absolute())
    config = load(folder.config)
    sections = {section.label: section for section in config.env}
    if choice.label and choice.label not in sections:
        raise ConfigError(f"{path} has no environment {choice.label!r}.{did_you_mean(choice.label, sections)}")
    if not choice.label and len(sections) > 1 and (name or options):
        raise ConfigError(f"{path} has several environments: say with --label which of them: {', '.join(sections)}")
    store = stored(folder, choice.evaluation)
    chosen = [sections[choice.label]] if choice.label else list(config.env)
    plans = []
    for section in chosen:
        verifier = _verifier(config, section, name, options or {})
        found = _checked(config, section, verifier)
        groups = _groups(folder, store, section.label, choice)
        roles = frozenset(found.roles)
        plans.append(Plan(folder, config, section, verifier, found.source(), roles, store, choice.evaluation, groups))
    if not any(plan.groups for plan in plans):
        raise ConfigError(f"{path} has no such trajectories: choose other steps, or an evaluation")
    return plans


def _verifier(config: Config, section: EnvSection, name: str, options: dict[str, Any]) -> EnvSection:
    """Return the environment that scores the trajectories of `section`, and where. Raises ConfigError."""
    if ignored := [f"--env.{key}" for key in options if key in EnvSection.model_fields and key != "python"]:
        raise ConfigError(f"{', '.join(ignored)} cannot be changed when trajectories are scored again: leave it out")
    is_other = bool(name) and not is_path(name)
    python = expanded(options["python"]) if options.get("python") else None if is_other else section.python
    changes = options | {"name": name or section.name, "alias": section.label, "python": python}
    verifier = section.model_copy(update=changes)
    [located] = with_interpreters(config.model_copy(update={"env": (verifier,)})).env
    return located


def _checked(config: Config, section: EnvSection, verifier: EnvSection) -> Inspection:
    """Check an environment where it will score. Raises ConfigError."""
    request = DryRunRequest(verifier.name, verifier.options, (), config.seed, config.rollout_of(section).max_turns)
    found = inspect_env(request, verifier.python, has_reward_models=bool(config.reward.models))
    given = config.roles_of(section)
    if played := [name for name in found.roles if name in given and not given[name].url]:
        raise ConfigError(
            f"{section.label}: a model of the run plays {', '.join(played)}, and reverify has no engines to ask it "
            "again: only runs whose roles have endpoints (roles.NAME.url) can be scored again"
        )
    return found


def _groups(folder: RunFolder, store: Path, label: str, choice: Choice) -> tuple[tuple[Stored, ...], ...]:
    """Return the newest settled attempt at each sample of an environment, by group."""
    groups: dict[int, dict[SampleId, Stored]] = defaultdict(dict)
    if store == folder.trajectories:
        with closing(Ledger(folder.ledger, is_read_only=True)) as ledger:
            rows = [row for row in ledger.rows() if row.env == label and row.finished_at and row.settled_at]
        first, last = choice.steps or (0, 0)
        wanted = {row.group for row in rows if choice.steps is None or first <= (row.step or 0) <= last}
        for row in rows:
            if row.group in wanted:
                groups[row.group][row.sample] = Stored(row.sample, row.attempt, row.epoch)
    else:
        for t in scan(store):
            if t.env in (label, ""):
                groups[t.sample.group][t.sample] = Stored(t.sample, t.attempt)
    return tuple(tuple(members.values()) for _, members in sorted(groups.items()))


async def reverify(plans: Sequence[Plan]) -> Reverification:
    """Run the episodes of all plans again and score them. Raises ConfigError if an environment has no tasks."""
    rescored = [one for plan in plans for one in await Reverifier.of(plan).run()]
    one = plans[0]
    return Reverification(str(one.folder.path), [_change(plan) for plan in plans], rescored, one.evaluation)


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
            restarts=config.engine.restarts,
        )
        return cls(plan, worker, recording, TrajectoryStore(plan.store))

    async def run(self) -> list[Rescored]:
        """Score all groups, some at once."""
        room = asyncio.Semaphore(GROUPS)

        async def one(group: Sequence[Stored]) -> list[Rescored]:
            async with room:
                return await self._group(group)

        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(one(group)) for group in self.plan.groups]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        finally:
            await self.worker.close()
        return [rescored for task in running for rescored in task.result()]

    async def _group(self, group: Sequence[Stored]) -> list[Rescored]:
        """Score the members of a group, and what compares them; without one of them nothing can be compared."""
        old = [self.store.read(one.sample, one.attempt) for one in group]
        repeated = await asyncio.gather(*map(self._repeated, old, [one.epoch for one in group]))
        new, refusals = [trajectory for trajectory, _ in repeated], [reason for _, reason in repeated]
        if await self.worker.has_group_rewards():
            new = list(await self.worker.score_group(new))
            refusals = [reason or _of_group(old, refusals) for reason in refusals]
        models = {keys.name for keys in self.plan.config.reward.models}
        return [_rescored(*pair, models) for pair in zip(old, new, refusals, strict=True)]

    async def _repeated(self, old: Trajectory, epoch: int) -> tuple[Trajectory, str]:
        """Run an episode again. Returns it, and why it is another episode, "" if it is the same."""
        if not old.action_tokens:
            return old, f"no token was sampled ({old.stop_reason})"
        size = await self.worker.task_count(old.split)
        if size is not None and old.task_index >= size:
            return old, f"the split {old.split!r} has {size} tasks, and this was task {old.task_index}"
        self.recording.begin(old)
        try:
            new = await self.worker.run(self._request(old, epoch))
        finally:
            difference = self.recording.end((old.sample, old.attempt))
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


def _of_group(members: Sequence[Trajectory], refusals: Sequence[str]) -> str:
    """Return why a group cannot be compared: the refusal of its first member that has one."""
    for member, reason in zip(members, refusals, strict=True):
        if reason and member.action_tokens:
            return f"another member of its group is refused: {reason}"
    return ""


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
