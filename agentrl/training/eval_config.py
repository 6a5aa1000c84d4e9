"""What `agentrl eval` is to score: a model of a run is scored in that run's environment, with its settings."""

from __future__ import annotations

from pathlib import Path

from agentrl.config.loading import SHORT_FLAGS, key_of, keys, read
from agentrl.config.schema import Config, LearnerSection
from agentrl.errors import ConfigError
from agentrl.records.checkpoints import of_newest
from agentrl.records.folder import RunFolder

SECTIONS = {"env", "engine", "track"}
READ = {
    "seed", "out", "device", "model.name", "model.dtype", "model.max_context",
    "eval.tasks", "eval.samples", "eval.temperature", "eval.k",
    "rollout.max_tokens", "rollout.max_turns", "rollout.workers", "rollout.episode_timeout_s", "rollout.turn_timeout_s",
    "weights.bucket_mib", "weights.publish_timeout_s",
}  # fmt: skip
"""What an evaluation reads: these keys, and the whole of SECTIONS; all others are about training."""
FLAGS = {flag: key for flag, key in SHORT_FLAGS.items() if key in READ | {"env.name"}} | {
    key: key for key in keys() if key in READ and key.startswith("eval.")
}
"""The everyday flags of an evaluation, and their keys."""
DEPTH = 3  # a run's checkpoints/step-000010/model


def to_score(file: Path | None, flags: list[tuple[str, str]]) -> Config:
    """The configuration of an evaluation, from the TOML file and the flags.

    A model that a run wrote brings that run's configuration, unless a file or an environment is named; a run stands for
    its newest checkpoint. Raises ConfigError for a flag that an evaluation would ignore.
    """
    config = of_newest(_config(file, flags))
    # Only now: a name that nobody knows is told as such.
    if ignored := [f"--{name}" for name, _ in flags if not is_read(key_of(name))]:
        raise ConfigError(f"{', '.join(ignored)} has no effect in an evaluation, which trains nothing: leave it out")
    if not config.eval.tasks:
        raise ConfigError("eval.tasks is 0, so there is nothing to score: set --eval.tasks 64, or another number")
    # The learner of the run that wrote the model needs no room on this machine.
    return config.model_copy(update={"learner": LearnerSection()})


def is_read(key: str) -> bool:
    """True for a key that an evaluation reads."""
    return key in READ or key.partition(".")[0] in SECTIONS


def _config(file: Path | None, flags: list[tuple[str, str]]) -> Config:
    given = {key_of(name): text for name, text in flags}
    name = given.get("model.name", "")
    run = run_of(Path(name).expanduser()) if name else None
    if run is None:
        return read(file, flags).config
    model = str(Path(name).expanduser().absolute())
    flags = [*(flag for flag in flags if key_of(flag[0]) != "model.name"), ("model", model)]
    if file or "env.name" in given:
        return read(file, flags).config
    config = read(run.config, flags).config
    return config if "out" in given else config.model_copy(update={"out": None})


def run_of(path: Path) -> RunFolder | None:
    """The run that a folder is, or lies in; None for any other."""
    folders = [path.resolve(), *path.resolve().parents][: DEPTH + 1] if path.is_dir() else []
    return next((run for run in map(RunFolder, folders) if run.is_training), None)
