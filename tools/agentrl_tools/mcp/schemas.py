"""Removal of output schemas from a server's messages, so that no result is validated against one.

The library would validate on the event loop, by the server's rules: `uniqueItems` is quadratic, and a `pattern` may
backtrack forever. A result that violates its own schema is still a result: the model reads its text.
"""

from __future__ import annotations

from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse


class WithoutOutputSchemas:
    """Stream of a transport for `mcp.Client` to read from, without output schemas."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def last_context(self) -> Any:
        """The context of the sender, if the stream carries one."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        return without_output_schemas(await self._inner.receive())

    async def aclose(self) -> None:
        """Close the stream."""
        await self._inner.aclose()

    def __aiter__(self) -> WithoutOutputSchemas:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return without_output_schemas(await self._inner.__anext__())

    async def __aenter__(self) -> WithoutOutputSchemas:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def without_output_schemas(message: SessionMessage | Exception) -> SessionMessage | Exception:
    """Remove the output schemas of the tools that a message lists, and return the message."""
    if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCResponse):
        tools = message.message.result.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict):
                tool.pop("outputSchema", None)
    return message
