"""The HTTP server of the endpoint: the bearer token of a request names its episode.

    POST /v1/chat/completions    as JSON or as server-sent events
    POST /v1/responses           likewise
    POST /v1/messages            likewise, the API of Anthropic; /v1/messages/count_tokens counts a prompt
    POST /inference/v1/generate  token ids to token ids and logprobs
    GET  /v1/models

An error has the form of the API that was called.
"""

from __future__ import annotations

import asyncio
import resource
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from agentrl.endpoint.anthropic import CountRequest, MessagesRequest
from agentrl.endpoint.calls import Calls
from agentrl.endpoint.chat import ChatRequest
from agentrl.endpoint.conversations import Conversations
from agentrl.endpoint.generate import GenerateRequest
from agentrl.endpoint.home import Home
from agentrl.endpoint.model import Model, Responder
from agentrl.endpoint.request import Request, invalid
from agentrl.endpoint.responses import ResponsesRequest
from agentrl.endpoint.tokens import Tokens
from agentrl.endpoint.wire import POLICY, Answer, Ask, refused
from agentrl.errors import ConfigError
from agentrl.serving import Connection, Head, HttpServer, RequestError, Response
from agentrl.serving.body import decoded
from agentrl.types import Message

if TYPE_CHECKING:
    from openai import AsyncOpenAI

MAX_BODY_BYTES = 64 << 20
MAX_CONNECTIONS = 1 << 15
CLIENT_S = 600.0
"""How long the shared client waits for anything, connections included: the event loop of many agents is busy."""
APIS: dict[str, type[Request]] = {
    "/v1/chat/completions": ChatRequest,
    "/v1/responses": ResponsesRequest,
    "/v1/messages": MessagesRequest,
    "/v1/messages/count_tokens": CountRequest,
    "/inference/v1/generate": GenerateRequest,
}
"""The APIs of agents by their paths."""


@dataclass(frozen=True, slots=True)
class _Episode:
    """What the endpoint serves under one token."""

    responder: Responder
    calls: Calls
    conversations: Conversations = field(default_factory=Conversations)


class Endpoint:
    """Serves the policy to the agents of all episodes of a process, on the loopback interface.

    It starts with the first episode that needs it. `max_context` is what it reports as the model's context length.
    """

    def __init__(self, max_context: int) -> None:
        self._max_context = max_context
        self._episodes: dict[str, _Episode] = {}
        self._resources = AsyncExitStack()
        self._starting = asyncio.Lock()
        self._url = ""
        self._home: asyncio.AbstractEventLoop | None = None
        self._client: AsyncOpenAI | None = None

    @asynccontextmanager
    async def open(self, responder: Responder, tokens: Tokens | None = None) -> AsyncIterator[Model]:
        """Serve an episode while the context is open."""
        await self._start()
        token = secrets.token_urlsafe(24)
        calls, home = Calls(responder), Home()
        self._episodes[token] = _Episode(responder, calls)
        try:
            reached = home.reached(tokens) if tokens else None
            yield Model(self._url, token, _connect=self._connect, _tokens=reached, _session=responder, _home=home)
        finally:
            del self._episodes[token]
            await calls.close()

    async def close(self) -> None:
        """Stop serving. Idempotent."""
        await self._resources.aclose()
        self._url, self._client = "", None

    async def _start(self) -> None:
        async with self._starting:
            if not self._url:
                _allow_connections()
                server = HttpServer(self._answered, MAX_CONNECTIONS)
                port = await self._resources.enter_async_context(server.listening())
                if "openai" not in sys.modules and find_spec("openai"):
                    await asyncio.to_thread(_load_client)  # seconds, in which the event loop goes on
                self._home = asyncio.get_running_loop()
                self._url = f"http://127.0.0.1:{port}/v1"

    def _connect(self, token: str) -> AsyncOpenAI:
        if self._client is None:
            if not find_spec("openai"):
                raise ConfigError("`Model.client` needs the package openai: pip install openai")
            from agentrl.endpoint.openai_client import openai_client

            assert self._home is not None, "the endpoint has started"
            self._client = openai_client(self._home, base_url=self._url, api_key=POLICY, timeout=CLIENT_S)
            self._resources.push_async_callback(self._client.close)
        return self._client.with_options(api_key=token)

    async def _answered(self, head: Head, connection: Connection) -> Response:
        path = head.path.partition("?")[0].rstrip("/")
        api = APIS.get(path) or (MessagesRequest if path.startswith("/v1/messages/") else ChatRequest)
        try:
            self._episode(head)
            if (head.method, path) in {("GET", "/v1/models"), ("GET", f"/v1/models/{POLICY}")}:
                data = self._model()
                listed = {"object": "list", "data": [data]}
                return Response(msgspec.json.encode(listed if path == "/v1/models" else data))
            if head.method != "POST" or path not in APIS:
                known = f"POST {', '.join(APIS)} and GET /v1/models"
                raise refused("not_found", f"no {head.method} {head.path}; known: {known}", HTTPStatus.NOT_FOUND)
            return await self._sampled(api, head, connection)
        except RequestError as error:
            return Response(msgspec.json.encode(api.error(error)), status=error.status)

    async def _sampled(self, api: type[Request], head: Head, connection: Connection) -> Response:
        if (coding := head.headers.get("content-encoding", "identity")) != "identity":
            reason = f"a body with Content-Encoding {coding} is not read: send it as it is"
            raise refused("unsupported_media_type", reason, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        body = await connection.body(MAX_BODY_BYTES)
        episode = self._episode(head)  # not before: it may end while the body arrives
        request = _request_of(api, body)
        ask = asked(request, episode.conversations)
        if request.only_counts:
            return request.write(await _counted(ask, episode.responder))
        call = episode.calls.call(ask, head, body)
        is_noted = False
        with call.awaited_by(connection):
            answer = await asyncio.shield(call.answer)
            with suppress(ConnectionAbortedError):
                is_noted = await connection.while_open(episode.responder.deliver(answer, call.is_awaited))
        if not is_noted or connection.is_closed:
            reason = (
                "the client closed its side of the connection before it had the answer: keep it open until then, and "
                "send the next request after that"
            )
            raise refused("connection_closed", reason)
        call.received_by(connection)
        request.keep(ask, answer, episode.conversations)
        return request.write(answer)

    def _episode(self, head: Head) -> _Episode:
        scheme, _, bearer = head.headers.get("authorization", "").partition(" ")
        keys = (bearer if scheme.lower() == "bearer" else "", head.headers.get("x-api-key", ""))
        episode = next(filter(None, map(self._episodes.get, keys)), None)  # clients may add a bearer token of their own
        if episode is None:
            reason = "this key belongs to no running episode: send the api_key of `model` as a bearer token"
            raise refused("invalid_api_key", reason, HTTPStatus.UNAUTHORIZED)
        return episode

    def _model(self) -> dict[str, Any]:
        model = {"id": POLICY, "object": "model", "created": 0, "owned_by": "agentrl"}
        return {**model, "max_model_len": self._max_context}


def _load_client() -> None:
    """Import what `Model.client` needs."""
    import openai.resources.chat
    import openai.resources.responses  # noqa: F401


def _allow_connections() -> None:
    """Raise the limit of open files, of which every agent needs two, as far as this process may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def asked(request: Request, conversations: Conversations) -> Ask:
    """Return what a request asks for, and of whom.

    The model "policy" is the policy, "policy/SEAT" its agent SEAT. Any other name is a role, whose tokens are not the
    policy's. Raises RequestError for what cannot be done.
    """
    request.refuse_forms()
    name, _, agent = request.model.partition("/")
    if name == POLICY:
        return request.ask(agent, conversations)
    return replace(request.ask("", conversations), role=request.model)


async def _counted(ask: Ask, responder: Responder) -> Answer:
    """Return the tokens of a prompt as an answer that says nothing."""
    if ask.role is not None:
        reason = f"the tokens of {ask.role!r} cannot be counted here: the model that is trained is {POLICY!r}"
        raise refused("model_not_found", reason, HTTPStatus.NOT_FOUND)
    return Answer(Message(role="assistant", content=""), prompt_tokens=await responder.count(ask))


def _request_of(api: type[Request], body: bytes) -> Request:
    try:
        return decoded(body, api)
    except (ValueError, RecursionError) as error:
        invalid(f"the body is not what this API takes: {error}")
