"""Tools of Model Context Protocol servers, over stdio or streamable HTTP, for one episode each."""

from agentrl_tools.mcp.server import McpServer

__all__ = ["McpServer"]
