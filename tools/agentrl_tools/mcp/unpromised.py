"""Messages of a server without the schemas of its answers, so that no answer is checked by one.

The library would check on the event loop, by rules of the server's own: `uniqueItems` takes the square of its items,
and a `pattern` may backtrack for ever. An answer that breaks its own schema is an answer: the model reads its text.
"""

from __future__ import annotations

from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse


class Unpromised:
    """A stream of a transport, for `mcp.Client` to read from."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def last_context(self) -> Any:
        """The context of the sender, where the stream carries one."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        return unpromised(await self._inner.receive())

    async def aclose(self) -> None:
        """Close the stream."""
        await self._inner.aclose()

    def __aiter__(self) -> Unpromised:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return unpromised(await self._inner.__anext__())

    async def __aenter__(self) -> Unpromised:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def unpromised(message: SessionMessage | Exception) -> SessionMessage | Exception:
    """The same message; of tools that it lists, no output schema is left."""
    if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCResponse):
        tools = message.message.result.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict):
                tool.pop("outputSchema", None)
    return message
