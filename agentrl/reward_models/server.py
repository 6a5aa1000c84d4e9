"""The HTTP server of a reward model.

    POST /v1/score    {"inputs": [a text or a list of messages, ...]}
                      {"scores": [0.5, null], "errors": [{"index": 1, "type": "too_long", "message": "..."}]}
    POST /get_reward  {"query": [text, ...]}, the form of OpenRLHF; "prompts" and "labels" are ignored
                      {"rewards": [...], "scores": [...], "extra_logs": {}}
    GET /health       {"status": "ok", "model": "...", "queued": 0}

An error of the whole request is {"error": {"type": "...", "message": "..."}}.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from agentrl.env.messages import is_message
from agentrl.errors import AgentRLError
from agentrl.reward_models.batcher import Batcher, BatchLimits, QueueFullError
from agentrl.reward_models.scorer import Ids, Scorer, TextError
from agentrl.serving import Connection, Head, HttpServer, RequestError, Response
from agentrl.serving.body import decoded
from agentrl.serving.server import overloaded

T = TypeVar("T")
TOKEN = "AGENTRL_REWARD_TOKEN"
MAX_BODY_BYTES = 16 << 20


class ScoreRequest(msgspec.Struct):
    """Body of `/v1/score`."""

    inputs: list[Any]


class RewardRequest(msgspec.Struct):
    """Body of `/get_reward`."""

    query: list[str]


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a server. `timeout_s` is the deadline of a request once its body has arrived."""

    batch: BatchLimits = field(default_factory=BatchLimits)
    timeout_s: float = 60.0
    max_connections: int = 256


class RewardServer:
    """Serves one reward model to clients with the token; the empty token admits every client."""

    def __init__(self, scorer: Scorer, token: str = "", limits: ServerLimits | None = None) -> None:
        self._scorer, self._token, self._limits = scorer, token, limits or ServerLimits()
        self._batcher = Batcher(scorer.scores, self._limits.batch)

    @asynccontextmanager
    async def listening(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
        """Serve while the context is open; yields the port. On exit running requests get a few seconds to end."""
        batches = asyncio.create_task(self._batcher.run())
        try:
            async with HttpServer(self._answered, self._limits.max_connections).listening(host, port) as bound:
                yield bound
        finally:
            batches.cancel()
            await asyncio.gather(batches, return_exceptions=True)

    async def _answered(self, head: Head, connection: Connection) -> Response:
        return Response(msgspec.json.encode(await self._body(head, connection)))

    async def _body(self, head: Head, connection: Connection) -> dict[str, Any]:
        """Return the response to a request. Its body is not read before its head has been checked."""
        route = (head.method, head.path.partition("?")[0])
        if route in (("GET", "/health"), ("HEAD", "/health")):
            return self._health()
        if route not in (("POST", "/v1/score"), ("POST", "/get_reward")):
            known = "POST /v1/score, POST /get_reward and GET /health"
            raise RequestError(HTTPStatus.NOT_FOUND, "not_found", f"no {head.method} {head.path}; known: {known}")
        token = head.headers.get("authorization", "").removeprefix("Bearer ")
        if self._token and not hmac.compare_digest(token.encode(), self._token.encode()):
            raise RequestError(
                HTTPStatus.UNAUTHORIZED, "wrong_token", "wrong token: send the server's as Authorization: Bearer TOKEN"
            )
        body = await connection.body(MAX_BODY_BYTES)
        answer = self._score if head.path.startswith("/v1/") else self._get_reward
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                return await connection.while_open(answer(body))
        except TimeoutError:
            reason = f"not scored within {self._limits.timeout_s:g} s: send fewer texts at once, or raise --timeout-s"
            raise RequestError(HTTPStatus.GATEWAY_TIMEOUT, "timeout", reason) from None
        except QueueFullError:
            raise overloaded(f"the queue of {self._limits.batch.max_queue} texts is full") from None

    def check(self) -> None:
        """Raise AgentRLError if the model scores nothing any more, or a batch takes longer than a request may."""
        if self._fault:
            raise AgentRLError(self._fault)

    @property
    def _fault(self) -> str:
        """Why nothing is scored, "" if it is."""
        if self._batcher.fault:
            return f"the model does not even score one token: {self._batcher.fault}"
        is_late = self._batcher.busy_s > self._limits.timeout_s
        return f"a batch has been running for {self._batcher.busy_s:.0f} s" if is_late else ""

    def _stuck(self) -> RequestError:
        return RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "stuck", self._fault)

    def _health(self) -> dict[str, Any]:
        if self._fault:
            raise self._stuck()
        return {"status": "ok", "model": self._scorer.name, "queued": self._batcher.queued}

    async def _score(self, body: bytes) -> dict[str, Any]:
        inputs = _decoded(body, ScoreRequest, '{"inputs": [a text or a list of messages, ...]}').inputs
        for index, given in enumerate(inputs):
            if not isinstance(given, str) and not (isinstance(given, list) and given and all(map(is_message, given))):
                reason = f"inputs[{index}] is neither a text nor a list of chat messages"
                raise RequestError(HTTPStatus.BAD_REQUEST, "malformed", reason)
        scores, errors = await self._scored(inputs)
        return {
            "scores": scores,
            "errors": [{"index": i, "type": e.kind, "message": str(e)} for i, e in sorted(errors.items())],
        }

    async def _get_reward(self, body: bytes) -> dict[str, Any]:
        """Answer as OpenRLHF's server does. Its form has no errors for single texts: one fails the whole request."""
        scores, errors = await self._scored(_decoded(body, RewardRequest, '{"query": [text, ...]}').query)
        for index, error in errors.items():
            is_ours = error.kind == "model_failed"
            status = HTTPStatus.INTERNAL_SERVER_ERROR if is_ours else HTTPStatus.UNPROCESSABLE_ENTITY
            raise RequestError(status, error.kind, f"query[{index}]: {error}")
        return {"rewards": scores, "scores": scores, "extra_logs": {}}

    async def _scored(self, inputs: Sequence[Any]) -> tuple[list[float | None], dict[int, TextError]]:
        """Return the score of each input, and by its index the error of each one without a score."""
        if len(inputs) > (most := self._limits.batch.max_queue):
            reason = f"the request has {len(inputs)} texts; this server takes at most {most} at once"
            raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_many", reason)
        rows, errors = await asyncio.to_thread(self._encoded, inputs)
        found = dict(zip(rows, await self._batcher.score(list(rows.values())), strict=True))
        if self._batcher.fault and any(isinstance(value, TextError) for value in found.values()):
            raise self._stuck()
        scores = {index: value for index, value in found.items() if not isinstance(value, TextError)}
        errors |= {index: value for index, value in found.items() if isinstance(value, TextError)}
        return [scores.get(index) for index in range(len(inputs))], errors

    def _encoded(self, inputs: Sequence[Any]) -> tuple[dict[int, Ids], dict[int, TextError]]:
        rows: dict[int, Ids] = {}
        errors: dict[int, TextError] = {}
        for index, given in enumerate(inputs):
            try:
                rows[index] = self._scorer.encode(given)
            except TextError as error:
                errors[index] = error
        return rows, errors


def _decoded(body: bytes, kind: type[T], form: str) -> T:
    try:
        return decoded(body, kind)
    except (ValueError, RecursionError) as error:
        reason = f"the body is not {form}: {error}"
        raise RequestError(HTTPStatus.BAD_REQUEST, "malformed", reason) from None
