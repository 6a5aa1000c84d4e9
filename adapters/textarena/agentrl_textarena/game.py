"""One game of TextArena, with randomness of its own."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

import textarena
from textarena.envs.registration import ENV_REGISTRY
from textarena.wrappers import ActionFormattingWrapper

from agentrl.errors import ConfigError

RAW = "-raw"
"""Suffix of the variant without wrappers: it says only what is new."""
NAMES = sorted(name.removesuffix(RAW) for name in ENV_REGISTRY if name.endswith(RAW))
PLAIN = (bool, int, float, str)
UNPLAYABLE = (AssertionError, ImportError, LookupError, OSError, RuntimeError, SyntaxError, TypeError, ValueError)
"""What games raise here that need another number of players, other settings, data, a key or a newer Python."""
UNREADABLE = (IndexError, KeyError, OverflowError, RecursionError, ValueError)
"""What games raise for a move that they do not expect, such as a number of 5,000 digits."""
LOCK = threading.Lock()
"""Held while a game runs: the games draw from the random numbers of the process."""


def settings_of(name: str) -> Mapping[str, Any]:
    """Return the settings of a game with plain values."""
    return {key: value for key, value in ENV_REGISTRY[name].kwargs.items() if isinstance(value, PLAIN)}


def check_settings(name: str, settings: Mapping[str, Any], players: int = 1) -> None:
    """Raise ConfigError if a game cannot begin with these settings."""
    try:
        Game(name, 0, settings, players)
    except UNPLAYABLE as error:
        given = ", ".join(f"--env.{key} {value}" for key, value in sorted(settings.items()))
        raise ConfigError(f"textarena:{name} cannot begin with {given or 'its own settings'}: {error}") from error


class Game:
    """A game for `players`. `seat` has the move, and `text` is what that player has heard since its last one."""

    def __init__(self, name: str, seed: int, settings: Mapping[str, Any], players: int = 1) -> None:
        self._random = random.Random(seed).getstate()
        self._game: Any = self._alone(lambda: self._made(name, seed, settings, players))
        self.is_over = False
        self.seat, self.text = self._heard()

    def move(self, text: str) -> None:
        """Make a move, and hear what the next player reads. One on which the game fails is not allowed."""
        self.is_over, _ = self._alone(lambda: self._stepped(text))
        self.seat, self.text = self._heard()

    def _stepped(self, text: str) -> tuple[bool, Any]:
        try:
            result: tuple[bool, Any] = self._game.step(text)
        except UNREADABLE:
            state = self._game.state
            state.set_invalid_move(reason="The move cannot be read.")
            result = state.step()
        return result

    def rewards(self) -> dict[int, float]:
        """Return the reward of each player; none while the game has not ended."""
        rewards, _ = self._alone(self._game.close)
        return {int(seat): float(value) for seat, value in (rewards or {}).items()}

    def is_played_out(self) -> bool:
        """Return whether the game has ended, and by its rules: no player made a move that it does not allow."""
        _, players = self._alone(self._game.close)
        return self.is_over and not any(player.get("invalid_move") for player in players.values())

    @staticmethod
    def _made(name: str, seed: int, settings: Mapping[str, Any], players: int) -> Any:
        game = textarena.make(name + RAW, **settings)
        if ActionFormattingWrapper in (ENV_REGISTRY[name].default_wrappers or ()):
            game = ActionFormattingWrapper(game)
        game.reset(num_players=players, seed=seed)
        return game

    def _heard(self) -> tuple[int, str]:
        """Return the player who moves, and what is new to it, without its own words."""
        seat, said = self._alone(self._game.get_observation)
        return int(seat), "\n".join(_line(sender, str(text).strip()) for sender, text, *_ in said if sender != seat)

    def _alone(self, act: Callable[[], Any]) -> Any:
        """Call `act` with the random numbers of this game, and give the process its own back."""
        with LOCK:
            others = random.getstate()
            random.setstate(self._random)
            try:
                return act()
            finally:
                self._random = random.getstate()
                random.setstate(others)


def _line(sender: int, text: str) -> str:
    """Return what a player reads: the game speaks for itself, other players under their names."""
    return text if sender == textarena.GAME_ID else f"[Player {sender}] {text}"
