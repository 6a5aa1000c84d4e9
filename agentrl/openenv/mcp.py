"""Tools over JSON-RPC, as OpenEnv's clients of tools call them (`POST /mcp`, and `mcp` messages of a WebSocket)."""

from __future__ import annotations

from typing import Any

import msgspec

from agentrl.openenv.session import Session
from agentrl.openenv.sessions import Sessions
from agentrl.openenv.wire import Code, WireError, read

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, SERVER_ERROR = -32700, -32600, -32601, -32602, -32000
NUMBERS = {Code.INVALID_JSON: PARSE_ERROR, Code.VALIDATION_ERROR: INVALID_PARAMS}


class Call(msgspec.Struct):
    """A JSON-RPC request."""

    method: str = ""
    params: dict[str, Any] = {}
    id: str | int | None = None
    jsonrpc: str = ""


class Params(msgspec.Struct):
    """Parameters of the methods."""

    session_id: str = ""
    name: str = ""
    arguments: dict[str, Any] = {}


async def answered(request: Any, sessions: Sessions, session: Session | None = None) -> dict[str, Any]:
    """Return the JSON-RPC response to a request. Without a `session`, its parameters name one."""
    identity = request.get("id") if isinstance(request, dict) else None
    try:
        call: Call = read(Call, request)
        if call.jsonrpc != "2.0" or not call.method:
            return error(identity, INVALID_REQUEST, "send jsonrpc '2.0', a method, its params and an id")
        result = await _result(call.method, read(Params, call.params), sessions, session)
    except WireError as failed:
        return error(identity, NUMBERS.get(failed.code, SERVER_ERROR), str(failed), failed.details or None)
    if result is None:
        return error(identity, NO_METHOD, f"no method {call.method[:100]!r}; known: tools/list, tools/call")
    return {"jsonrpc": "2.0", "id": identity, "result": result}


def error(identity: Any, number: int, message: str, data: Any = None) -> dict[str, Any]:
    """Return a JSON-RPC error."""
    return {"jsonrpc": "2.0", "id": identity, "error": {"code": number, "message": message, "data": data}}


async def _result(method: str, params: Params, sessions: Sessions, session: Session | None) -> dict[str, Any] | None:
    match method:
        case "openenv/session/create":
            return {"session_id": sessions.open()}
        case "openenv/session/close":
            sessions.end(params.session_id)
            return {"session_id": params.session_id, "closed": True}
        case "tools/list" | "tools/call" if session is not None:
            return await _tools(method, params, session)
        case "tools/list" | "tools/call":
            with sessions.use(params.session_id) as named:
                return await _tools(method, params, named)
    return None


async def _tools(method: str, params: Params, session: Session) -> dict[str, Any]:
    if method == "tools/list":
        keys = {"parameters": "inputSchema"}
        return {"tools": [{keys.get(name, name): value for name, value in tool.items()} for tool in session.tools]}
    seen = await session.step({"type": "call_tool", "tool_name": params.name, "arguments": params.arguments})
    text = seen.content["result"]
    return {"content": [{"type": "text", "text": text}], "data": text, "reward": seen.reward, "done": seen.is_done}
