"""JSON over HTTP to a server that may be slow, busy or away for a moment."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from agentrl.errors import ConfigError

RETRIED = (429, 502, 503, 504)
FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0
MAX_SHOWN = 300


def checked_url(url: str, name: str) -> str:
    """Return the address of a reward model without a slash at its end. Raises ConfigError if it is none."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"reward model {name}: {url!r} is no URL; write for example http://127.0.0.1:5000")
    return url.rstrip("/")


class AskError(Exception):
    """A request without a usable answer; the message is the reason."""


class Poster:
    """Posts to one server with at most `max_connections` requests at once.

    A request that fails because the server is busy, restarting or unreachable is sent again until `timeout_s` has
    passed since it was first sent.
    """

    def __init__(self, url: str, token: str, timeout_s: float, max_connections: int) -> None:
        self.url, self._timeout_s = url, timeout_s
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._slots = asyncio.Semaphore(max_connections)
        self._client: httpx.AsyncClient | None = None

    async def post(self, body: dict[str, Any]) -> Any:
        """Return the JSON of the answer. Raises AskError."""
        failure = "it neither refused nor answered"
        try:
            async with self._slots, asyncio.timeout(self._timeout_s):
                pause_s = FIRST_PAUSE_S
                while True:
                    try:
                        response = await self._opened().post(self.url, json=body, headers=self._headers)
                    except (httpx.TransportError, OSError) as error:
                        failure = f"{type(error).__name__}: {error}".rstrip(": ")
                    else:
                        if response.status_code not in RETRIED:
                            return self._json(response)
                        failure = f"status {response.status_code}: {response.text[:MAX_SHOWN]}"
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, MAX_PAUSE_S)
        except TimeoutError:
            raise AskError(f"{self.url} gave no answer within {self._timeout_s:g} s ({failure})") from None
        except (httpx.InvalidURL, httpx.HTTPError) as error:
            raise AskError(f"{self.url}: {type(error).__name__}: {error}") from error

    async def aclose(self) -> None:
        """Close all connections. Idempotent."""
        if self._client is not None:
            await self._client.aclose()

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=self._timeout_s)
        return self._client

    def _json(self, response: httpx.Response) -> Any:
        if not response.is_success:
            raise AskError(f"{self.url} answered with status {response.status_code}: {response.text[:MAX_SHOWN]}")
        try:
            return response.json()
        except (ValueError, RecursionError):
            raise AskError(f"{self.url} answered with text that is not JSON: {response.text[:MAX_SHOWN]!r}") from None
