"""Process rewards: each turn of a conversation gets a score of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from agentrl.errors import VerifierError
from agentrl.reward_models.client import RewardModel
from agentrl.reward_models.judge import EngineJudge, Judge
from agentrl.types import Message, Signal, Trajectory

Scoring = RewardModel | Judge | EngineJudge


async def score_turns(model: Scoring, messages: Sequence[Message], turns: int) -> tuple[Signal, ...]:
    """Return a signal of scope "turn" for each of the policy's `turns`: the last that many assistant messages.

    Assistant messages before them are examples in the prompt. The reward of a turn is the score of the conversation
    up to it. Raises VerifierError if there are fewer of them than turns.
    """
    ends = [index + 1 for index, message in enumerate(messages) if message["role"] == "assistant"]
    if len(ends) < turns:
        raise VerifierError(
            f"the history has {len(ends)} assistant messages for {turns} turns: pass one that has the messages of all"
        )
    return await _scored(model, (messages[:end] for end in ends[len(ends) - turns :]))


async def score_turns_of(model: Scoring, trajectory: Trajectory) -> tuple[Signal, ...]:
    """Return the same for a finished episode. A turn is scored by what the policy saw then, not by a later history."""
    return await _scored(model, map(trajectory.conversation, range(trajectory.turns)))


async def _scored(model: Scoring, conversations: Iterable[Sequence[Message]]) -> tuple[Signal, ...]:
    signals = await asyncio.gather(*(model.score(list(messages)) for messages in conversations))
    return tuple(replace(signal, scope="turn", turn=turn) for turn, signal in enumerate(signals))
