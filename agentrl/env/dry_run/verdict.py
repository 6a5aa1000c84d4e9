"""The dry run of an environment: what every episode would meet is a fault, what its author should know is a note."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from agentrl.config.models import chat_tokenizer
from agentrl.endpoint import TOKENIZER
from agentrl.env.base import Env
from agentrl.env.comparison import difference
from agentrl.env.config import env_config
from agentrl.env.context import Episode
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.driver.resources import close_shared
from agentrl.env.dry_run.completeness import MORE_TURNS, has_rewards, lacks_turns, unread_tools
from agentrl.env.dry_run.duplicates import duplicate_methods
from agentrl.env.dry_run.observed import observed
from agentrl.env.dry_run.tasks import MOMENT_S, check_reread, duplicate_ids, first_task, overlap, read_tasks
from agentrl.env.files.rows import PromptEnv
from agentrl.env.play import aplay
from agentrl.env.policies import SILENCE
from agentrl.env.registry import resolve
from agentrl.env.tasks import Task
from agentrl.env.tools import read_docstring, tools_of
from agentrl.errors import AgentRLError, ConfigError, acatch, catch
from agentrl.plugins.tracebacks import authors_traceback, describe_error
from agentrl.types import Message, Signal, StopReason, text_of

SILENT = ((), ())
MAX_TURNS = 2
MAX_PROMPT_CHARS = 400_000
ANSWERS = ("1", "yes")
"""Answers that are not empty."""
ASK_S = 2.0


@dataclass(frozen=True, slots=True)
class DryRunRequest:
    """What to check: an environment with its options, the splits to read, and the run's seed and `max_turns`."""

    name: str
    options: dict[str, Any]
    splits: Sequence[str]
    seed: int = 0
    max_turns: int = 0
    """0: the limit of the environment."""
    model: str = ""
    """Folder of the model, whose chat template a file of OpenRLHF may read; without it the template is ChatML."""


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """Result of a dry run: a fault ("" if the run may begin), notes, the text of the first prompt, maybe cut."""

    fault: str = ""
    notes: tuple[str, ...] = ()
    prompt: str = ""
    endless: tuple[str, ...] = ()
    """The splits whose tasks are endless."""


async def verdict(request: DryRunRequest) -> DryRunResult:
    """Check an environment; errors become faults, or notes if the environment is not to blame."""
    outcome = await acatch(_dry_run(request))
    await acatch(close_shared())
    error = outcome.error
    if error is None:
        found: DryRunResult = outcome.value
        return found
    text = str(error) if isinstance(error, AgentRLError) else describe_error(error)
    if getattr(error, "fault", "program") == "infra":
        return DryRunResult(notes=(f"The first episode failed, but not because of the environment: {text}.",))
    is_raised = error.__cause__ is not None or not isinstance(error, AgentRLError)
    return DryRunResult(f"{text}\n\n{authors_traceback(error)}" if is_raised else text)


async def _dry_run(request: DryRunRequest) -> DryRunResult:
    env_class, seed = resolve(request.name), request.seed
    if methods := ", ".join(duplicate_methods(env_class)):
        raise ConfigError(f"{methods} is defined twice, and Python keeps only the last definition: rename one")
    if request.model and issubclass(env_class, PromptEnv):
        TOKENIZER.set(chat_tokenizer(Path(request.model)))
    driver = EnvDriver(env_class(env_config(env_class, request.options)), request.max_turns)
    began = time.monotonic()
    firsts = [await first_task(driver, split, seed) for split in request.splits]
    is_quick = time.monotonic() - began < MOMENT_S
    await check_offered_tools(driver, firsts[0], seed)
    episode, notes = await first_episode(driver.env, firsts[0], seed, turns_of(driver))
    read = [await read_tasks(driver, split, seed) for split in request.splits]
    notes += [*overlap(read), *(note for tasks in read for note in duplicate_ids(tasks)), *undocumented(env_class)]
    for tasks in read if is_quick else ():
        notes += await check_reread(driver.env, tasks, seed)
    prompt = "\n".join(map(text_of, prompt_of(episode)))[:MAX_PROMPT_CHARS]
    return DryRunResult("", tuple(notes), prompt, tuple(tasks.split for tasks in read if tasks.size is None))


def turns_of(driver: EnvDriver) -> int:
    """Return how many turns a first episode has: an agent that drives has its own limit, so that it can end."""
    return driver.max_turns if type(driver.env)._drives else min(MAX_TURNS, driver.max_turns)


async def check_offered_tools(driver: EnvDriver, task: Task, seed: int) -> None:
    """Raise ConfigError if `tools(ctx)` offers tools to an episode of one turn."""
    env = driver.env
    if type(env).tools is Env.tools or not lacks_turns(driver):
        return
    fresh = EnvDriver(type(env)(env.config))
    try:
        await fresh.reset(task, seed=seed)
        if tools := fresh.ctx.tools:
            raise ConfigError(f"{type(env).__name__}: {unread_tools(tools, driver)}")
    finally:
        await fresh.close()


async def first_episode(env: Env, task: Task, seed: int, turns: int) -> tuple[Episode, list[str]]:
    """Play an episode of empty answers as a member of a group; return it with notes on it.

    Raises ConfigError for a reward without a value, and for an episode that changes its task.
    """
    began = time.monotonic()
    with unchanged(env, task):
        async with observed(type(env)) as notes:
            episodes = await aplay(env, SILENT, task, seed, turns)
    episode = episodes[0]
    if failed := _without_value(episode):
        raise ConfigError(await _refusal(env, task, failed, seed, turns))
    notes += [*_no_signals(env, episode), *_roles(env, episode), *_unheard(env, episode, turns)]
    if time.monotonic() - began < MOMENT_S:
        again = await aplay(env, SILENT, task, seed, turns)
        if [other.messages for other in again] != [other.messages for other in episodes]:
            notes.append("The same seed gave an episode with other messages: draw only from ctx.rng.")
        elif found := next(filter(None, map(_other_values, episodes, again)), ""):
            notes.append(f"The same seed gave the same messages other rewards ({found}): draw only from ctx.rng.")
    return episode, notes


def _other_values(one: Episode, other: Episode) -> str:
    """Return the first signal of two equal episodes that has two values."""
    first, second = (
        {(signal.name, signal.turn): signal.value for signal in (*each.signals, *_success(each))}
        for each in (one, other)
    )
    return difference(first, second)


@contextmanager
def unchanged(env: Env, task: Task, who: str = "an episode") -> Iterator[None]:
    """Raise ConfigError if the body changes the data of a task. Data that differs from its copy is not compared."""
    data = catch(deepcopy, task.data).value
    is_copy = not difference(data, task.data)
    yield
    if is_copy and (changed := difference(data, task.data, "task.data")):
        raise ConfigError(
            f"{type(env).__name__}: {who} changed its task, which all episodes of the task share: {changed}; "
            "change a copy, and keep it in ctx.state"
        )


def prompt_of(episode: Episode) -> list[Message]:
    """Return the first messages of a silent episode: those before its first turn."""
    silent = ("assistant", SILENCE)
    return list(takewhile(lambda message: (message["role"], message["content"]) != silent, episode.messages))


def _no_signals(env: Env, episode: Episode) -> Iterator[str]:
    is_cut = type(env)._drives and episode.stop_reason is StopReason.MAX_TURNS
    if not episode.signals and has_rewards(type(env)) and not is_cut:
        yield f"{type(env).__name__} gave no signal for an empty answer: such a sample is never trained on."


def _roles(env: Env, episode: Episode) -> Iterator[str]:
    """Notes on first messages that a chat template or the model cannot handle."""
    roles = [message["role"] for message in prompt_of(episode)] or ["assistant"]
    setup = f"{type(env).__name__}.setup"
    if roles[0] == "assistant":
        yield f"{setup} begins with the assistant, which many chat templates reject: begin with 'system' or 'user'."
    if roles[-1] == "assistant":
        yield f"{setup} ends with the assistant, so the model would answer itself: end with 'user'."


def _unheard(env: Env, episode: Episode, turns: int) -> Iterator[str]:
    if turns == 1 and type(env).respond is not Env.respond and episode.stop_reason is StopReason.MAX_TURNS:
        yield f"{type(env).__name__}.respond continues after the only turn, so the model never reads it: {MORE_TURNS}."


def undocumented(env_class: type[Env]) -> Iterator[str]:
    """Notes on tools whose docstring is missing or describes parameters that they do not have."""
    tools = tools_of(env_class)
    if silent := [name for name, tool in tools.items() if not tool.spec["description"]]:
        yield f"The model has no description of {', '.join(silent)}: write a docstring."
    for name, tool in tools.items():
        if lost := [word for word in read_docstring(tool.run)[1] if word not in tool.spec["parameters"]["properties"]]:
            yield f"The docstring of {name} describes {', '.join(lost)}, which {name} does not take."


# --- rewards without a value --------------------------------------------------------------------------------------


def _without_value(episode: Episode) -> Signal | None:
    """Return the first reward (or result of `success`) of an episode without a value: its sample would be dropped."""
    counted = (signal for signal in episode.signals if signal.weight)
    return next((signal for signal in (*counted, *_success(episode)) if not signal.valid), None)


async def _refusal(env: Env, task: Task, failed: Signal, seed: int, turns: int) -> str:
    """Return what is wrong with a reward without a value and, if empty answers are the cause, what to return."""
    name = f"{type(env).__name__}.{failed.name}"
    text = f"{name} has no value: {failed.reason}"
    if await _is_from_silence(env, task, failed, seed, turns):
        text = (
            f"{name} has no value for an empty answer: {failed.reason}. A sample without a value is dropped, which "
            f"rewards a failing model: return {'False' if failed.name == 'success' else '0'}"
        )
    return f"{text}\n\n{failed.traceback}".rstrip()


async def _is_from_silence(env: Env, task: Task, failed: Signal, seed: int, turns: int) -> bool:
    """True if the same reward behaves differently for an answer that is not empty."""
    oracle = catch(env.oracle, task).value
    for policy in filter(None, (oracle, *((answer,) * turns for answer in ANSWERS))):
        most = 0 if policy is oracle else turns
        played = await acatch(asyncio.wait_for(aplay(env, (policy, policy), task, seed, most), ASK_S))
        if played.error is None and _kinds(played.value[0], failed.name) - {_kind(failed)}:
            return True
    return False


def _kinds(episode: Episode, name: str) -> set[str]:
    return {_kind(signal) for signal in (*episode.signals, *_success(episode)) if signal.name == name}


def _kind(signal: Signal) -> str:
    """Return the kind of result: a value, something unusable, or an error of some type."""
    if signal.valid:
        return "value"
    return signal.reason.partition(":")[0] if signal.traceback else "unusable"


def _success(episode: Episode) -> tuple[Signal, ...]:
    return (episode.success,) if episode.success else ()
