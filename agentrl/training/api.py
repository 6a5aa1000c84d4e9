"""The Python API: what `agentrl train`, `resume` and `eval` do, for scripts and notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

from agentrl.config.loading import Setting, distinct, load, of_arguments, of_section
from agentrl.config.schema import Config
from agentrl.env import Env
from agentrl.env.registry import ENVIRONMENTS
from agentrl.errors import ConfigError
from agentrl.metrics.step import EvaluationRecord
from agentrl.plugins.pickles import dump, name_of
from agentrl.records.folder import RunFolder, check_out, path_of
from agentrl.report.run import Run
from agentrl.training import launch
from agentrl.training.eval_config import evaluation_config

EnvName: TypeAlias = str | Path | type[Env] | Mapping[str, Any]
"""An environment: its name or path, its class, or the whole section as a dict."""
PICKLE = "env.pkl"


def train(
    config: Config | None = None,
    *,
    env: EnvName | None = None,
    env_options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Run:
    """Train a model in a new run folder and return the run.

    `settings` override `config`: short flags (`lr=1e-5`, `group_size=8`), keys of a run (`steps=20`) or sections as
    dicts (`rollout={"max_staleness": 1}`); None sets nothing. `env` may be a class, even one of a notebook.
    Works inside a running event loop. Raises what ended the run before its last step, and KeyboardInterrupt when it is
    interrupted; `resume` continues it.
    """
    with _arguments(env, env_options, settings, out=_out_of(config)) as arguments:
        return Run(launch.train(load(config, arguments)).path)


def resume(path: str | PathLike[str], **settings: Any) -> Run:
    """Continue the run `path`, a folder or a Run, from its last checkpoint and return it.

    Of its settings only `steps`, `eval={"every": …}`, the sections checkpoint, track and engine, the number of workers
    and the deadlines may change.
    """
    return Run(launch.resume(path_of(path, "path"), of_arguments(settings)).path)


def evaluate(
    model: str | PathLike[str],
    *,
    config: Config | None = None,
    env: EnvName | None = None,
    env_options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> EvaluationRecord:
    """Score a model on held-out tasks: a folder, a checkpoint, a hub id, or a run (its newest checkpoint).

    A run's model is scored in the run's environment with the run's settings, unless `config` or `env` is given.
    """
    path_of(model, "model")  # only checked: ./mine and mine are two names
    with _arguments(env, env_options, settings | {"model": fspath(model)}, out=_out_of(config)) as arguments:
        return launch.evaluate(evaluation_config(config, arguments))


def load_config(
    toml: str | PathLike[str] | None = None,
    *,
    env: EnvName | None = None,
    env_options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Config:
    """Return the configuration of a run from a TOML file and from settings, which override it (see `train`).

    Keys and types are checked here, the environment's own options and combinations of keys by `train` and `evaluate`.
    A class that other processes cannot import is refused: pass it to `train` or `evaluate`. Raises one ConfigError that
    lists every unknown key and wrong value.
    """
    _check_env(env)
    if isinstance(env, type) and not name_of(ENVIRONMENTS, env):
        name = env.__name__
        raise ConfigError(
            f"other processes cannot import the class {name}, so a configuration cannot name it: pass it later, as in "
            f'`agentrl.train(config, env={name})`, or move it into a file of its own and pass env="./file.py:{name}"'
        )
    with _arguments(env, env_options, settings) as arguments:
        return load(path_of(toml, "toml") if toml is not None else None, arguments)


def _out_of(config: Config | None) -> Path | None:
    """Return the run folder of the configuration; raises ConfigError if it is none."""
    if config is not None and not isinstance(config, Config):
        name = config.__name__ if isinstance(config, type) else repr(config)
        raise ConfigError(
            f"config must be an agentrl.Config, got {name}: choose an environment with env={name}, or read a file with "
            "load_config"
        )
    return config.out if config else None


def _check_env(env: object) -> None:
    if issubclass(env, Env) if isinstance(env, type) else isinstance(env, str | Path | Mapping | None):
        return
    got = f"the class {env.__name__}" if isinstance(env, type) else f"an object of the class {type(env).__name__}"
    raise ConfigError(
        f"env is {got}: pass a subclass of agentrl.env.Env (its options go into env_options), a name, a path or a dict"
    )


@contextmanager
def _arguments(
    env: EnvName | None, options: Mapping[str, Any] | None, settings: Mapping[str, Any], out: Path | None = None
) -> Iterator[list[Setting]]:
    """Yield the settings that arguments make; a class without a name is pickled into the run folder."""
    _check_env(env)
    if options is not None and not isinstance(options, Mapping):
        raise ConfigError(f"env_options must be a dict, got {options!r}")
    rest = of_section("env", options or {}, "argument env_options") + of_arguments(settings)
    if not isinstance(env, type):
        yield distinct(of_arguments({"env": env.absolute() if isinstance(env, Path) else env}) + rest)
        return
    if name := name_of(ENVIRONMENTS, env):
        yield distinct([Setting("env.name", name, "argument env"), *rest])
        return
    chosen = next(path for path in (settings.get("out"), out, launch.default_out(env.__name__)) if path is not None)
    folder = path_of(chosen, "out").absolute()
    with _pickled(env, folder) as path:
        named = distinct([Setting("env.name", str(path), "argument env"), *rest])
        yield [*named, Setting("out", folder, "argument out")]


@contextmanager
def _pickled(env: type[Env], folder: Path) -> Iterator[Path]:
    """Yield the class pickled into the run folder; removed if no run starts there, with the folders made for it."""
    check_out(folder)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PICKLE
    try:
        dump(ENVIRONMENTS, env, path)
        yield path
    finally:
        if not RunFolder(folder).config.exists():
            path.unlink(missing_ok=True)
            with suppress(OSError):  # somebody's files are in it
                for parent in made:
                    parent.rmdir()
