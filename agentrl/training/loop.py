"""The training loop, and what runs it: sample, update, record, checkpoint, evaluate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from agentrl.cluster.signals import Stop, Stopped
from agentrl.config.schema import Config
from agentrl.errors import AgentRLError
from agentrl.metrics.step import EvaluationRecord
from agentrl.metrics.timer import PhaseTimer
from agentrl.metrics.trackers import Metrics
from agentrl.records.checkpoints import step_of
from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import noted
from agentrl.report.summary import FINISHED, Summary
from agentrl.report.terminal import TerminalView
from agentrl.report.words import score_words, time_words
from agentrl.training.finish import finish
from agentrl.training.inputs import RunInputs
from agentrl.training.session import Session
from agentrl.training.setup import open_evaluation, open_run
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


async def run_training(
    config: Config, inputs: RunInputs, folder: RunFolder, timer: PhaseTimer, resumed_at: int | None = None
) -> Summary:
    """Run the loop in `folder`, from the checkpoint of step `resumed_at` if given, and finish the run."""
    view, stop = TerminalView(config.steps, timer=timer), Stop()
    timer.parts["program"] = timer.seconds_in_phase()
    view.start(f"The run's folder is {folder.path}.")
    try:
        with stop.on_signals():
            async with open_run(config, inputs, folder, stop, view, resumed_at) as run, closing(run):
                await loop(run)
        return finish(folder, inputs.model, view, f"{FINISHED} {config.steps} steps")
    except (AgentRLError, OSError, Stopped, asyncio.CancelledError) as error:
        reason = stop.reason(error)
        with suppress(AgentRLError, OSError):  # the reason, such as a full disk, may prevent a summary too
            finish(folder, inputs.model, view, _ended(reason, folder))
        raise reason from None
    finally:
        view.close()


@asynccontextmanager
async def closing(run: Session) -> AsyncIterator[None]:
    """Keep what was trained when the block ends; an error in closing becomes a note of an earlier failure."""
    try:
        yield
    except BaseException as error:
        with noted(error):
            await run.close()
        raise
    await run.close()


def _ended(reason: BaseException, folder: RunFolder) -> str:
    """Return why a run ended and how to resume it, said once."""
    hint = f"agentrl resume {folder.path}"
    why = str(reason) or "the run was stopped"  # before anything that it could name
    return why if hint in why else f"{why.rstrip('.')}; go on with `{hint}`"


async def run_evaluation(
    config: Config, inputs: RunInputs, folder: RunFolder, timer: PhaseTimer, split: str = HELD_OUT
) -> EvaluationRecord:
    """Score the model of `inputs` on tasks of `split`; `folder` keeps the trajectories."""
    view, stop = TerminalView(0, timer=timer), Stop()
    timer.parts["program"] = timer.seconds_in_phase()
    names = ", ".join(env.name for env in config.env)
    view.note(f"Evaluating {config.model.name or inputs.model} in {names}; the run's folder is {folder.path}.")
    view.name_long_phases()
    try:
        with stop.on_signals():
            record = await _evaluated(config, inputs, folder, stop, view, split)
        step = step_of(inputs.model)
        view.note(f"evaluation{'' if step is None else f' after step {step}'} · {score_words(record)}")
        view.note(f"took {time_words(timer.spent(), timer.parts)}")
        return record
    except asyncio.CancelledError as error:
        raise stop.reason(error) from None
    finally:
        view.close()


async def _evaluated(
    config: Config, inputs: RunInputs, folder: RunFolder, stop: Stop, view: TerminalView, split: str
) -> EvaluationRecord:
    metrics = Metrics(folder, config)
    try:
        async with open_evaluation(config, inputs, folder, stop, view, split) as (team, evaluation):
            view.timer.enter("evaluate")
            record = await stop.cut(evaluation.run(team.workers, 0, Version(0, 0), folder.evaluated(0)))
            view.timer.enter("close")
        metrics.evaluation(record)
        return record
    finally:
        metrics.close()
