"""The agents of an episode of verifiers 0.4: which of them are the policy, and how their calls reach it."""

from __future__ import annotations

import os
import socket
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

import httpx
from verifiers.v1.clients import EvalClient, EvalClientConfig
from verifiers.v1.interception import InterceptionServer
from verifiers.v1.session import RolloutSession
from verifiers.v1.trace import Trace

from agentrl.env import Model
from agentrl.errors import EnvError

POLICY = EvalClientConfig(base_url="http://127.0.0.1/v1", api_key_var="AGENTRL_NO_KEY")
"""Stands for the policy in the configuration of agents; each episode puts its own endpoint in its place."""


@dataclass(slots=True)
class Seats:
    """The policy of one episode, and the name of each of its traces."""

    model: Model
    names: dict[str, str] = field(default_factory=dict)
    """The agent of each trace of the policy, by the trace's id."""

    def take(self, trace: Trace) -> str:
        """Return the name of the model for a trace. Each is an agent of its own: it has rewards of its own.

        An environment may run its only agent many times, so that each has a name from the first on.
        """
        if not trace.agent.trainable:
            raise EnvError(
                f"the agent {trace.agent.name!r} plays the policy and is not trainable; give it a model of its own: "
                f'--env.args \'{{"{trace.agent.name}": {{"model": …, "client": {{"base_url": …}}}}}}\''
            )
        number = 1 + sum(name.partition("#")[0] == trace.agent.name for name in self.names.values())
        self.names[trace.id] = name = trace.agent.name if number == 1 else f"{trace.agent.name}#{number}"
        return self.model.seat(name)


SEATS: ContextVar[Seats] = ContextVar("SEATS")
"""Those of the episode that the running task belongs to."""


BACKLOG = 1024
"""Connections that may wait to be accepted; with the 128 of the server itself, many of a thousand episodes are lost."""


class PolicyClient(EvalClient):
    """Relays calls to the endpoint of one episode, over connections that all episodes share."""

    def __init__(self, model: Model, connections: httpx.AsyncClient) -> None:
        self.base_url, self.api_key = model.base_url, model.api_key
        self.headers: dict[str, str] = {}
        self.client = connections

    async def close(self) -> None:
        """Do nothing: the connections belong to the server."""


class PolicyServer(InterceptionServer):
    """The server between the harnesses and their models, which sends the policy's calls to their own episode."""

    async def start(self) -> None:
        """Listen."""
        await super().start()
        for site in self.runner.sites:
            for listening in site._server.sockets:
                with socket.socket(fileno=os.dup(listening.fileno())) as same:
                    same.listen(BACKLOG)
        # No proxy of the machine has a way to this process, and every call has the deadline of its episode.
        self._connections = httpx.AsyncClient(
            trust_env=False, verify=False, timeout=None, limits=httpx.Limits(max_keepalive_connections=None)
        )
        self.stack.push_async_callback(self._connections.aclose)

    def register(self, session: RolloutSession) -> tuple[str, str]:
        """Take a rollout; the policy's gets the client of its episode."""
        keys: tuple[str, str] = super().register(session)
        if session.ctx.client == POLICY:
            seats = SEATS.get()
            session.ctx = replace(session.ctx, model=seats.take(session.trace))
            session.client = PolicyClient(seats.model, self._connections)
        return keys
