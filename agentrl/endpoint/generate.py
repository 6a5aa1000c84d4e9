"""Token ids in, token ids and logprobs out: `/inference/v1/generate` of vLLM, in the form that token clients read."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from agentrl.endpoint.conversations import Conversations
from agentrl.endpoint.request import Request, invalid, most, stops
from agentrl.endpoint.wire import Answer, Ask
from agentrl.serving import Response


class SamplingParams(msgspec.Struct):
    """Parameters of a request; the run determines the others."""

    max_tokens: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    structured_outputs: Any = None


class GenerateRequest(Request):
    """Body of `/inference/v1/generate`. Clients render and parse messages themselves."""

    token_ids: list[Annotated[int, msgspec.Meta(ge=0)]]
    sampling_params: SamplingParams = msgspec.field(default_factory=SamplingParams)
    features: Any = None
    stream: bool | None = None

    def ask(self, agent: str, earlier: Conversations) -> Ask:  # noqa: ARG002 (there are none)
        """Return what the request asks for; see `Request`."""
        given = self.sampling_params
        if not self.token_ids:
            invalid("token_ids is empty: send at least one")
        if self.features is not None or self.stream or given.n not in (None, 1):
            invalid("this endpoint takes no features, streams no tokens and samples one answer for each request")
        self.refuse_form("sampling_params.structured_outputs", given.structured_outputs)
        ids, limit = tuple(self.token_ids), most(given.max_tokens)
        return Ask((), agent=agent, max_tokens=limit, stop=stops(given.stop), ids=ids)

    def write(self, answer: Answer) -> Response:
        """Return the sampled ids with their logprobs; see `Request`."""
        choice = {
            "index": 0,
            "token_ids": answer.ids,
            "logprobs": {"content": answer.token_logprobs},
            "finish_reason": "length" if answer.is_cut else "stop",
        }
        return Response(msgspec.json.encode({"request_id": answer.id, "choices": [choice]}))
