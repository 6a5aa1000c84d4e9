"""What a run is about, found and checked before anything heavy is imported or started."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentrl.config.models import locate
from agentrl.config.schema import Config
from agentrl.env.base import Env
from agentrl.env.config import env_config
from agentrl.env.definition import check_object
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.files import absolute, is_path
from agentrl.env.registry import resolve
from agentrl.env.tracebacks import describe_error
from agentrl.env.tryout.completeness import check_complete
from agentrl.env.tryout.process import try_out
from agentrl.env.tryout.verdict import TryoutRequest
from agentrl.errors import AgentRLError, ConfigError, catch_exit
from agentrl.records.folder import RunFolder
from agentrl.records.manifest import build_manifest, env_source, write_manifest
from agentrl.report.words import visible
from agentrl.training.room import room_note
from agentrl.types import HELD_OUT, TRAIN


@dataclass(frozen=True)
class RunInputs:
    """What is trained or evaluated, in what."""

    env: type[Env]
    model: Path
    notice: str
    """What the env says of this machine, and what its author should know."""

    @classmethod
    def of(cls, config: Config, *splits: str) -> RunInputs:
        """What `config` names, its environment having played an episode of the first task of each split.

        Without `splits` they are those that training needs. Raises ConfigError for an env, a key of it or a model that
        does not exist, for an env that cannot run here, and for one that could not teach anything.
        """
        env = made(config)
        max_turns = config.rollout.max_turns
        check_complete(EnvDriver(env, max_turns))
        notice = _preflight(env)
        wanted = splits or ((TRAIN, HELD_OUT) if config.eval.tasks else (TRAIN,))
        tried = try_out(TryoutRequest(config.env.name, config.env.options, wanted, config.seed, max_turns))
        model = locate(config.model.name)
        _fits(config, model)
        notes = filter(None, [notice, *tried.notes, room_note(tried.prompt, config, model)])
        return cls(type(env), model, " ".join(notes))

    @classmethod
    def again(cls, config: Config, folder: RunFolder) -> RunInputs:
        """The same for the run in `folder`, which goes on: the notice names what has changed since it began."""
        inputs = cls.of(config)
        changed = inputs.record(config, folder)
        return replace(inputs, notice=" ".join(filter(None, [inputs.notice, changed])))

    def record(self, config: Config, folder: RunFolder) -> str:
        """Write down what a run in `folder` is made of; returns what has changed since it began, "" for nothing."""
        source = env_source(config.env.name, self.env)
        return write_manifest(folder, build_manifest(source, paths_in(config.env.options), self.model))

    def tell(self) -> None:
        """Print the notice, at once: what takes long comes after it."""
        if self.notice:
            print(visible(self.notice), flush=True)


def made(config: Config) -> Env:
    """One object of the environment that `config` names. Raises ConfigError."""
    env_class = resolve(config.env.name)
    settings = env_config(env_class, config.env.options)
    outcome = catch_exit(env_class, settings)
    if isinstance(outcome.error, AgentRLError):
        raise outcome.error
    if outcome.error:
        raise ConfigError(
            f"{env_class.__name__} cannot be made: {describe_error(outcome.error, env_class.__init__)}"
        ) from outcome.error
    env: Env = outcome.value
    check_object(env, settings)
    return env


def anchored(config: Config) -> Config:
    """The same configuration, its paths absolute: it means the same wherever `agentrl resume` is called."""
    options = {key: _anchored(value) for key, value in config.env.options.items()}
    env = config.env.model_copy(update={"name": absolute(config.env.name), **options})
    name = config.model.name
    is_folder = bool(name) and (name.startswith((".", "~")) or Path(name).is_dir())
    model = (
        config.model.model_copy(update={"name": str(Path(name).expanduser().absolute())}) if is_folder else config.model
    )
    return config.model_copy(update={"env": env, "model": model, "out": config.out and config.out.absolute()})


def _anchored(value: Any) -> Any:
    """A value of an env's key, absolute where it is the path of something that lies here."""
    if isinstance(value, list | tuple):
        return [_anchored(item) for item in value]
    if not isinstance(value, str | os.PathLike) or not str(value):
        return value
    path = Path(value).expanduser()
    is_meant = is_path(str(value)) or path.suffix or len(path.parts) > 1
    return str(path.absolute()) if is_meant and path.exists() else value


def paths_in(options: dict[str, Any]) -> Iterator[Path]:
    """The files that an env's keys name."""
    for value in options.values():
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, str | os.PathLike) and str(item) and Path(item).is_file():
                yield Path(item)


def _preflight(env: Env) -> str:
    """What the env says; ConfigError for whatever it raises."""
    said = catch_exit(env.preflight)
    if isinstance(said.error, AgentRLError):
        raise said.error
    if said.error:
        raise ConfigError(f"{type(env).__name__} cannot run here: {describe_error(said.error)}") from said.error
    return str(said.value or "")


def _fits(config: Config, model: Path) -> None:
    """Raise ConfigError where the model cannot read `model.max_context` tokens."""
    longest = json.loads((model / "config.json").read_text()).get("max_position_embeddings", config.model.max_context)
    if config.model.max_context > longest:
        raise ConfigError(
            f"model.max_context is {config.model.max_context}, but {config.model.name} reads at most {longest} "
            f"tokens: set --model.max_context {longest} or less"
        )
