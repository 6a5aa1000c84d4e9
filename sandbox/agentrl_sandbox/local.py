"""Link to a sandbox on this machine: the channel to its warden and the backend's handle."""

from __future__ import annotations

import os
from typing import Protocol

from agentrl_sandbox.answer import Answer
from agentrl_sandbox.channel import Channel
from agentrl_sandbox.inside import wire
from agentrl_sandbox.ordered import OrderedSandbox
from agentrl_sandbox.types import ExecResult, Limits


class Vessel(Protocol):
    """A backend's handle of one sandbox, besides the channel."""

    async def is_out_of_memory(self) -> bool:
        """Return whether the kernel killed the sandbox for lack of memory."""

    async def remove(self) -> None:
        """Wait until its processes have ended, kill them if they do not, and remove what is left."""


class LocalLink:
    """Link to a warden over a channel."""

    def __init__(self, channel: Channel, vessel: Vessel) -> None:
        self._channel, self._vessel = channel, vessel

    async def carry(self, order: bytes, answer: Answer) -> ExecResult:
        """Send an order with a new nonce, which every frame of the answer must carry."""
        nonce = os.urandom(wire.NONCE_BYTES)
        await self._channel.send(wire.frame(wire.ORDER, order), wire.frame(wire.NONCE, nonce=nonce))
        while True:
            kind, payload = await self._channel.receive(nonce)
            if (result := answer.take(kind, payload)) is not None:
                return result

    async def is_out_of_memory(self) -> bool:
        """Return whether the kernel killed the sandbox for lack of memory."""
        return await self._vessel.is_out_of_memory()

    def is_open(self) -> bool:
        """Return False if the warden is known to be gone."""
        return self._channel.transport.is_open()

    def shut(self) -> None:
        """Close the channel, which tells the warden to exit."""
        self._channel.transport.shut()

    async def remove(self) -> None:
        """Release the channel, then remove what is left."""
        self._channel.transport.close()
        await self._vessel.remove()


def sandbox(lease_id: str, channel: Channel, vessel: Vessel, limits: Limits) -> OrderedSandbox:
    """Return the sandbox of a warden that is ready."""
    return OrderedSandbox(lease_id, LocalLink(channel, vessel), limits)
