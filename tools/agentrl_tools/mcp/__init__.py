"""Tools of Model Context Protocol servers, over stdio or streamable HTTP, with one session per episode."""

from agentrl_tools.mcp.server import McpServer

__all__ = ["McpServer"]
