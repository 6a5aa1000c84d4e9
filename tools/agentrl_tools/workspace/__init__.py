"""Tools that run what a model wrote: Python, commands and files, in one sandbox for each episode."""

from agentrl_tools.workspace.pools import close_sandboxes, sandboxes
from agentrl_tools.workspace.workspace import Workspace

__all__ = ["Workspace", "close_sandboxes", "sandboxes"]
