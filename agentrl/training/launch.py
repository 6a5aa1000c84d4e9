"""From a configuration to a run: resolve and check it before anything heavy is imported, then carry it out."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agentrl.cluster.hardware import hardware
from agentrl.cluster.signals import run_until_stopped
from agentrl.config.loading import Setting, resumed
from agentrl.config.resolve import explain, resolve_run
from agentrl.config.schema import Config, RewardSection
from agentrl.config.toml import to_toml
from agentrl.errors import ConfigError
from agentrl.metrics.step import EvaluationRecord
from agentrl.metrics.timer import PhaseTimer
from agentrl.packaging.added import with_interpreters
from agentrl.planning.fit import fitted_run
from agentrl.records.checkpoints import discard_partial, of_newest, steps_in
from agentrl.records.folder import RunFolder, check_out, existing_run, run_lock, taken, unwritable
from agentrl.records.jsonl import write_atomic
from agentrl.training.inputs import RunInputs, anchored, check_resumable, check_unfinished
from agentrl.types import HELD_OUT


def train(config: Config, began: float | None = None) -> RunFolder:
    """Train to the last step in a new run folder. `began`: start of the command by `time.monotonic`, default now.

    Raises what ended the run before its last step, KeyboardInterrupt for a signal; the run can then be resumed.
    """
    timer, here = PhaseTimer(began), hardware()
    config = with_interpreters(fitted_run(of_newest(config), here))
    check_out(config.out)
    inputs = RunInputs.of(config)
    print(f"{explain(config, here)}\n", flush=True)
    inputs.print_notice()
    from agentrl.training import loop

    with _new_run(config) as (config, folder):
        run_until_stopped(loop.run_training(config, inputs, folder, timer))
    return folder


def resume(path: Path, settings: Sequence[Setting] = (), began: float | None = None) -> RunFolder:
    """Continue the run in a folder from its last checkpoint, with changed settings."""
    timer, folder = PhaseTimer(began), RunFolder(existing_run(path).absolute())
    check_resumable(folder)  # before the configuration is read: that of an earlier version has other keys
    config = with_interpreters(fitted_run(resumed(path, settings), hardware(path), resumes=path))
    check_unfinished(folder, config.steps)
    with run_lock(folder.path):
        discard_partial(folder.checkpoints)
        inputs = RunInputs.for_resume(config, folder)
        inputs.print_notice()
        from agentrl.training import loop

        write_atomic(folder.config, to_toml(config).encode())
        last = max(steps_in(folder.checkpoints), default=0)
        run_until_stopped(loop.run_training(config, inputs, folder, timer, resumed_at=last))
    return folder


def replay(path: Path, step: int | None = None) -> None:
    """Train the stored trajectories of a run again up to `step`. Raises RunError if the weights differ from its own."""
    folder = RunFolder(existing_run(path).absolute())
    check_resumable(folder)
    config = resumed(path)
    # A resume may have given up what repeats steps: those that were taken with it are taken with it again.
    learner = config.learner.model_copy(update={"deterministic": True})
    envs = tuple(env.model_copy(update={"roles": None}) for env in config.env)
    # Nothing is sampled, so neither models that play roles nor reward models are needed.
    config = config.model_copy(update={"roles": {}, "env": envs, "reward": RewardSection(), "learner": learner})
    config = resolve_run(config, hardware(path))
    with run_lock(folder.path):
        from agentrl.training import replay as replaying

        plan = replaying.plan_replay(folder, step)
        replaying.check_models(config, folder)
        replaying.check_algorithm(config, folder, plan)
        replaying.check_settings(config, plan)
        print(f"Replaying {len(plan.steps)} steps of {folder.path} after step {plan.start}.", flush=True)
        run_until_stopped(replaying.replay(config, folder, plan))
    print(f"{len(plan.steps)} steps gave the weights that the run recorded.")


def evaluate(config: Config, began: float | None = None, split: str = HELD_OUT) -> EvaluationRecord:
    """Score a model as it is on held-out tasks, or another `split`; the trajectories are kept in a new run folder."""
    timer, config = PhaseTimer(began), with_interpreters(fitted_run(config, hardware(), learns=False))
    check_out(config.out)
    inputs = RunInputs.of(config, split)
    inputs.print_notice()
    from agentrl.training import loop

    with _new_run(config) as (config, folder):
        return run_until_stopped(loop.run_evaluation(config, inputs, folder, timer, split))


@contextmanager
def _new_run(config: Config) -> Iterator[tuple[Config, RunFolder]]:
    """Make the folder of a new run and lock it; paths in the configuration become absolute."""
    config = anchored(config)
    folder = new_folder(config)
    with run_lock(folder.path):
        yield config, folder


def default_out(name: str) -> Path:
    """Return the default run folder in the environment `name`."""
    stem = re.sub(r"[^\w.+-]+", "-", name)  # a name may have a scheme
    return Path("runs") / f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"


def new_folder(config: Config) -> RunFolder:
    """Make the run folder and write the configuration into it. Raises ConfigError if it already contains a run."""
    path = config.out or default_out("+".join(Path(env.name).stem for env in config.env))
    folder = RunFolder(path.absolute())
    try:
        data = to_toml(config).encode()
        folder.path.mkdir(parents=True, exist_ok=True)
        with folder.config.open("xb") as file, _removed_on_error(folder.config):
            file.write(data)
            file.flush()
    except FileExistsError:
        raise taken(path) from None
    except UnicodeEncodeError as error:
        line = error.object.splitlines()[error.object.count("\n", 0, error.start)]
        raise ConfigError(f"{line!a} is not UTF-8: rename the file") from error
    except OSError as error:
        raise unwritable(folder.path, error) from error
    return folder


@contextmanager
def _removed_on_error(path: Path) -> Iterator[None]:
    """Remove the file if the block fails."""
    try:
        yield
    except BaseException:
        path.unlink()
        raise
