"""An environment tried out: what every episode would meet is a fault, what its author should know is a note."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from agentrl.env.base import Env
from agentrl.env.config import load_config
from agentrl.env.context import Episode
from agentrl.env.driver.resources import close_shared
from agentrl.env.play import SILENCE, aplay
from agentrl.env.registry import resolve
from agentrl.env.tasks import Task
from agentrl.env.tools import read_docstring, tools_of
from agentrl.env.tracebacks import describe_error, told
from agentrl.env.tryout.completeness import has_one_turn, unread
from agentrl.env.tryout.observed import observed
from agentrl.env.tryout.tasks import MOMENT_S, check_reread, doubles, first_task, overlap, read_ids
from agentrl.env.tryout.unpaid import refusal, without_value
from agentrl.errors import AgentRLError, ConfigError, acatch
from agentrl.types import Message, StopReason, text_of

SILENT = ((), ())
MOST_TURNS = 2
MOST_PROMPT = 400_000


@dataclass(frozen=True, slots=True)
class TryoutResult:
    """What a tryout found: a fault, "" where the run may begin; notes; the text of the first prompt, long ones cut."""

    fault: str = ""
    notes: tuple[str, ...] = ()
    prompt: str = ""


async def verdict(name: str, options: dict[str, Any], splits: list[str], seed: int, max_turns: int) -> TryoutResult:
    """What is to be said of the environment called `name`."""
    outcome = await acatch(_tried(name, options, splits, seed, max_turns))
    await acatch(close_shared())
    error = outcome.error
    if error is None:
        found: TryoutResult = outcome.value
        return found
    if getattr(error, "fault", "program") == "infra":
        return TryoutResult(
            notes=(f"The first episode failed, for no fault of the environment's: {described(error)}.",)
        )
    raised = error.__cause__ is not None or not is_ours(error)
    return TryoutResult(f"{described(error)}\n\n{told(error)}" if raised else described(error))


async def _tried(name: str, options: dict[str, Any], splits: list[str], seed: int, max_turns: int) -> TryoutResult:
    env_class = resolve(name)
    env = env_class(load_config(env_class, options))
    began = time.monotonic()
    firsts = [await first_task(env, split, seed) for split in splits]
    is_quick = time.monotonic() - began < MOMENT_S
    await _check_lent(env, firsts[0], seed, max_turns)
    turns = min(MOST_TURNS, max_turns or env.limits.max_turns)
    episode, notes = await _played(env, firsts[0], seed, turns)
    read = [await read_ids(env, split, seed) for split in splits]
    notes += [*overlap(read), *(note for ids in read for note in doubles(ids)), *_dumb_tools(env)]
    for ids in read if is_quick else ():
        await check_reread(env, ids, seed)
    return TryoutResult("", tuple(notes), "\n".join(map(text_of, prompt_of(episode)))[:MOST_PROMPT])


async def _check_lent(env: Env, task: Task, seed: int, max_turns: int) -> None:
    """ConfigError where an episode of one turn is lent tools."""
    if type(env).tools is Env.tools or not has_one_turn(env, max_turns):
        return
    own = type(env)(env.config)
    try:
        await own.areset(task, seed=seed)
        if own.ctx.tools:
            raise ConfigError(f"{type(env).__name__}: {unread(own.ctx.tools, max_turns)}")
    finally:
        await own.aclose()


async def _played(env: Env, task: Task, seed: int, turns: int) -> tuple[Episode, list[str]]:
    """A silent episode, played as a member of a group, and notes on it; ConfigError for a reward without a value."""
    began = time.monotonic()
    async with observed(type(env)) as notes:
        episodes = await aplay(env, SILENT, task, seed, turns)
    episode = episodes[0]
    if failed := without_value(episode):
        raise ConfigError(await refusal(env, task, failed, seed, turns))
    notes += [*_unsignalled(env, episode), *_roles(env, episode), *_unheard(env, episode, turns)]
    if time.monotonic() - began < MOMENT_S:
        again = await aplay(env, SILENT, task, seed, turns)
        if [other.messages for other in again] != [other.messages for other in episodes]:
            notes.append("The same seed gave an episode with other messages: draw from ctx.rng alone.")
    return episode, notes


def prompt_of(episode: Episode) -> list[Message]:
    """The first messages of a silent episode: those before its first turn."""
    silent = ("assistant", SILENCE)
    return list(takewhile(lambda message: (message["role"], message["content"]) != silent, episode.messages))


def _unsignalled(env: Env, episode: Episode) -> Iterator[str]:
    if not episode.signals:
        yield f"An empty answer brought {type(env).__name__} no signal at all: such a sample is never trained."


def _roles(env: Env, episode: Episode) -> Iterator[str]:
    """Notes words that are put into the model's mouth where a chat template or the model would stumble over them."""
    roles = [message["role"] for message in prompt_of(episode)] or ["assistant"]
    setup = f"{type(env).__name__}.setup"
    if roles[0] == "assistant":
        yield f"{setup} begins with the assistant, which many chat templates refuse: begin with 'system' or 'user'."
    if roles[-1] == "assistant":
        yield f"{setup} ends with the assistant, so the model would answer itself: end with 'user'."


def _unheard(env: Env, episode: Episode, turns: int) -> Iterator[str]:
    if turns == 1 and type(env).respond is not Env.respond and episode.stop_reason is StopReason.MAX_TURNS:
        yield (
            f"{type(env).__name__}.respond goes on after the only turn, so the model never reads what it says: "
            "write limits = Limits(max_turns=8), or what a solution takes."
        )


def _dumb_tools(env: Env) -> Iterator[str]:
    if dumb := [name for name, tool in tools_of(type(env)).items() if not tool.spec["description"]]:
        yield f"The model is told nothing of {', '.join(dumb)}: write a docstring."
    for name, tool in tools_of(type(env)).items():
        if lost := [word for word in read_docstring(tool.run)[1] if word not in tool.spec["parameters"]["properties"]]:
            yield f"The docstring of {name} speaks of {', '.join(lost)}, which {name} does not take."


def described(error: Exception) -> str:
    """An error of agentrl's tells its place itself."""
    return str(error) if is_ours(error) else describe_error(error)


def is_ours(error: Exception) -> bool:
    """True for errors that agentrl raises on purpose."""
    return isinstance(error, AgentRLError)
