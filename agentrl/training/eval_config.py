"""What `agentrl eval` scores: a run's model is scored in the run's environment with the run's settings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from agentrl.config.keys import SHORT_FLAGS, keys
from agentrl.config.loading import ENV, Setting, load
from agentrl.config.schema import Config, CriticSection, EngineSection, LearnerSection, LoraSection, ScorersSection
from agentrl.config.values import expanded
from agentrl.errors import ConfigError
from agentrl.records.checkpoints import of_newest
from agentrl.records.folder import RunFolder

SECTIONS = {"env", "engine", "reward", "roles", "track"}
SHARED = {"engine.placement", "reward.placement"}
"""The keys of SECTIONS that say what is shared with a learner."""
READ = {
    "seed", "out", "device", "env_lock", "model.name", "model.dtype", "model.max_context",
    "eval.tasks", "eval.samples", "eval.temperature", "eval.k",
    "rollout.max_tokens", "rollout.max_turns", "rollout.workers", "rollout.concurrency",
    "rollout.episode_timeout_s", "rollout.turn_timeout_s",
    "weights.bucket_mib", "weights.publish_timeout_s",
}  # fmt: skip
"""The keys that an evaluation reads, besides those of SECTIONS; all others are about training."""
FLAGS = {flag: key for flag, key in SHORT_FLAGS.items() if key in READ | {"env.name"}} | {
    key: key for key in keys() if key in READ and key.startswith("eval.")
}
"""The everyday flags of an evaluation and their keys."""
DEPTH = 3  # a run's checkpoints/step-000010/model


def evaluation_config(base: Path | Config | None, settings: Sequence[Setting] = ()) -> Config:
    """Return the configuration of an evaluation: `base` (a TOML file or a configuration), overridden by the settings.

    A model that a run wrote brings that run's configuration, unless `base` or an environment is given; a run stands for
    its newest checkpoint. Raises ConfigError for a setting that an evaluation would ignore.
    """
    config = of_newest(_config(base, settings))
    # Checked last, so that an unknown key is refused as such.
    if ignored := [setting.source for setting in settings if not is_read(setting.key)]:
        raise ConfigError(f"{', '.join(ignored)} has no effect in an evaluation, which trains nothing: leave it out")
    if not config.eval.tasks:
        raise ConfigError("eval.tasks is 0, so there is nothing to score: set --eval.tasks 64 or another number")
    # The processes that trained the model need no resources on this machine; a saved model has its adapters merged.
    unread = {"learner": LearnerSection(), "critic": CriticSection(), "scorers": ScorersSection()}
    weights = config.weights.model_copy(update={"transfer": "auto"})
    engine = _alone(config, {setting.key for setting in settings})
    return config.model_copy(
        update={**unread, "lora": LoraSection(), "placement": "auto", "weights": weights, "engine": engine}
    )


def _alone(config: Config, given: Collection[str]) -> EngineSection:
    """Return engines that share no GPU with a learner; their share of it was chosen for that unless it is given.

    Reward models that were on the learner's GPUs take some of them: the engines are as many as the rest has room for.
    """
    engine = config.engine
    if config.reward.is_shared and "engine.count" not in given:
        engine = engine.model_copy(update={"count": EngineSection().count})
    if engine.placement != "colocate":
        return engine
    key = "gpu_memory_utilization"
    share = engine.gpu_memory_utilization if f"engine.{key}" in given else EngineSection().gpu_memory_utilization
    return engine.model_copy(update={"placement": "auto", key: share})


def is_read(key: str) -> bool:
    """True for a key that an evaluation reads."""
    return key in READ or (key.partition(".")[0] in SECTIONS and key not in SHARED)


def _config(base: Path | Config | None, settings: Sequence[Setting]) -> Config:
    config, names = load(base, settings), {setting.key for setting in settings}
    path = expanded(config.model.name)
    run = run_of(path) if "model.name" in names else None
    if run is None:
        return config
    settings = [*settings, Setting("model.name", str(path.absolute()), "model")]
    if base or names & {ENV, f"{ENV}.name"}:
        return load(base, settings)
    config = load(run.config, settings)
    return config if "out" in names else config.model_copy(update={"out": None})


def run_of(path: Path) -> RunFolder | None:
    """Return the run whose folder is `path` or contains it; None for any other folder."""
    folders = [path.resolve(), *path.resolve().parents][: DEPTH + 1] if path.is_dir() else []
    return next((run for run in map(RunFolder, folders) if run.is_training), None)
