"""A game of TextArena in which the model has the only seat, and the classes of all games by their names."""
# ruff: noqa: ARG002  (hooks that need not know the task)

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import create_model

from agentrl.env import Adapter, Context, EnvConfig, Limits, Message, Policy, Reply, Task, Turn, reward
from agentrl.errors import ConfigError, UnknownNameError
from agentrl_textarena.config import TextArenaConfig, keys_of, set_keys, tasks_of
from agentrl_textarena.game import NAMES, UNPLAYABLE, Game, check_settings, settings_of
from agentrl_textarena.match import Duel, Match

OPPONENT = "opponent"
MOST_PLAYERS = 6
NEARLY = 1 - 1e-6
"""What a game that is won earns at least: 1 up to rounding."""


class TextArena(Adapter):
    """Play a game of TextArena alone; the reward is the game's."""

    Config = TextArenaConfig
    config: TextArenaConfig
    limits = Limits(max_turns=30)
    wraps = ("textarena",)
    solved_reward = 1.0

    def __init__(self, config: EnvConfig | None = None, **options: Any) -> None:
        super().__init__(config, **options)
        self.limits = replace(self.limits, max_turns=self.config.turns)

    @classmethod
    def bound(cls, name: str) -> type[Adapter]:
        """Return the class of the game `name`, whose settings are `--env.*` keys.

        A game for one player is played turn by turn. In one for several the policy plays all of them; with the name
        `GAME+opponent`, a role plays the others.
        """
        game, _, suffix = name.partition("+")
        if game not in NAMES:
            raise UnknownNameError("game of TextArena", game, NAMES)
        if suffix not in ("", OPPONENT):
            raise UnknownNameError("suffix of a game of TextArena", suffix, [OPPONENT])
        players = _fewest_players(game)
        config = create_model("TextArenaConfig", __base__=cls.Config, **keys_of(settings_of(game)))
        if players == 1 and suffix:
            raise ConfigError(f"textarena:{name}: {game} is for one player: leave +{OPPONENT} out")
        if players == 1:
            return cls.subclass(name, Config=config)
        return (Duel if suffix else Match).subclass(name, Config=config, game=game, players=players)

    def preflight(self) -> str:
        """Begin a game. Raises ConfigError for settings with which it cannot begin."""
        check_settings(self.id, set_keys(self.config))
        return ""

    def tasks(self, split: str) -> list[Task] | Callable[[random.Random], Task]:
        """Return endless seeds for "train", which are even, and a hundred odd ones for "test"."""
        return tasks_of(split)

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        """Begin the game with the task's seed, and say what it says."""
        ctx.state.game = Game(self.id, task.data, set_keys(self.config))
        return [Message(role="user", content=ctx.state.game.text)]

    def respond(self, turn: Turn, ctx: Context) -> Reply:
        """Make the move, and say what the game answers."""
        game: Game = ctx.state.game
        game.move(turn.text)
        return Reply.end() if game.is_over else Reply.say(game.text)

    @reward
    def game_reward(self, ctx: Context) -> float:
        """Return the reward of the game; 0 if its end was not reached."""
        game: Game = ctx.state.game
        return game.rewards().get(game.seat, 0.0)

    def success(self, ctx: Context) -> bool:
        """Return whether the game was won: part of a solution earns part of the reward."""
        return all((signal.value or 0.0) > NEARLY for signal in ctx.signals)

    def canaries(self, task: Task) -> Mapping[str, Policy]:
        """Return policies that talk instead of playing."""
        return {"silence": [""] * self.config.turns, "talk": ["I am thinking."] * self.config.turns}


def _fewest_players(game: str) -> int:
    """Return the least number of players of a game. Raises ConfigError if it cannot be played here."""
    faults = []
    for players in range(1, MOST_PLAYERS + 1):
        try:
            Game(game, 0, {}, players)
        except UNPLAYABLE as error:
            faults.append(error)
        else:
            return players
    raise ConfigError(f"textarena:{game} cannot be played here: {faults[0]!r}") from faults[0]
