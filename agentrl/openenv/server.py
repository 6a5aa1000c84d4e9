"""The server of an environment for OpenEnv's clients.

    WebSocket /ws                  a session: reset, step, state, close, and mcp
    POST /mcp                      tools as JSON-RPC, in a session that it opens
    GET  /health /schema /metadata /state /openapi.json /list_environments
    POST /reset /step              one call, in an episode of its own
    GET  /NAME/splits
    POST /NAME/num_tasks /NAME/task /NAME/tasks /NAME/task_range

An error of the environment is an error for the client, never a reward.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

import msgspec

from agentrl.env import close_shared
from agentrl.errors import acatch
from agentrl.openenv import mcp
from agentrl.openenv.served import Served
from agentrl.openenv.session import Session, failure
from agentrl.openenv.sessions import Sessions
from agentrl.openenv.wire import Code, Observation, StepRequest, TasksRequest, WireError, decoded, read
from agentrl.serving import Connection, Head, HttpServer, RequestError, Response
from agentrl.types.plain import plain

if TYPE_CHECKING:
    from agentrl.serving.websocket import WebSocket

MAX_BYTES = 16 << 20
"""Length of a message or body of a client."""
STATUS = {
    Code.INVALID_JSON: HTTPStatus.BAD_REQUEST,
    Code.VALIDATION_ERROR: HTTPStatus.UNPROCESSABLE_ENTITY,
    Code.CAPACITY_REACHED: HTTPStatus.SERVICE_UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a server: its sessions, and how long one may be idle."""

    max_sessions: int = 64
    idle_s: float = 600.0
    max_connections: int = 1024


class OpenEnvServer:
    """Serves the environment `name` to clients with the token; the empty token admits every client."""

    def __init__(
        self, name: str, options: Mapping[str, Any], limits: ServerLimits | None = None, token: str = ""
    ) -> None:
        self._name, self._options, self._token = name, options, token
        self._limits = limits or ServerLimits()
        self._served: Served
        self._sessions: Sessions

    @asynccontextmanager
    async def listening(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
        """Serve while the context is open; yields the port. On exit all episodes are torn down.

        Raises ConfigError or EnvError if the first episode of the environment cannot begin.
        """
        self._served = await Served.of(self._name, self._options)
        self._sessions = Sessions(self._served.session, self._limits.max_sessions, self._limits.idle_s)
        try:
            async with HttpServer(self._answered, self._limits.max_connections).listening(host, port) as bound:
                yield bound
        finally:
            await self._sessions.close()
            await close_shared()

    async def _answered(self, head: Head, connection: Connection) -> Response | None:
        path, _, query = head.path.partition("?")
        if (head.method, path) != ("GET", "/health"):
            self._admit(head)
        if path == "/ws":
            names = parse_qs(query).get("session_id", [""])
            async with connection.websocket(head, MAX_BYTES) as socket:
                await self._serve(socket, names[0])
            return None
        try:
            return Response(encoded(await self._body(head.method, path, connection)))
        except WireError as error:
            detail = error.details.get("errors") or str(error)
            status = STATUS.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
            return Response(msgspec.json.encode({"detail": detail}), status=status)

    def _admit(self, head: Head) -> None:
        token = head.headers.get("authorization", "").removeprefix("Bearer ")
        if self._token and not hmac.compare_digest(token.encode(), self._token.encode()):
            reason = "wrong token: send the server's as Authorization: Bearer TOKEN"
            raise RequestError(HTTPStatus.UNAUTHORIZED, "wrong_token", reason)

    async def _serve(self, socket: WebSocket, name: str) -> None:
        """Serve the messages of a client in a session of its own, or in the one that it names."""
        try:
            with self._sessions.use(name) if name else self._sessions.lent() as session:
                while True:
                    answer = await self._reply(await self._received(socket), session)
                    if answer is None:
                        return
                    await socket.send(as_text(answer))
        except WireError as error:
            await socket.send(as_text(error.message))
        except TimeoutError:
            reason = "an answer was not sent in time, as the client does not read: the session has ended"
            await socket.send(as_text(WireError(Code.SESSION_ERROR, reason).message))

    async def _received(self, socket: WebSocket) -> str:
        try:
            return await socket.receive(self._limits.idle_s)
        except TimeoutError:
            reason = f"nothing was received for {self._limits.idle_s:g} s: the session has ended"
            raise WireError(Code.SESSION_ERROR, reason) from None

    async def _reply(self, text: str, session: Session) -> dict[str, Any] | None:
        """Return the answer to a message of a WebSocket, None to the last one."""
        try:
            message = decoded(text)
            kind, data = message.get("type"), message.get("data", {})
            match kind:
                case "reset":
                    return observed(await session.reset(data))
                case "step":
                    return observed(await session.step(data))
                case "state":
                    return {"type": "state", "data": session.state}
                case "mcp":
                    return {"type": "mcp", "data": await mcp.answered(data, self._sessions, session)}
                case "close":
                    return None
            raise WireError(Code.UNKNOWN_TYPE, f"unknown type {str(kind)[:100]!r}: send reset, step, state or close")
        except WireError as error:
            return error.message

    async def _body(self, method: str, path: str, connection: Connection) -> Any:
        served = self._served
        match method, path:
            case "GET", "/health":
                return {"status": "healthy"}
            case "GET", "/schema":
                return served.schemas
            case "GET", "/metadata":
                return served.metadata
            case "GET", "/state":
                return served.session().state
            case "GET", "/openapi.json":
                return served.openapi
            case "GET", "/list_environments":
                return [served.label]
            case "POST", "/mcp":
                return await self._called(await connection.body(MAX_BYTES))
            case "POST", "/reset":
                with self._sessions.lent() as session:
                    return (await session.reset(decoded(await connection.body(MAX_BYTES) or b"{}"))).data
            case "POST", "/step":
                return await self._stepped(decoded(await connection.body(MAX_BYTES)))
        name, _, call = path.removeprefix("/").rpartition("/")
        if unquote(name) == served.label:
            return await self._discovered(method, call, connection)
        raise unknown(f"no {method} {path}")

    async def _called(self, body: bytes) -> dict[str, Any]:
        try:
            request = decoded(body)
        except WireError as error:
            return mcp.error(None, mcp.PARSE_ERROR, str(error))
        return await mcp.answered(request, self._sessions)

    async def _stepped(self, body: dict[str, Any]) -> dict[str, Any]:
        """Take one turn of an episode that begins with it."""
        request = read(StepRequest, body)
        chosen = {key: body[key] for key in ("seed", "episode_id", "split", "index", "id") if key in body}
        with self._sessions.lent() as session:
            try:
                async with asyncio.timeout(request.timeout_s):
                    await session.reset(chosen)
                    return (await session.step(request.action)).data
            except TimeoutError:
                reason = f"no answer within timeout_s, {request.timeout_s:g} s"
                raise WireError(Code.EXECUTION_ERROR, reason) from None

    async def _discovered(self, method: str, call: str, connection: Connection) -> Any:
        """Answer the Task API."""
        if (method, call) == ("GET", "splits"):
            return self._served.splits
        if method != "POST" or call not in ("num_tasks", "task", "tasks", "task_range"):
            raise unknown(f"no {method} {call} of the Task API")
        asked = read(TasksRequest, decoded(await connection.body(MAX_BYTES)))
        outcome = await acatch(self._tasks(call, asked))
        if isinstance(outcome.error, RequestError):
            raise outcome.error
        if outcome.error is not None:
            raise failure(outcome.error) from outcome.error
        return outcome.value

    async def _tasks(self, call: str, asked: TasksRequest) -> Any:
        served = self._served
        match call:
            case "num_tasks":
                if (size := served.size(asked)) is None:
                    reason = f"the tasks of the split {asked.split!r} are endless: give reset an index or a seed"
                    raise RequestError(HTTPStatus.NOT_IMPLEMENTED, "endless", reason)
                return {"num_tasks": size}
            case "task":
                return {"task": await served.task(asked)}
        return {"tasks": await served.tasks(asked), "env_name": served.label}


def observed(seen: Observation) -> dict[str, Any]:
    """Return an observation as a message of the WebSocket."""
    return {"type": "observation", "data": seen.data}


def encoded(message: Any) -> bytes:
    """Return a message as JSON. What JSON cannot express, such as half a surrogate pair, is escaped or cut."""
    try:
        return msgspec.json.encode(message)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return msgspec.json.encode(plain(message))


def as_text(message: dict[str, Any]) -> str:
    """Return a message of a WebSocket."""
    return encoded(message).decode()


def unknown(reason: str) -> RequestError:
    """Return the error of a path that does not exist."""
    return RequestError(HTTPStatus.NOT_FOUND, "not_found", f"{reason}; see /openapi.json")
