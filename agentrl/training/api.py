"""The Python API: what `agentrl train`, `resume` and `eval` do, for scripts and notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import PathLike, fspath
from pathlib import Path
from types import NoneType
from typing import Any, TypeAlias

from agentrl.algorithms.base import Algorithm
from agentrl.algorithms.registry import ALGORITHMS
from agentrl.config.loading import Setting, distinct, load, of_arguments, of_section
from agentrl.config.schema import Config
from agentrl.env import Env
from agentrl.env.registry import ENVIRONMENTS
from agentrl.errors import ConfigError
from agentrl.metrics.step import EvaluationRecord
from agentrl.plugins.kind import Kind
from agentrl.plugins.pickles import dump, name_of
from agentrl.records.folder import RunFolder, check_out, path_of
from agentrl.report.run import Run
from agentrl.training import launch
from agentrl.training.eval_config import evaluation_config

EnvName: TypeAlias = str | Path | type[Env] | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
"""An environment: its name or path, its class, or the whole section as a dict; several: a list of names and dicts."""
AlgorithmName: TypeAlias = str | Path | type[Algorithm]
"""An algorithm: its name or path, or its class."""
OTHERS = {
    "env": "(its options go into env_options), a name, a path, a dict, or a list of names and dicts",
    "algo": "(its keys go into algorithm={...}), a name or a path",
}
"""What else an argument may be."""


def train(
    config: Config | None = None,
    *,
    env: EnvName | None = None,
    env_options: Mapping[str, Any] | None = None,
    algo: AlgorithmName | None = None,
    **settings: Any,
) -> Run:
    """Train a model in a new run folder and return the run.

    `settings` override `config`: short flags (`lr=1e-5`, `group_size=8`), keys of a run (`steps=20`) or sections as
    dicts (`rollout={"max_staleness": 1}`); None sets nothing. `env` and `algo` may be classes, even of a notebook.
    Works inside a running event loop. Raises what ended the run before its last step, and KeyboardInterrupt when it is
    interrupted; `resume` continues it.
    """
    with _arguments(env, env_options, settings, algo, out=_out_of(config)) as arguments:
        return Run(launch.train(load(config, arguments)).path)


def resume(path: str | PathLike[str], **settings: Any) -> Run:
    """Continue the run `path`, a folder or a Run, from its last checkpoint and return it.

    `settings` may change only what does not affect what is learned, such as `steps`, `eval={"every": …}` and deadlines;
    `agentrl resume --help` lists them all.
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
    algo: AlgorithmName | None = None,
    **settings: Any,
) -> Config:
    """Return the configuration of a run from a TOML file and from settings, which override it (see `train`).

    Keys and types are checked here; the keys of the environment and of the algorithm, and combinations of keys, by
    `train` and `evaluate`.
    A class that other processes cannot import is refused: pass it to `train` or `evaluate`. Raises one ConfigError that
    lists every unknown key and wrong value.
    """
    for kind, given in _given(env, algo):
        if isinstance(given, type) and not name_of(kind, given):
            name = given.__name__
            raise ConfigError(
                f"other processes cannot import the class {name}, so a configuration cannot name it: pass it later, as "
                f"in `agentrl.train(config, {kind.argument}={name})`, or move it into a file of its own and pass "
                f'{kind.argument}="./file.py:{name}"'
            )
    with _arguments(env, env_options, settings, algo) as arguments:
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


def _given(env: EnvName | None, algo: AlgorithmName | None) -> list[tuple[Kind[Any], Any]]:
    """Return the arguments that name plugins. Raises ConfigError for one of another type."""
    given: list[tuple[Kind[Any], Any]] = [(ENVIRONMENTS, env), (ALGORITHMS, algo)]
    for kind, value in given:
        is_class, accepted = (
            isinstance(value, type),
            (str, Path, NoneType) + (Mapping, list, tuple) * (kind is ENVIRONMENTS),
        )
        if isinstance(value, list | tuple) and (classes := [item for item in value if isinstance(item, type)]):
            name = classes[0].__name__
            raise ConfigError(f'{kind.argument} lists the class {name}: name its file, as in "./file.py:{name}"')
        if issubclass(value, kind.base) if is_class else isinstance(value, accepted):
            continue
        got = f"the class {value.__name__}" if is_class else f"an object of the class {type(value).__name__}"
        raise ConfigError(f"{kind.argument} is {got}: pass a subclass of {kind.public} {OTHERS[kind.argument]}")
    return given


@contextmanager
def _arguments(
    env: EnvName | None,
    options: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    algo: AlgorithmName | None = None,
    out: Path | None = None,
) -> Iterator[list[Setting]]:
    """Yield the settings that arguments make; classes without a name are pickled into the run folder."""
    given = _given(env, algo)
    if options is not None and not isinstance(options, Mapping):
        raise ConfigError(f"env_options must be a dict, got {options!r}")
    rest = of_section("env", options or {}, "argument env_options") + of_arguments(settings)
    unnamed = {kind: value for kind, value in given if isinstance(value, type) and not name_of(kind, value)}
    named = [setting for kind, value in given if kind not in unnamed for setting in _named(kind, value)]
    if not unnamed:
        yield distinct(named + rest)
        return
    default = launch.default_out(next(iter(unnamed.values())).__name__)
    chosen = next(path for path in (settings.get("out"), out, default) if path is not None)
    folder = path_of(chosen, "out").absolute()
    with _pickled(unnamed, folder) as pickles:
        named += [setting for kind, path in pickles.items() for setting in _named(kind, path)]
        yield [*distinct(named + rest), Setting("out", folder, "argument out")]


def _named(kind: Kind[Any], value: Any) -> list[Setting]:
    """Return the settings of one argument that names a plugin."""
    if isinstance(value, type):
        value = name_of(kind, value)
    return of_arguments({kind.argument: str(value.absolute()) if isinstance(value, Path) else value})


@contextmanager
def _pickled(plugins: Mapping[Kind[Any], type], folder: Path) -> Iterator[dict[Kind[Any], Path]]:
    """Yield the classes pickled into the run folder; removed if no run starts there, with the folders made for it."""
    check_out(folder)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    pickles = {kind: folder / f"{kind.argument}.pkl" for kind in plugins}
    try:
        for kind, path in pickles.items():
            dump(kind, plugins[kind], path)
        yield pickles
    finally:
        if not RunFolder(folder).config.exists():
            for path in pickles.values():
                path.unlink(missing_ok=True)
            with suppress(OSError):  # somebody's files are in it
                for parent in made:
                    parent.rmdir()
