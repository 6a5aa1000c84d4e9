"""What goes wrong beside the model: the service behind a tool."""

from __future__ import annotations

from agentrl.errors import AgentRLError, Fault


class ServiceError(AgentRLError):
    """A service that a tool needs is gone, hangs or talks nonsense; the model is not told, the episode ends."""

    fault: Fault = "infra"
