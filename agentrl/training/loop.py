"""The training loop, and the ways into it: train, resume, evaluate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from agentrl.cluster.signals import Stop, Stopped
from agentrl.config.machine import detect
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import Config
from agentrl.config.toml import to_toml
from agentrl.errors import AgentRLError
from agentrl.metrics.step import EvaluationRecord
from agentrl.metrics.timer import PhaseTimer
from agentrl.metrics.trackers import Metrics
from agentrl.records.checkpoints import step_of, steps_in
from agentrl.records.folder import RunFolder, run_lock, taken, unwritable
from agentrl.records.jsonl import write_atomic
from agentrl.report.summary import FINISHED, Summary
from agentrl.report.terminal import TerminalView
from agentrl.report.words import score_words, time_words
from agentrl.training.finish import finish
from agentrl.training.inputs import RunInputs, anchored
from agentrl.training.resumption import check_resumable
from agentrl.training.session import Session
from agentrl.training.setup import examined, opened
from agentrl.types import HELD_OUT, Version


async def loop(run: Session) -> None:
    """Sample, score, advantage, update, publish, record: until the last step."""
    run.timer.enter("other")
    if run.step == 0:
        await run.evaluate()
    run.timer.lap()
    run.scheduler.start()
    while run.step < run.config.steps:
        batch = await run.sample()
        learned = await run.update(batch)
        run.record(batch, learned)
        if run.is_due(run.config.checkpoint.every):
            await run.checkpoint()
        if run.is_due(run.config.eval.every) and run.step < run.config.steps:
            await run.evaluate()
        run.stop.check()
    await run.scheduler.stop()
    await run.evaluate()


def train(config: Config, inputs: RunInputs | None = None, began: float | None = None) -> Summary:
    """Train in a new run folder, to the last step. `config` is resolved (`resolve_run`), `inputs` is what it names.

    `began` is when the command began, on the scale of `time.monotonic`; default: now. Raises what ended the run before
    its last step; it can be resumed from then on.
    """
    timer = PhaseTimer(began)
    config = anchored(config)
    inputs = inputs or _told(config)
    folder = new_folder(config)
    with run_lock(folder.path):
        return asyncio.run(_run(config, inputs, folder, None, timer))


def resume(path: Path, config: Config, inputs: RunInputs | None = None, began: float | None = None) -> Summary:
    """Go on with the run in a folder, from its last checkpoint, with `config` from now on (`loading.resumed`)."""
    timer = PhaseTimer(began)
    folder = RunFolder(path)
    config = resolve_run(config, detect(path))
    check_resumable(folder, config.steps)
    inputs = inputs or _told(config, folder)
    with run_lock(path):
        write_atomic(folder.config, to_toml(config).encode())
        steps = steps_in(folder.checkpoints)
        return asyncio.run(_run(config, inputs, folder, steps[-1] if steps else 0, timer))


def evaluate(config: Config, inputs: RunInputs | None = None, began: float | None = None) -> EvaluationRecord:
    """Score the model as it is on held-out tasks; the trajectories are kept in a run folder of their own."""
    timer = PhaseTimer(began)
    config = anchored(config)
    inputs = inputs or _told(config, splits=(HELD_OUT,))
    folder = new_folder(config)
    with run_lock(folder.path):
        return asyncio.run(_evaluate(config, inputs, folder, timer))


def _told(config: Config, folder: RunFolder | None = None, splits: Sequence[str] = ()) -> RunInputs:
    """What `config` names, checked, for the run in `folder` where it goes on; its notice is told."""
    inputs = RunInputs.again(config, folder) if folder else RunInputs.of(config, *splits)
    inputs.tell()
    return inputs


async def _evaluate(config: Config, inputs: RunInputs, folder: RunFolder, timer: PhaseTimer) -> EvaluationRecord:
    view, stop, version = TerminalView(0, timer=timer), Stop(), Version(0, 0)
    timer.parts["program"] = timer.seconds_in_phase()
    metrics = Metrics(folder, config)
    view.note(
        f"Evaluating {config.model.name or inputs.model} in {config.env.name}; the run's folder is {folder.path}."
    )
    try:
        with stop.on_signals():
            async with examined(config, inputs, folder, stop, view) as (team, evaluation):
                timer.enter("evaluate")
                work = evaluation.run(team.workers, 0, version, folder.evaluated(0))
                record = await stop.cut(work)
                timer.enter("close")
        metrics.evaluation(record)
        step = step_of(inputs.model)
        view.note(f"evaluation{'' if step is None else f' after step {step}'} · {score_words(record)}")
        view.note(f"took {time_words(timer.spent(), timer.parts)}")
        return record
    finally:
        metrics.close()
        view.close()


async def _run(
    config: Config, inputs: RunInputs, folder: RunFolder, resumed_at: int | None, timer: PhaseTimer
) -> Summary:
    view, stop = TerminalView(config.steps, timer=timer), Stop()
    timer.parts["program"] = timer.seconds_in_phase()
    view.start(f"The run's folder is {folder.path}.")
    try:
        with stop.on_signals():
            async with opened(config, inputs, folder, stop, view, resumed_at) as run, closing(run):
                await loop(run)
        return finish(folder, inputs.model, view, f"{FINISHED} {config.steps} steps")
    except (AgentRLError, Stopped, asyncio.CancelledError) as error:
        reason = stop.reason(error)
        with suppress(AgentRLError, OSError):  # what ended the run may end its summary too: a full disk
            finish(folder, inputs.model, view, _last_words(reason, folder))
        raise reason from None
    finally:
        view.close()


def _last_words(reason: BaseException, folder: RunFolder) -> str:
    """Why a run ended, and how it goes on, once."""
    hint = f"agentrl resume {folder.path}"
    return str(reason) if hint in str(reason) else f"{reason}; go on with `{hint}`"


@asynccontextmanager
async def closing(run: Session) -> AsyncIterator[None]:
    """Whatever happens inside, what was trained is kept."""
    try:
        yield
    finally:
        await run.close()


def new_folder(config: Config) -> RunFolder:
    """Make the run folder and write the configuration into it. Raises ConfigError when there is a run already."""
    path = config.out or Path("runs") / f"{Path(config.env.name).stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder = RunFolder(path.absolute())
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        with folder.config.open("x") as file:
            file.write(to_toml(config))
    except FileExistsError:
        raise taken(path) from None
    except OSError as error:
        raise unwritable(folder.path, error) from error
    return folder
