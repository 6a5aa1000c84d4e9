"""The synchronous Gymnasium interface of an environment: `GymnasiumEnv` around the driver, and its registration."""

from __future__ import annotations

from copy import deepcopy
from typing import Any
from weakref import WeakValueDictionary

import gymnasium
from gymnasium import Space

from agentrl.env.base import Env
from agentrl.env.context import Start
from agentrl.env.driver.advance import Advance, advance
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.driver.loop import run_on_private_loop
from agentrl.env.messages import is_message, is_turn, short
from agentrl.env.registry import announced, make_env
from agentrl.env.tasks import check_choice
from agentrl.errors import EnvError, UnknownNameError
from agentrl.types import Message, StopReason

ENDLESS_SAMPLE = 1024
"""Number of tasks to draw from if there are endlessly many."""
OPTIONS = ("index", "split", "member")
WORDS = ("yes", "no", "1", "2", "3", "higher", "lower", "I", "think", "the", "answer", "is")


class MessagesSpace(Space[list[Message]]):
    """Lists of messages: the observations."""

    def contains(self, x: Any) -> bool:
        """True for a list of messages, the empty list included."""
        return isinstance(x, list) and all(map(is_message, x))

    def sample(self, mask: Any = None, probability: Any = None) -> list[Message]:  # noqa: ARG002
        """Return one user message of random words."""
        return [Message(role="user", content=random_words(self))]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessagesSpace)


class TurnSpace(Space[Message | str]):
    """Turns of the assistant: text, or a message, which may have tool calls."""

    def contains(self, x: Any) -> bool:
        """True for text and for an assistant message."""
        return is_turn(x)

    def sample(self, mask: Any = None, probability: Any = None) -> Message | str:  # noqa: ARG002
        """Return a few random words, as text."""
        return random_words(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TurnSpace)


_AROUND: WeakValueDictionary[int, GymnasiumEnv] = WeakValueDictionary()
"""The GymnasiumEnv around each object, by its id: two would run their episodes in the same object."""


class GymnasiumEnv(gymnasium.Env[list[Message], Message | str]):
    """An environment as a `gymnasium.Env`.

    Observation: the new messages. Action: the assistant's turn. Reward: the weighted sum of the new signals.
    """

    def __init__(self, env: Env, split: str = "train") -> None:
        if id(env) in _AROUND:
            name = type(env).__name__
            raise EnvError(f"this {name} object has a GymnasiumEnv already; close that, or make another {name}()")
        self.env = env
        self.observation_space = MessagesSpace()
        self.action_space = TurnSpace()
        self._driver = EnvDriver(env)
        check_choice(split)
        self._split = split
        _AROUND[id(env)] = self

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[list[Message], dict[str, Any]]:
        """Begin an episode; `options` may set `index`, `split` and `member`. `info` has the task and the tools."""
        super().reset(seed=seed)
        for name in options or {}:
            if name not in OPTIONS:
                raise UnknownNameError("option of reset", name, OPTIONS)
        start = run_on_private_loop(self._begin(**(options or {})))
        task = self._driver.ctx.task
        info = {"task": task.id, "split": task.split, "index": task.index, "tools": list(start.tools)}
        return deepcopy(list(start.messages)), info

    def step(self, action: Message | str) -> tuple[list[Message], float, bool, bool, dict[str, Any]]:
        """Take the assistant's turn. An invalid signal with a weight raises VerifierError: it never counts as 0."""
        if not self.action_space.contains(action):
            raise EnvError(f"step takes text or an assistant message, not {short(action)}")
        taken = run_on_private_loop(self._advance(action))
        is_cut = taken.stop_reason is StopReason.MAX_TURNS
        is_over = taken.stop_reason is not None and not is_cut
        return deepcopy(list(taken.messages)), taken.reward, is_over, is_cut, {"signals": list(taken.signals)}

    def close(self) -> None:
        """Tear the episode down. Idempotent."""
        run_on_private_loop(self._driver.close())
        _AROUND.pop(id(self.env), None)

    async def _begin(self, index: int | None = None, split: str = "", member: int = 0) -> Start:
        split = split or self._split
        check_choice(split, 0 if index is None else index)
        size = await self._driver.size(split)
        drawn = int(self.np_random.integers(size or ENDLESS_SAMPLE))
        seed = int(self.np_random.integers(2**31))
        task = await self._driver.task(split, drawn if index is None else index)
        return await self._driver.reset(task, seed=seed, member=member)

    async def _advance(self, action: Message | str) -> Advance:
        taken = await advance(self._driver, action)
        if taken.stop_reason is not None:
            await self._driver.close()
        return taken


def make(name: str, split: str = "train", **options: Any) -> GymnasiumEnv:
    """Return what `gymnasium.make("agentrl/<name>-v0")` returns; `options` are the environment's `--env.*` keys."""
    return GymnasiumEnv(make_env(name, **options), split)


def register_with_gymnasium() -> None:
    """Register every announced environment with `gymnasium.make` as `agentrl/<name>-v0`, without importing it."""
    for item in announced().values():
        env_id = f"agentrl/{item.name.replace('/', '.')}-v0"
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point="agentrl.env.gymnasium:make", kwargs={"name": item.name})


def random_words(space: Space[Any]) -> str:
    """Return one to six random words, drawn with the space's own generator."""
    count = int(space.np_random.integers(1, 7))
    return " ".join(WORDS[i] for i in space.np_random.integers(0, len(WORDS), count))
