"""The Python API: what `agentrl train`, `resume` and `eval` do, for scripts and notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from agentrl.config.loading import Setting, load, of_arguments, of_section
from agentrl.config.schema import Config
from agentrl.env import Env
from agentrl.env.pickles import dump, name_of
from agentrl.errors import ConfigError
from agentrl.metrics.step import EvaluationRecord
from agentrl.records.folder import RunFolder, check_out
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
    with _arguments(env, env_options, settings, out=config.out if config else None) as arguments:
        return Run(launch.train(load(config, arguments)).path)


def resume(path: Path | str, **settings: Any) -> Run:
    """Continue the run in the folder `path` from its last checkpoint and return it.

    Of its settings only `steps`, `eval={"every": …}`, the sections checkpoint, track and engine, the number of workers
    and the deadlines may change.
    """
    return Run(launch.resume(Path(path), of_arguments(settings)).path)


def evaluate(
    model: str | Path,
    *,
    config: Config | None = None,
    env: EnvName | None = None,
    env_options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> EvaluationRecord:
    """Score a model on held-out tasks: a folder, a checkpoint, a hub id, or a run (its newest checkpoint).

    A run's model is scored in the run's environment with the run's settings, unless `config` or `env` is given.
    """
    with _arguments(env, env_options, settings | {"model": model}, out=config.out if config else None) as arguments:
        return launch.evaluate(evaluation_config(config, arguments))


def load_config(
    toml: Path | str | None = None,
    *,
    env: EnvName | None = None,
    env_options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Config:
    """Return the configuration of a run from a TOML file and from settings, which override it (see `train`).

    Raises one ConfigError that lists every unknown key and wrong value.
    """
    if isinstance(env, type) and not name_of(env):
        raise ConfigError(
            f"{env.__name__} is not in a file of its own: pass the class to agentrl.train or agentrl.evaluate"
        )
    with _arguments(env, env_options, settings) as arguments:
        return load(Path(toml) if toml is not None else None, arguments)


@contextmanager
def _arguments(
    env: EnvName | None, options: Mapping[str, Any] | None, settings: Mapping[str, Any], out: Path | None = None
) -> Iterator[list[Setting]]:
    """Yield the settings that arguments make; a class without a name is pickled into the run folder."""
    rest = of_section("env", options or {}, "argument env_options") + of_arguments(settings)
    if not isinstance(env, type):
        yield of_arguments({"env": env.absolute() if isinstance(env, Path) else env}) + rest
        return
    if name := name_of(env):
        yield [Setting("env.name", name, "argument env"), *rest]
        return
    folder = Path(settings.get("out") or out or launch.default_out(env.__name__)).absolute()
    with _pickled(env, folder) as path:
        yield [Setting("env.name", str(path), "argument env"), *rest, Setting("out", folder, "argument out")]


@contextmanager
def _pickled(env: type[Env], folder: Path) -> Iterator[Path]:
    """Yield the class pickled into the run folder; removed if no run starts there."""
    check_out(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PICKLE
    try:
        dump(env, path)
        yield path
    finally:
        if not RunFolder(folder).config.exists():
            path.unlink(missing_ok=True)
            with suppress(OSError):  # the user's own files are in it
                folder.rmdir()
