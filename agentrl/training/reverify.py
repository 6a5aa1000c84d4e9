"""Plans of reverifications: which stored trajectories of a run are scored again, and by which environment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.config.loading import Setting, load
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
from agentrl.records.manifest import PluginSource
from agentrl.records.store import TrajectoryStore, scan, unreadable
from agentrl.report.export import stored
from agentrl.types import SampleId


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
    lost: tuple[SampleId, ...] = ()
    """Samples of training whose trajectories cannot be read any more."""

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


def plans_of(
    path: Path,
    choice: Choice,
    name: str = "",
    options: dict[str, Any] | None = None,
    roles: Sequence[Setting] = (),
) -> list[Plan]:
    """Plan a reverification of the run in the folder `path`.

    `name` is the environment that scores ("" for that of the run), `options` are keys in which it differs from the run,
    and `roles` other keys of roles, those of the environment's own included.
    It runs in the interpreter of the run, unless `options` have a `python` or `name` is no path: then in that which has
    this environment. Raises ConfigError for a choice that the run does not have, for an environment that cannot be made
    there, and for one with a role that has no endpoint.
    """
    folder = RunFolder(existing_run(path).absolute())
    config = _with_roles(load(folder.config), choice, roles)
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
        groups, lost = _groups(folder, store, section.label, choice)
        asked, evaluation = frozenset(found.roles), choice.evaluation
        plans.append(Plan(folder, config, section, verifier, found.source(), asked, store, evaluation, groups, lost))
    if not any(plan.groups for plan in plans):
        if damage := damage_of(plans):
            raise ConfigError(f"nothing to score: {damage}")
        raise ConfigError(f"{path} has no such trajectories: {_remedy(folder)}, or an evaluation")
    return plans


def _remedy(folder: RunFolder) -> str:
    """Return which steps of a run have trajectories."""
    with closing(Ledger(folder.ledger, is_read_only=True)) as ledger:
        steps = {row.step for row in ledger.rows() if row.step}
    return f"choose from the steps {min(steps)} to {max(steps)}" if steps else "no step was trained: choose another run"


def _with_roles(config: Config, choice: Choice, changes: Sequence[Setting]) -> Config:
    """Return the configuration with changed roles in the chosen environments. Raises ConfigError."""
    envs = tuple(
        env.model_copy(update={"roles": load(Config(roles=config.roles_of(env)), changes).roles})
        if choice.label in ("", env.label)
        else env
        for env in config.env
    )
    return config.model_copy(update={"env": envs})


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
            f"again: serve that model, and give --roles.{played[0]}.url and --roles.{played[0]}.model"
        )
    if missing := [name for name in found.roles if name not in given]:
        raise ConfigError(
            f"{section.label}: nobody plays {', '.join(missing)}, which the run did not have: give "
            f"--roles.{missing[0]}.url and --roles.{missing[0]}.model"
        )
    return found


def _groups(
    folder: RunFolder, store: Path, label: str, choice: Choice
) -> tuple[tuple[tuple[Stored, ...], ...], tuple[SampleId, ...]]:
    """Return the newest settled attempt at each sample of an environment, by group, and the samples that are lost."""
    lost: tuple[SampleId, ...] = ()
    groups: dict[int, dict[SampleId, Stored]] = defaultdict(dict)
    if store == folder.trajectories:
        with closing(Ledger(folder.ledger, is_read_only=True)) as ledger:
            rows = [row for row in ledger.rows() if row.env == label and row.finished_at and row.settled_at]
        first, last = choice.steps or (0, 0)
        wanted = {row.group for row in rows if choice.steps is None or (row.step and first <= row.step <= last)}
        for row in rows:
            if row.group in wanted:
                groups[row.group][row.sample] = Stored(row.sample, row.attempt, row.epoch)
        readable = set(TrajectoryStore(store).ids())
        known = [one for members in groups.values() for one in members.values()]
        lost = tuple(one.sample for one in known if (one.sample, one.attempt) not in readable)
        for sample in lost:
            del groups[sample.group][sample]
    else:
        for t in scan(store):
            if t.env in (label, ""):
                groups[t.sample.group][t.sample] = Stored(t.sample, t.attempt)
    return tuple(tuple(members.values()) for _, members in sorted(groups.items()) if members), lost


def damage_of(plans: Sequence[Plan]) -> str:
    """Return how many of the chosen trajectories cannot be read, and in which files, "" if all can.

    Of an evaluation the damaged records are counted, whatever their environment is.
    """
    store, is_training = plans[0].store, plans[0].store == plans[0].folder.trajectories
    shards = unreadable(store)
    count = sum(len(plan.lost) for plan in plans) if is_training else sum(shards.values())
    if not count:
        return ""
    where = ", ".join(f"{shard} is damaged" for shard in shards) or f"files of {store} are missing"
    first = next((f", first sample {sample}" for plan in plans for sample in sorted(plan.lost)), "")
    what = "trajectory" if count == 1 else "trajectories"
    return f"{count:,} {what} cannot be read{first}: {where}"
