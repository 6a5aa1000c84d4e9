"""What the process of an environment runs."""

from __future__ import annotations

import socket
from collections.abc import Callable

from agentrl.env import close_shared
from agentrl.errors import acatch
from agentrl.hosting.channel import StreamChannel
from agentrl.hosting.host import Host, HostedEnv


async def serve(connected: socket.socket, note_end: Callable[[], None]) -> None:
    """Serve the worker at the other end of a socket, with the environment that it names.

    `note_end` is called when the worker has closed it, before the teardown of its episodes.
    """
    channel = await StreamChannel.over(connected)
    try:
        await Host(channel, HostedEnv.named, note_end).run()
    finally:
        await acatch(close_shared())
        await channel.close()
