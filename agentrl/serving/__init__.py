"""HTTP servers of agentrl: connections with deadlines, and the loop that answers their requests."""

from agentrl.serving.connection import Connection, Head, RequestError
from agentrl.serving.server import Handler, HttpServer, Response

__all__ = ["Connection", "Handler", "Head", "HttpServer", "RequestError", "Response"]
