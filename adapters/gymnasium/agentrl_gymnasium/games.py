"""What a model reads about an environment of Gymnasium: its rules, the names of its actions, its observations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gymnasium import Env, spaces

COLOURS = re.compile(r"\x1b\[([\d;]+)m(.*?)\x1b\[0m", re.DOTALL)
BRACKETS = {"4": ("[", "]"), "34": ("(", ")"), "35": ("{", "}")}
"""Brackets by the beginning of a colour: a background marks the agent; the others belong to Taxi."""
PLAIN = (bool, int, float, str)


@dataclass(frozen=True, slots=True)
class Game:
    """Rules of an environment, names of its actions in order, and of the parts of its observation."""

    rules: str
    actions: tuple[str, ...]
    parts: tuple[str, ...] = ()


LAKE = Game(
    "You walk over a frozen lake from S to G. F is ice, H a hole that ends the game. [X] is where you are. "
    "The ice may be slippery: then you may slide to a side. Reaching G pays 1.",
    ("left", "down", "right", "up"),
)
CLIFF = Game(
    "You walk over a grid from the lower left corner to T. x is where you are. C is a cliff: it costs 100 and takes "
    "you back to the start. Every step costs 1.",
    ("up", "right", "down", "left"),
)
TAXI = Game(
    "You drive a taxi, [ ]. Pick up the passenger, who waits at the place in (), and drop them off at the place in {}. "
    "| is a wall. A step costs 1, a wrong pickup or dropoff 10; the right dropoff pays 20.",
    ("south", "north", "east", "west", "pickup", "dropoff"),
)
BLACKJACK = Game(
    "You play blackjack against the dealer. The sum of your cards should be closer to 21 than the dealer's, and not "
    "above it. Aces count 11 where that is possible (usable), else 1. Winning pays 1, losing costs 1.",
    ("stick", "hit"),
    ("your sum", "the dealer's card", "usable ace"),
)
GAMES = {
    "FrozenLake": LAKE,
    "FrozenLake8x8": LAKE,
    "CliffWalking": CLIFF,
    "CliffWalkingSlippery": CLIFF,
    "Taxi": TAXI,
    "Blackjack": BLACKJACK,
}


def game_of(env_id: str, env: Env[Any, Any]) -> Game:
    """Return the rules of a known environment; for others the description in its docstring, and actions by number."""
    if known := GAMES.get(re.sub(r"-v\d+$", "", env_id)):
        return known
    docstring = inspect.cleandoc(type(env.unwrapped).__doc__ or "")
    section = re.search(r"^## Description\n(.*?)(?=^## |\Z)", docstring, re.MULTILINE | re.DOTALL)
    text = section[1].strip() if section else docstring.partition("\n\n")[0]
    return Game(text or f"You act in {env_id}.", tuple(map(str, action_numbers(env))))


def action_numbers(env: Env[Any, Any]) -> range:
    """Return the actions of an environment. Raises TypeError unless its action space is Discrete."""
    space = env.action_space
    if not isinstance(space, spaces.Discrete):
        raise TypeError(f"its actions are {space}, not Discrete")
    return range(int(space.start), int(space.start + space.n))


def is_sayable(space: spaces.Space[Any]) -> bool:
    """Return whether an observation is text, a few numbers, or several of these."""
    if isinstance(space, spaces.Tuple):
        return all(map(is_sayable, space.spaces))
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Text)


def shown(env: Env[Any, Any], game: Game, observation: Any) -> str:
    """Return an observation as text: what the environment draws, else its numbers with their names."""
    if env.render_mode == "ansi":
        return uncoloured(str(env.render())).strip("\n")
    if game.parts:
        return "\n".join(f"{name}: {value}" for name, value in zip(game.parts, observation, strict=True))
    return f"Observation: {observation}"


def uncoloured(text: str) -> str:
    """Replace the colours of a terminal by brackets: `[S]` for the agent's place."""

    def bracketed(match: re.Match[str]) -> str:
        left, right = next((pair for code, pair in BRACKETS.items() if match[1].startswith(code)), ("", ""))
        return f"{left}{match[2]}{right}"

    return COLOURS.sub(bracketed, text)


def settings_of(creator: Any, spec: Any) -> Iterator[tuple[str, Any]]:
    """Yield the arguments of an environment's class that have a plain default, with that default."""
    for name, parameter in inspect.signature(creator).parameters.items():
        default = spec.kwargs.get(name, parameter.default)
        if name != "render_mode" and isinstance(default, PLAIN):
            yield name, default
