"""The environment: a game of Gymnasium, played in text or with a tool."""
# ruff: noqa: ARG002  (hooks that need not know the task or the context)

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import gymnasium
import re2
from gymnasium.envs.registration import load_env_creator
from pydantic import Field, create_model

from agentrl.env import (
    Adapter,
    BadCallError,
    Context,
    EnvConfig,
    Limits,
    Message,
    Policy,
    Reply,
    Task,
    Tool,
    Turn,
    reward,
    wraps_of,
)
from agentrl.errors import ConfigError, UnknownNameError
from agentrl.types import ToolCall, ToolSpec
from agentrl_gymnasium.games import Game, action_numbers, game_of, is_sayable, settings_of, shown
from agentrl_gymnasium.planning import best_ending, planned

WORD: Any = re2.compile(r"[\pL\pN_]+")
TEST_TASKS = 100


class GymnasiumConfig(EnvConfig):
    """The `--env.*` keys of every game; the arguments of its class come after them."""

    turns: int = Field(30, ge=1, description="turns of one episode")
    tool: bool = Field(False, description="the model calls the tool `act` instead of writing the action")
    rules: str = Field("", description="what the first message says about the game; '' uses the adapter's own text")
    unreadable: float = Field(-1.0, le=0, description="reward of a turn without an action")


class Gymnasium(Adapter):
    """Play a game of Gymnasium with discrete actions; the reward is the sum of the game's rewards."""

    Config = GymnasiumConfig
    config: GymnasiumConfig
    limits = Limits(max_turns=30)
    game: ClassVar[Game]
    numbers: ClassVar[dict[str, int]]
    """The actions of the game by name."""

    def __init__(self, config: EnvConfig | None = None, **options: Any) -> None:
        super().__init__(config, **options)
        self.limits = replace(self.limits, max_turns=self.config.turns)

    @classmethod
    def bound(cls, name: str) -> type[Self]:
        """Return the class of the game `name`, whose arguments are `--env.*` keys."""
        creator = creator_of(name)
        env = made(name)
        game = game_of(name, env)
        keys: dict[str, Any] = {key: (type(value), value) for key, value in settings_of(creator, env.spec)}
        env.close()
        return cls.subclass(
            name,
            game=game,
            numbers=dict(zip(game.actions, action_numbers(env), strict=True)),
            wraps=tuple(dict.fromkeys([*wraps_of(creator.__module__), "gymnasium"])),
            Config=create_model("GymnasiumConfig", __base__=cls.Config, **keys),
        )

    def tasks(self, split: str) -> list[Task] | Callable[[random.Random], Task]:
        """Return endless seeds for "train", which are even, and a hundred odd ones for "test"."""
        if split == "test":
            return [seeded(2 * number + 1) for number in range(TEST_TASKS)]
        return lambda rng: seeded(2 * rng.getrandbits(30))

    def tools(self, ctx: Context) -> list[Tool]:
        """Return the tool `act` if `--env.tool` is set."""
        if not self.config.tool:
            return []
        actions = {"action": {"type": "string", "enum": list(self.numbers)}}
        schema = {"type": "object", "properties": actions, "required": ["action"]}
        spec = ToolSpec(name="act", description="Take an action in the game; returns what follows.", parameters=schema)
        return [Tool(spec, partial(self._call, ctx))]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        """Reset the game with the task's seed, and describe it."""
        state = ctx.state
        state.env, state.total, state.steps, state.seen, state.is_over = self._made(), 0.0, 0, 0, False
        state.ending = None
        observation, _ = state.env.reset(seed=task.data)
        text = (
            f"{self.config.rules or self.game.rules}\n{self._request()}\n\n{shown(state.env, self.game, observation)}"
        )
        return [Message(role="user", content=text)]

    def respond(self, turn: Turn, ctx: Context) -> Reply:
        """Take the action that the text names last; the result of a tool is an answer already."""
        state, name = ctx.state, None if self.config.tool else named_last(turn.text, self.numbers)
        answer = self._act(name, ctx) if name else ""
        has_acted, state.seen = state.steps > state.seen, state.steps
        if state.is_over:
            return Reply.end()
        if not has_acted:
            state.total += self.config.unreadable
            return Reply.say(f"I cannot find an action. {self._request()}")
        return Reply.say(answer) if answer else Reply.go_on()

    @reward
    def episode_return(self, ctx: Context) -> float:
        """Return the sum of the game's rewards, and of `unreadable` for each turn without an action."""
        return float(ctx.state.total)

    def success(self, ctx: Context) -> bool:
        """Return whether the game reached its best end; without known transitions, one that pays."""
        ending: float | None = ctx.state.ending
        if ending is None:
            return False
        table = getattr(ctx.state.env.unwrapped, "P", None)
        return ending > 0 if table is None else ending >= best_ending(table)

    def teardown(self, ctx: Context) -> None:
        """Close the game."""
        if env := getattr(ctx.state, "env", None):
            env.close()

    def oracle(self, task: Task) -> Policy | None:
        """Return the best actions in the game of this seed, for a game whose transitions are known."""
        env = self._made()
        if not hasattr(env.unwrapped, "P"):
            return None
        names = {number: name for name, number in self.numbers.items()}
        actions = [names[number] for number in planned(env, task.data, self.config.turns)]
        return [calling(name) for name in actions] if self.config.tool else actions

    def canaries(self, task: Task) -> Mapping[str, Policy]:
        """Return policies that talk instead of acting."""
        return {"silence": [""] * self.config.turns, "talk": ["I am thinking."] * self.config.turns}

    def _made(self) -> gymnasium.Env[Any, Any]:
        """Make the game with the arguments that were set."""
        own = GymnasiumConfig.model_fields.keys()
        return made(self.id, **{key: getattr(self.config, key) for key in self.config.model_fields_set - own})

    def _request(self) -> str:
        way = "Call the tool act with one of" if self.config.tool else "Answer with one of"
        return f"{way}: {', '.join(self.numbers)}."

    def _call(self, ctx: Context, action: object = "") -> str:
        name = named_last(str(action), self.numbers)
        if name is None:
            raise BadCallError(f"unknown action; use one of: {', '.join(self.numbers)}")
        return "The game is over." if ctx.state.is_over else self._act(name, ctx)

    def _act(self, name: str, ctx: Context) -> str:
        state = ctx.state
        observation, paid, terminated, truncated, _ = state.env.step(self.numbers[name])
        state.total += float(paid)
        state.steps += 1
        state.is_over = bool(terminated or truncated)
        state.ending = float(paid) if terminated else None
        return shown(state.env, self.game, observation)


def seeded(seed: int) -> Task:
    """Return the game that begins with this seed."""
    return Task(str(seed), seed)


def creator_of(name: str) -> Any:
    """Return the class of a registered game. Raises UnknownNameError."""
    try:
        entry = gymnasium.spec(name).entry_point
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        known = [other for other in gymnasium.registry if not other.startswith("agentrl/")]
        raise UnknownNameError("environment of Gymnasium", name, known) from error
    try:
        return load_env_creator(entry) if isinstance(entry, str) else entry
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"gym:{name} cannot be loaded: {error}. Install what it needs") from error


def made(name: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
    """Make a game that draws itself as text if it can. Raises ConfigError for one that cannot be played in text."""
    modes = getattr(creator_of(name), "metadata", {}).get("render_modes", ())
    mode = "ansi" if "ansi" in modes else None
    try:
        env = gymnasium.make(name, render_mode=mode, disable_env_checker=True, **arguments)
        action_numbers(env)
    except (gymnasium.error.Error, ImportError, TypeError, ValueError, KeyError) as error:
        raise ConfigError(f"gym:{name} cannot be played in text: {error}") from error
    if mode is None and not is_sayable(env.observation_space):
        raise ConfigError(f"gym:{name} cannot be played in text: its observations are {env.observation_space}")
    return env


def named_last(text: str, names: Mapping[str, int]) -> str | None:
    """Return the action that a text names last, by its name or number; None if it names none."""
    known = {str(number): name for name, number in names.items()} | {name.lower(): name for name in names}
    found = [known[word] for word in WORD.findall(text.lower()) if word in known]
    return found[-1] if found else None


def calling(action: str) -> Message:
    """Return an assistant's turn that calls the tool."""
    call = ToolCall(type="function", function={"name": "act", "arguments": {"action": action}})
    return Message(role="assistant", content="", tool_calls=[call])
