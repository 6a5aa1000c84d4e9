"""Roles: models beside the policy that an episode may ask, such as a judge, a simulated user or an opponent."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Protocol, TypeVar, overload

from agentrl.endpoint import Ask, Home
from agentrl.errors import RoleError
from agentrl.roles.fence import question_of
from agentrl.types import Message, RoleUse, Signal, text_of

T = TypeVar("T")
MAX_SHOWN = 200
NOTHING = "(no text)"
UNREADABLE = "This reply cannot be used: {}. Reply again, in exactly the form that was asked for."


@dataclass(frozen=True, slots=True)
class RoleReply:
    """The reply of a role, with the tokens of the prompt and of the reply; `is_cached` if nobody was asked for it.

    `key` is that of its request if `Player.keep` would keep the reply, else "".
    """

    message: Message
    prompt_tokens: int = 0
    completion_tokens: int = 0
    is_cut: bool = False
    is_cached: bool = False
    key: str = ""


class Player(Protocol):
    """The model that plays a role."""

    async def answer(self, ask: Ask, seed: int) -> RoleReply:
        """Return the reply to a conversation. `seed` fixes its randomness. Raises RoleError if there is none."""

    async def keep(self, reply: RoleReply) -> None:
        """Give this reply, which could be used, to equal requests. Engines are asked again; so this keeps nothing."""
        del reply


@dataclass(frozen=True, slots=True)
class RoleLimits:
    """How often an episode may ask a role, and how often it asks again after a reply that it cannot read."""

    max_calls: int = 64
    retries: int = 2


@dataclass(frozen=True, slots=True)
class Casting:
    """A role in a run: who plays it, its limits, and the deadline of a reply."""

    player: Player
    limits: RoleLimits = field(default_factory=RoleLimits)
    timeout_s: float = 0.0
    """0: that of the method that asks."""


class Role:
    """A model that an episode asks, declared with `@role`. Its tokens are never trained.

    A reply that cannot be had or read raises RoleError: a reward that asked is invalid then, and any other episode ends
    as a failure of the infrastructure. Neither is ever a reward of 0.
    """

    def __init__(self, name: str, player: Player, limits: RoleLimits, seed: str) -> None:
        self.name, self.use = name, RoleUse()
        self._player, self._limits, self._random = player, limits, random.Random(f"{seed}/{name}")
        self._home = Home()

    @overload
    async def ask(self, messages: str | Sequence[Message]) -> str: ...
    @overload
    async def ask(self, messages: str | Sequence[Message], read: Callable[[str], T]) -> T: ...
    async def ask(self, messages: str | Sequence[Message], read: Callable[[str], T] | None = None) -> T | str:
        """Return the reply to a prompt or a conversation: its text, or what `read` makes of it.

        A reply without text cannot be used, nor one for which `read` raises ValueError; `read` gets no reply that was
        cut. The role gets the reason and is asked again, `roles.NAME.retries` times. What led to a reply that can be
        used is kept.
        """
        asked = [Message(role="user", content=messages)] if isinstance(messages, str) else list(messages)
        replies: list[RoleReply] = []
        for _ in range(self._limits.retries + 1):
            reply, _ = await self._home.run(self._answered(Ask(tuple(asked))))
            replies.append(reply)
            text = text_of(reply.message)
            is_empty = not text.strip()
            if reply.is_cut and (is_empty or read is not None):
                fault = f"it was cut after {reply.completion_tokens} tokens"
            elif is_empty:
                fault = "it has no text"
            else:
                try:
                    found = text if read is None else read(text)
                except ValueError as error:
                    fault = str(error)
                else:
                    await self._home.run(self._keep(replies))
                    return found
            self.use = replace(self.use, unreadable=self.use.unreadable + 1)
            said = NOTHING if is_empty else text
            asked += [{"role": "assistant", "content": said}, {"role": "user", "content": UNREADABLE.format(fault)}]
        raise RoleError(
            f"the role {self.name} gave {self._limits.retries + 1} replies that cannot be used: {fault[:MAX_SHOWN]}; "
            f"the last one ends with {text[-MAX_SHOWN:]!r}"
        )

    async def score(self, question: str, /, *, bounds: tuple[float, float] = (0.0, 10.0), **texts: str) -> Signal:
        """Ask for a score of texts within `bounds`, as a signal for a reward with the reply as its evidence.

        The texts stand in fences (`fenced`), and only a last line in a form that they cannot contain is the score.
        """
        prompt, read = question_of(question, texts, *bounds)

        def both(reply: str) -> tuple[float, str]:
            return read(reply), reply

        value, reply = await self.ask(prompt, both)
        return Signal(self.name, value, evidence={"reply": reply})

    async def answer(self, ask: Ask) -> RoleReply:
        """Return the reply to one call. Raises RoleError beyond the calls that an episode may make."""
        reply, number = await self._home.run(self._answered(ask))
        await self._home.run(self._keep([reply]))
        return replace(reply, message=_with_ids(reply.message, f"{self.name}/{number}"))

    async def _answered(self, ask: Ask) -> tuple[RoleReply, int]:
        """Return the reply to a call, and the number of the call."""
        if self.use.calls >= self._limits.max_calls:
            raise RoleError(
                f"the role {self.name} was asked {self.use.calls} times in one episode, which is the limit: raise "
                f"roles.{self.name}.max_calls if that is meant"
            )
        number = self.use.calls + 1
        self.use = replace(self.use, calls=number)
        reply = await self._player.answer(ask, self._random.getrandbits(31))
        self.use = self.use.and_reply(reply.prompt_tokens, reply.completion_tokens, is_cached=reply.is_cached)
        return reply, number

    async def _keep(self, replies: Sequence[RoleReply]) -> None:
        for reply in replies:
            if reply.key:
                await self._player.keep(reply)


def _with_ids(message: Message, name: str) -> Message:
    """Return the message with an id for each call that has none: nine characters, as Mistral's templates take."""
    calls = [*message.get("tool_calls", ())]
    for n, call in enumerate(calls):
        if not call.get("id"):
            calls[n] = {**call, "id": blake2b(f"{name}/{n}".encode()).hexdigest()[:9]}
    return {**message, "tool_calls": calls} if calls else message
