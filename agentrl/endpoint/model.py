"""Model: the policy as an agent calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from agentrl.endpoint.chat import messages_of
from agentrl.endpoint.home import Home
from agentrl.endpoint.tokens import Tokens
from agentrl.endpoint.wire import POLICY, Answer, Ask
from agentrl.types import Message, text_of

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class Responder(Protocol):
    """What answers the calls of one episode."""

    async def answer(self, ask: Ask) -> Answer:
        """Answer a call; cancelled if nobody waits for the answer any more. Raises RequestError."""

    async def count(self, ask: Ask) -> int:
        """Return the number of tokens of a request's prompt. Raises RequestError."""

    async def deliver(self, answer: Answer, is_awaited: Callable[[], bool]) -> bool:
        """Take note that a client is about to receive the answer; a retry delivers it again.

        Returns False, and takes no note, where nobody waits for it any more when its turn has come.
        """


@dataclass(frozen=True, slots=True)
class Model:
    """The policy as an agent calls it: an endpoint of the OpenAI API that belongs to one episode.

    The endpoint samples at the run's temperature and records every token, whatever the request asks for. `name` is
    trained; `name/SEAT` is trained too, and its tokens earn the rewards of the agent SEAT.
    """

    base_url: str
    """URL that ends in /v1, on the loopback interface."""
    api_key: str
    """The episode's own key; requests after the end of the episode are refused."""
    name: str = POLICY
    _connect: Callable[[str], AsyncOpenAI] | None = field(default=None, repr=False)
    _tokens: Tokens | None = field(default=None, repr=False)
    _session: Responder | None = field(default=None, repr=False)
    _home: Home | None = field(default=None, repr=False)

    @property
    def client(self) -> AsyncOpenAI:
        """A client for this episode. All episodes of a process share its connections, so it costs little."""
        assert self._connect is not None, "the endpoint of a run sets it"
        return self._connect(self.api_key)

    @property
    def tokens(self) -> Tokens:
        """The same policy for an agent that writes token ids itself."""
        assert self._tokens is not None, "the endpoint of a run sets it"
        return self._tokens

    async def ask(self, messages: str | Sequence[Message], agent: str = "") -> str:
        """Return the policy's reply to a prompt or a conversation, without HTTP; its tokens belong to `agent`.

        Raises RequestError for what is no text, and at the limits of the episode, which ends then if `play` lets it
        pass.
        """
        assert self._home is not None, "the endpoint of a run sets it"
        asked = [Message(role="user", content=messages)] if isinstance(messages, str) else messages
        return await self._home.run(self._asked(Ask(messages_of(asked), agent=agent)))

    async def _asked(self, ask: Ask) -> str:
        assert self._session is not None, "the endpoint of a run sets it"
        answer = await self._session.answer(ask)
        await self._session.deliver(answer, lambda: True)
        return text_of(answer.message)

    def seat(self, agent: str) -> str:
        """Return the model name under which the tokens belong to `agent`, where an episode has several agents."""
        return f"{self.name}/{agent}"
