"""Games of TextArena for several players: the policy plays all of them, or a role plays its opponents."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import re2

from agentrl.env import Adapter, AgentEnv, Context, EnvConfig, Message, Model, Policy, Signal, Task, role, text_of
from agentrl_textarena.config import TextArenaConfig, set_keys, tasks_of
from agentrl_textarena.game import Game, check_settings

MOVE: Any = re2.compile(r"\[[^\[\]\n]+\]")


class Played(NamedTuple):
    """How a game went: the reward of each player, and whether it was played to its end by the rules."""

    rewards: dict[int, float]
    is_played_out: bool


class Match(AgentEnv, Adapter):
    """Play a game of TextArena in every seat; each player's reward credits the tokens of its own moves.

    A player's moves are those of the agent "player N".
    """

    Config = TextArenaConfig
    config: TextArenaConfig
    solved_reward = 1.0
    wraps = ("textarena",)
    game: ClassVar[str]
    players: ClassVar[int]

    def __init__(self, config: EnvConfig | None = None, **options: Any) -> None:
        super().__init__(config, **options)
        self.limits = replace(self.limits, max_turns=self.config.turns)

    def preflight(self) -> str:
        """Begin a game. Raises ConfigError for settings with which it cannot begin."""
        check_settings(self.game, set_keys(self.config), self.players)
        return ""

    def tasks(self, split: str) -> list[Task] | Callable[[random.Random], Task]:
        """Return endless seeds for "train", which are even, and a hundred odd ones for "test"."""
        return tasks_of(split)

    async def play(self, task: Task, ctx: Context, model: Model) -> Played:  # noqa: ARG002 (a hook's name)
        """Play the game to its end, or for `--env.turns` moves."""
        game = await asyncio.to_thread(Game, self.game, task.data, set_keys(self.config), self.players)
        heard: defaultdict[int, list[Message]] = defaultdict(list)
        for _ in range(self.config.turns):
            messages = heard[game.seat]
            messages.append(Message(role="user", content=game.text))
            reply = await self.reply(game.seat, messages, task, model)
            messages.append(Message(role="assistant", content=reply))
            await asyncio.to_thread(game.move, reply)
            if game.is_over:
                break
        return await asyncio.to_thread(lambda: Played(game.rewards(), game.is_played_out()))

    async def reply(self, seat: int, messages: list[Message], task: Task, model: Model) -> str:  # noqa: ARG002
        """Return the move of a player who has heard these messages."""
        return await model.ask(messages, agent=agent_of(seat))

    def score(self, ctx: Context) -> list[Signal]:
        """Return a reward for each player that the policy was; 0 if the game was not finished."""
        seats = sorted({turn.agent for turn in ctx.turns})
        rewards = {agent_of(seat): reward for seat, reward in ctx.result.rewards.items()} if ctx.result else {}
        return [Signal(self.reward_of(seat), rewards.get(seat, 0.0), agent=seat) for seat in seats]

    def reward_of(self, agent: str) -> str:
        """Return the name of the reward of an agent: each has one of its own, because their sum may always be 0."""
        return f"game_reward of {agent}"

    def success(self, ctx: Context) -> bool:
        """Return whether the game was played out by the rules: against itself the policy always wins and loses."""
        return ctx.result is not None and ctx.result.is_played_out

    def canaries(self, task: Task) -> Mapping[str, Policy]:  # noqa: ARG002 (no reward of all players together pays)
        """Return a policy that says nothing."""
        return {"silence": [""] * self.config.turns}


class Duel(Match):
    """Play a game of TextArena in one seat, which the seed chooses; the role `opponent` has all others."""

    @role
    def opponent(self, messages: list[Message]) -> str:
        """Plays the other players of the game. The stand-in makes the last move in brackets that it has read of."""
        moves = MOVE.findall("\n".join(text_of(message) for message in messages if message["role"] == "user"))
        return moves[-1] if moves else "[0]"

    def reward_of(self, agent: str) -> str:  # noqa: ARG002 (the policy is one player)
        """Return the name of the only reward."""
        return "game_reward"

    def success(self, ctx: Context) -> bool:
        """Return whether the policy has won."""
        return any((signal.value or 0.0) > 0 for signal in ctx.signals)

    async def reply(self, seat: int, messages: list[Message], task: Task, model: Model) -> str:
        """Return the move of the policy, or of its opponent."""
        is_policys = seat == task.data // 2 % self.players
        return await (super().reply(seat, messages, task, model) if is_policys else self.opponent.ask(messages))


def agent_of(seat: int) -> str:
    """Return the agent to which the tokens of a player belong."""
    return f"player {seat}"
