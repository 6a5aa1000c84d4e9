"""JSON over HTTP to a server that may be slow, busy or away for a moment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from agentrl.config.urls import fault_of_urls, is_here, listed
from agentrl.errors import ConfigError
from agentrl.serving.body import SURROGATE, without_halves
from agentrl.types import as_unicode

BUSY = (425, 429, 502, 503, 504, *range(520, 525), 529)
"""Statuses of a server that will answer later: such a request is sent again until its deadline.

Beside those of HTTP, 520 to 524 are Cloudflare's for a server that it does not reach, 529 is Anthropic's "overloaded".
"""
UNSURE, MOST_UNSURE = (408, 409, 500), 3
"""Statuses of a failure that may have passed, or may be due to the request: it is sent so often in all."""
CONTENT = (400, 413, 422, 500)
"""Statuses of a refusal that may be due to what the request contains."""
FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0
CONNECT_S, REST_S = 5.0, 30.0
"""How long a connection may take to open, and how long one of several servers that gave no answer is not asked."""
IDENTITY = "identity"
MAX_SHOWN = 300
MAX_BYTES = 64 << 20
"""Maximum size of an answer."""
PROXIES = "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY"


def checked_urls(url: str, name: str, secret: str = "token") -> tuple[str, ...]:
    """Return the addresses in a comma-separated list, without trailing slashes.

    Raises ConfigError if one is no URL or has a user name or password. The message names `name`, whose addresses they
    are, and `secret`, the key that takes credentials.
    """
    if fault := fault_of_urls(url, secret):
        raise ConfigError(f"{name} {fault}")
    return listed(url)


def with_path(urls: Sequence[str], path: str) -> tuple[str, ...]:
    """Return the addresses, each ending in `path`."""
    return tuple(url if url.endswith(path) else url + path for url in urls)


class AskError(Exception):
    """A request without a usable answer; the message is the reason."""


class RefusedError(AskError):
    """A request that has no JSON, or whose content a server refuses: a part of it may have an answer."""


class Poster:
    """Posts to servers of one model in turn, with at most `max_connections` requests at once.

    A request that fails because a server is busy, restarting or unreachable is sent again, to the next server, until
    its deadline; not before the time that a single server names in `Retry-After`. Each of several servers has its share
    of the time, and one that gives no answer is left out for a while. The proxies of the environment variables, such as
    HTTP_PROXY, apply to servers that the user names, except those on this machine.

    A server that the run starts has a `replacement_s`: within that time after it dies or hangs, the run calls `move`.
    """

    def __init__(
        self,
        urls: Sequence[str],
        token: str,
        timeout_s: float,
        max_connections: int,
        replacement_s: float | None = None,
    ) -> None:
        """Raise ConfigError for an address or a proxy of the environment variables that cannot be used."""
        self.urls, self._sent, self._moves = tuple(urls), 0, 0
        self._rests_until, self._token = dict[str, float](), token
        self._timeout_s, self._replacement_s = timeout_s, replacement_s
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": IDENTITY}
        self._headers |= {"Authorization": f"Bearer {token}"} if token else {}
        self._slots, self._answered_at = asyncio.Semaphore(max_connections), 0.0
        self._client = _client(self.urls, timeout_s, is_ours=replacement_s is not None)

    @property
    def url(self) -> str:
        """All addresses, for messages."""
        return ", ".join(self.urls)

    def move(self, url: str) -> None:
        """Post to `url` from now on, also the requests under way; those that have moved once before fail."""
        self.urls, self._moves = (url,), self._moves + 1

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[float]:
        """Hold one of the connections; yields the time of the event loop at which answers on it are due.

        That is `timeout_s`, with the time of a replacement, after the wait for the connection. The wait goes on while
        other requests are answered. Raises AskError after a wait of such a time in which none was answered.
        """
        timeout_s, time = self._timeout_s + (self._replacement_s or 0.0), asyncio.get_running_loop().time
        began = time()
        async with self._slots:
            now = time()
            if now - max(began, self._answered_at) >= timeout_s:
                raise AskError(f"{self.url} answered none of the requests before this one within {timeout_s:g} s")
            yield now + timeout_s

    async def post(self, body: dict[str, Any], ends_at: float) -> Any:
        """Return the JSON of the answer. `ends_at` is the deadline, a time of the event loop. Raises AskError."""
        content, moves = self._written(body), self._moves
        time = asyncio.get_running_loop().time
        left_s, failure = round(max(0.0, ends_at - time()), 1), "it neither refused nor answered"
        try:
            async with asyncio.timeout_at(ends_at):
                pause_s, unsure = FIRST_PAUSE_S, 0
                while self._moves <= moves + 1:
                    url, within_s = self._turn(ends_at)
                    asked_s = 0.0
                    try:
                        async with asyncio.timeout(within_s):
                            response, answer = await self._asked(url, content)
                    except (httpx.LocalProtocolError, httpx.UnsupportedProtocol) as error:  # its text may be a header
                        raise AskError(f"{url}: {type(error).__name__}: the request cannot be sent") from None
                    except (httpx.TransportError, OSError) as error:
                        failure = self.shown(f"{type(error).__name__}: {error}".rstrip(": "))
                        self._rests_until[url] = time() + REST_S
                    else:
                        unsure += response.status_code in UNSURE
                        if response.status_code not in (*BUSY, *UNSURE) or unsure == MOST_UNSURE:
                            self._answered_at = time()
                            return self._json(url, response.status_code, answer)
                        failure = f"status {response.status_code}: {self._text(answer)}"
                        asked_s = _retry_after_s(response) if len(self.urls) == 1 else 0.0
                    await asyncio.sleep(max(pause_s, asked_s))
                    pause_s = min(2 * pause_s, MAX_PAUSE_S)
        except TimeoutError:
            raise AskError(f"{self.url} gave no answer within {left_s:g} s ({failure})") from None
        except (httpx.InvalidURL, httpx.HTTPError, ValueError) as error:
            raise AskError(f"{self.url}: {self.shown(f'{type(error).__name__}: {error}')}") from error
        raise AskError(f"two servers were replaced before they answered: now at {self.url} ({failure})")

    async def fault(self) -> str:
        """Return why a connection to none of the servers opens within CONNECT_S; "" if one does."""
        faults = await asyncio.gather(*map(self._unreachable, self.urls))
        named = (f"{url} ({fault})" for url, fault in zip(self.urls, faults, strict=True))
        return "; ".join(named) if all(faults) else ""

    def hidden(self, text: str) -> str:
        """Return a text from outside without the token."""
        return text.replace(self._token, "[token]") if self._token else text

    def shown(self, text: str) -> str:
        """Return the beginning of a text from outside, without the token."""
        return as_unicode(self.hidden(text)[:MAX_SHOWN])

    async def aclose(self) -> None:
        """Close all connections. Idempotent."""
        await self._client.aclose()

    def _turn(self, ends_at: float) -> tuple[str, float | None]:
        """Return the server to ask next and, if there are others to ask, its share of the time in seconds."""
        now = asyncio.get_running_loop().time()
        urls = [url for url in self.urls if self._rests_until.get(url, now) <= now] or self.urls
        url, self._sent = urls[self._sent % len(urls)], self._sent + 1
        return url, (ends_at - now) / len(urls) if urls[1:] else None

    async def _unreachable(self, url: str) -> str:
        """Return why no connection to a server opens, "" if one does, whatever the server answers."""
        try:
            async with self._client.stream("HEAD", url, timeout=CONNECT_S):
                return ""
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            return self.shown(f"{type(error).__name__}: {error}".rstrip(": "))
        except (httpx.TransportError, OSError):
            return ""

    async def _asked(self, url: str, content: bytes) -> tuple[httpx.Response, bytes]:
        async with self._client.stream("POST", url, content=content, headers=self._headers) as response:
            return response, await _body(url, response)

    def _written(self, body: dict[str, Any]) -> bytes:
        try:
            return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:  # NaN, half a surrogate pair
            raise RefusedError(f"{self.url}: {type(error).__name__}: {error}") from error

    def _json(self, url: str, status: int, answer: bytes) -> Any:
        if not 200 <= status < 300:
            refusal = RefusedError if status in CONTENT else AskError
            raise refusal(f"{url} answered with status {status}: {self._text(answer)}")
        try:
            return _parsed(answer)
        except (ValueError, RecursionError):
            raise AskError(f"{url} answered with text that is not JSON: {self._text(answer)!r}") from None

    def _text(self, answer: bytes) -> str:
        return self.shown(answer[: 4 * MAX_SHOWN].decode(errors="replace"))


def _client(urls: Sequence[str], timeout_s: float, *, is_ours: bool) -> httpx.AsyncClient:
    """Return a client without proxies for this machine, and for servers of our own. Raises ConfigError."""
    timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_S))
    try:
        hosts = {httpx.URL(url).host for url in urls}
    except httpx.InvalidURL as error:
        raise ConfigError(f"{', '.join(urls)} is no url: {error}") from error
    here = set(filter(is_here, hosts))
    direct = {f"all://[{host}]" if ":" in host else f"all://{host}": None for host in here}
    has_proxies = not is_ours and here < hosts
    try:
        certificates = httpx.create_ssl_context()
        return httpx.AsyncClient(timeout=timeout, verify=certificates, trust_env=has_proxies, mounts=direct)
    except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:  # whose text may have the proxy's password
        raise ConfigError(
            f"the proxies or certificates in the environment variables ({PROXIES}, SSL_CERT_FILE, SSL_CERT_DIR) cannot "
            f"be used for {', '.join(urls)} ({type(error).__name__}). Correct or unset them; socks5:// needs the "
            "package socksio"
        ) from None


async def _body(url: str, response: httpx.Response) -> bytes:
    """Return the answer, of whatever charset it says to be. Raises AskError if it is too long or compressed."""
    if response.headers.get("Content-Encoding", IDENTITY).lower() != IDENTITY:  # a few bytes may expand to any size
        if response.is_success:
            raise AskError(f"{url} compressed its answer, although it was asked not to")
        return b"(compressed)"
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > MAX_BYTES:
            raise AskError(f"{url} answered with more than {MAX_BYTES >> 20} MiB")
    return bytes(body)


def _retry_after_s(response: httpx.Response) -> float:
    """Return for how long a server asks to be left alone; 0 if it does not say so in seconds (RFC 9110, 10.2.3)."""
    said = response.headers.get("Retry-After", "")
    return float(said) if said.isascii() and said.isdigit() else 0.0


def _parsed(answer: bytes) -> Any:
    """Return JSON in UTF-8, without halves of escaped surrogate pairs. Raises ValueError and RecursionError."""
    text = answer.decode("utf-8-sig")
    return json.loads(without_halves(text) if SURROGATE in answer.lower() else text)
