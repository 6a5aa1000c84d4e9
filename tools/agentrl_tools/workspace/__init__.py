"""Tools that run a model's code: Python, shell commands and files, in one sandbox per episode."""

from agentrl_tools.workspace.pools import close_sandboxes, sandboxes
from agentrl_tools.workspace.workspace import Workspace

__all__ = ["Workspace", "close_sandboxes", "sandboxes"]
