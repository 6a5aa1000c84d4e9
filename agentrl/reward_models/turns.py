"""Process rewards: each turn of a conversation gets a score of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from agentrl.reward_models.client import RewardModel
from agentrl.reward_models.judge import Judge
from agentrl.types import Message, Signal


async def score_turns(model: RewardModel | Judge, messages: Sequence[Message], turns: int) -> tuple[Signal, ...]:
    """Return a signal of scope "turn" for each of the policy's `turns`: the last that many assistant messages.

    Assistant messages before them are examples in the prompt. The reward of a turn is the score of the conversation
    up to it.
    """
    ends = [index + 1 for index, message in enumerate(messages) if message["role"] == "assistant"]
    ends = ends[max(0, len(ends) - turns) :]
    signals = await asyncio.gather(*(model.score(list(messages[:end])) for end in ends))
    return tuple(replace(signal, scope="turn", turn=turn) for turn, signal in enumerate(signals))
