"""Failures of the service behind a tool, which are not the model's."""

from __future__ import annotations

from agentrl.errors import AgentRLError, Fault


class ServiceError(AgentRLError):
    """A service that a tool needs is down, hangs or sends garbage: the episode ends as an infrastructure failure."""

    fault: Fault = "infra"
