"""The way to a sandbox on this machine: a channel to its warden, and what its backend keeps of it."""

from __future__ import annotations

import os
from typing import Protocol

from agentrl_sandbox.answer import Answer
from agentrl_sandbox.channel import Channel
from agentrl_sandbox.inside import wire
from agentrl_sandbox.ordered import OrderedSandbox
from agentrl_sandbox.types import ExecResult, Limits


class Vessel(Protocol):
    """What a backend keeps of one sandbox beside its channel."""

    async def is_out_of_memory(self) -> bool:
        """Return whether the kernel ended it for its memory."""

    async def remove(self) -> None:
        """Wait until its processes have ended, force them where they do not, and remove what is left of it."""


class LocalLink:
    """A link to a warden over a channel."""

    def __init__(self, channel: Channel, vessel: Vessel) -> None:
        self._channel, self._vessel = channel, vessel

    async def carry(self, order: bytes, answer: Answer) -> ExecResult:
        """Send an order under a new nonce; whatever does not carry it is no answer."""
        nonce = os.urandom(wire.NONCE_BYTES)
        await self._channel.send(wire.frame(wire.ORDER, order), wire.frame(wire.NONCE, nonce=nonce))
        while True:
            kind, payload = await self._channel.receive(nonce)
            if (result := answer.take(kind, payload)) is not None:
                return result

    async def is_out_of_memory(self) -> bool:
        """Return whether the kernel ended the sandbox for its memory."""
        return await self._vessel.is_out_of_memory()

    def is_open(self) -> bool:
        """False when the warden is known to be gone."""
        return self._channel.transport.is_open()

    def shut(self) -> None:
        """The warden takes the end of the channel as its order to end."""
        self._channel.transport.shut()

    async def remove(self) -> None:
        """Release the channel, then all that is left."""
        self._channel.transport.close()
        await self._vessel.remove()


def sandbox(lease_id: str, channel: Channel, vessel: Vessel, limits: Limits) -> OrderedSandbox:
    """Return a sandbox whose warden is ready."""
    return OrderedSandbox(lease_id, LocalLink(channel, vessel), limits)
