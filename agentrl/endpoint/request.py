"""Requests in the form of an API: a class for each, which reads a request and writes its response."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import msgspec

from agentrl.endpoint.conversations import Conversations
from agentrl.endpoint.wire import POLICY, Answer, Ask, refused
from agentrl.serving import RequestError, Response

FORMS = ("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar")
"""Keys of OpenAI and of vLLM, at any of the APIs, that force the form of an answer."""
MASKED = "a mask would sample from another distribution than the policy that is trained"
FREE = "a role takes messages, and no form of its answer"


class Request(msgspec.Struct, kw_only=True):
    """Body of a request. Keys without a field are ignored, because the run determines how tokens are sampled."""

    model: str
    response_format: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    only_counts: ClassVar[bool] = False
    """Nothing is sampled: only `Answer.prompt_tokens` is written."""

    def refuse_forms(self) -> None:
        """Refuse the keys of FORMS. Raises RequestError."""
        for name in FORMS:
            self.refuse_form(name, getattr(self, name))

    def refuse_form(self, where: str, given: Any) -> None:
        """Refuse a constraint on the answer's form, other than "text".

        Masked sampling has other logprobs than the policy: its tokens could not be trained as the policy's own. A role
        may be played by an endpoint or a stand-in that cannot constrain what it says.
        """
        kind = given.get("type", "json_schema") if isinstance(given, Mapping) else given
        if kind not in (None, "text"):
            reason = MASKED if self.model.partition("/")[0] == POLICY else FREE
            invalid(
                f"{where} {str(kind)!r} is refused: {reason}; say in a message which form you want, and check the "
                "answer in your code or a reward"
            )

    @abstractmethod
    def ask(self, agent: str, earlier: Conversations) -> Ask:
        """Return what the request asks for in the name of `agent`; it may continue one of the `earlier` conversations.

        Raises RequestError for what cannot be done.
        """

    def keep(self, ask: Ask, answer: Answer, kept: Conversations) -> None:
        """Keep the conversation with its answer if later requests may continue it by an id."""

    @abstractmethod
    def write(self, answer: Answer) -> Response:
        """Return the response: one object, or the events of a stream."""

    @staticmethod
    def error(error: RequestError) -> object:
        """Return the body of an error response, as in the OpenAI API."""
        return {"error": {"message": str(error), "type": error.kind, "param": None, "code": error.kind}}


def invalid(message: str) -> NoReturn:
    """Refuse a request for what it contains."""
    raise refused("invalid_request_error", message)


def most(*limits: int | None) -> int | None:
    """Return the smallest limit of tokens that is given."""
    least = min((limit for limit in limits if limit is not None), default=None)
    if least is not None and least < 1:
        invalid(f"the limit of tokens is {least}: give 1 or more")
    return least


def stops(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the stop strings of a request: one, several or none."""
    return tuple(filter(None, [given] if isinstance(given, str) else given or ()))


def stream(events: Iterable[Mapping[str, Any]], *, end: bytes = b"", is_named: bool = False) -> Response:
    """Return events as a stream; `is_named` gives each the name of its type."""
    lines = (
        (f"event: {event['type']}\n".encode() if is_named else b"") + b"data: " + msgspec.json.encode(event) + b"\n\n"
        for event in events
    )
    return Response(b"".join(lines) + end, "text/event-stream")
