"""agentrl_tools: tools an environment can offer a model.

Within this repository it imports only agentrl_sandbox and agentrl.{types, errors, env}.
"""

from agentrl_tools.calculator import Calculator
from agentrl_tools.errors import ServiceError
from agentrl_tools.http import Http
from agentrl_tools.mcp import McpServer
from agentrl_tools.names import split_names, toolsets, where
from agentrl_tools.search import Document, HttpSearch, Index, Search, read_corpus
from agentrl_tools.workspace import Workspace, close_sandboxes, sandboxes

__all__ = [
    "Calculator",
    "Document",
    "Http",
    "HttpSearch",
    "Index",
    "McpServer",
    "Search",
    "ServiceError",
    "Workspace",
    "close_sandboxes",
    "read_corpus",
    "sandboxes",
    "split_names",
    "toolsets",
    "where",
]
