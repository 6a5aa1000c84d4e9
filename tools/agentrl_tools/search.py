"""Search for models: BM25 over a local corpus, or any search service with an HTTP/JSON interface."""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import httpx
import re2

from agentrl.env import BadCallError, as_unicode, json_lines, tool
from agentrl.errors import ConfigError, DataError
from agentrl_tools.errors import ServiceError
from agentrl_tools.known_good import works
from agentrl_tools.web import bounded, tls

WORD: Any = re2.compile(r"[\pL\pN_]+")
MAX_WORDS = 64
MAX_READ = 4000
"""Characters of a query that an index reads: Unicode normalisation takes time quadratic in the accents."""
MAX_CHARACTERS = 1000
"""Maximum length of a query to a service: URLs are bounded, and a query that is too long is the model's fault."""
FAILURES = (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, LookupError, TypeError, RecursionError)
TITLE_WEIGHT = 2.0
LARGE = 5_000
"""Number of documents from which queries run in a thread, because they take milliseconds."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document as the model sees it."""

    title: str
    text: str


class Retriever(Protocol):
    """Source of documents for `Search`."""

    async def find(self, query: str, k: int) -> list[Document]:
        """Return at most `k` documents, best first; deterministic for a query."""


class Search:
    """Toolset with `search`, at most `calls` times. `on_found` gets the documents of each call, for use in a reward."""

    def __init__(
        self,
        retriever: Retriever,
        k: int = 3,
        max_characters: int = 1000,
        calls: float = math.inf,
        on_found: Callable[[list[Document]], object] = len,
    ) -> None:
        self.retriever, self.k, self.max_characters = retriever, k, max_characters
        self.calls_left, self.on_found = calls, on_found

    @tool
    async def search(self, query: str) -> str:
        """Search the documents; returns the best matches.

        Args:
            query: a few words that the document should contain
        """
        if not query.strip():
            raise BadCallError("the query is empty")
        if self.calls_left < 1:
            raise BadCallError("no searches are left")
        self.calls_left -= 1
        found = await self.retriever.find(query, self.k)
        self.on_found(found)
        return "\n\n".join(f"[{d.title}] {d.text[: self.max_characters]}" for d in found) or "nothing found"


class Index:
    """BM25 over documents in memory, by SQLite's FTS5 (https://sqlite.org/fts5.html): stemmed, accents folded.

    A match in the title counts twice, and an exact title comes first. Ties keep the order of the documents, so results
    are deterministic.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        self._db.execute("CREATE VIRTUAL TABLE documents USING fts5(title, text, tokenize='porter unicode61')")
        rows = ((document.title, document.text) for document in documents)
        self._db.executemany("INSERT INTO documents VALUES (?, ?)", rows)
        (self.size,) = self._db.execute("SELECT count(*) FROM documents").fetchone()

    @classmethod
    def of_file(cls, path: Path) -> Index:
        """Build the index of a JSONL file (see `read_corpus`)."""
        return cls(read_corpus(path))

    async def find(self, query: str, k: int) -> list[Document]:
        """Return at most `k` documents that contain words of the query, best first."""
        return await asyncio.to_thread(self.rank, query, k) if self.size >= LARGE else self.rank(query, k)

    def rank(self, query: str, k: int) -> list[Document]:
        """Run `find` synchronously; only the first MAX_WORDS distinct words of a query count."""
        query = as_unicode(query[:MAX_READ])
        words = list(dict.fromkeys(WORD.findall(unicodedata.normalize("NFKC", query))))[:MAX_WORDS]
        if not words:
            return []
        rows = self._db.execute(
            "SELECT title, text FROM documents WHERE documents MATCH ? "
            "ORDER BY title = ? COLLATE NOCASE DESC, bm25(documents, ?, 1.0), rowid LIMIT ?",
            (" OR ".join(f'"{word}"' for word in words), query.strip(), TITLE_WEIGHT, k),
        )
        return [Document(*row) for row in rows]

    def close(self) -> None:
        """Free the memory."""
        self._db.close()


@dataclass(frozen=True, slots=True)
class HttpSearch:
    """Search service over HTTP: its URL, its request, and where its JSON response holds the documents.

    `{query}` and `{k}` are filled into `url` and into the strings of a JSON `body` (a body makes the request a POST).
    Paths are dotted keys and indices: `hits`, `result.0`, `document.title`; an empty path is the value itself.
    If a query fails, the service is queried for `known_good`: if that succeeds, the model gets an error about its
    query; if it fails too, the service is down and ServiceError is raised.
    """

    url: str
    results: str
    text: str = "text"
    title: str = "title"
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    timeout_s: float = 20.0
    max_bytes: int = 4_000_000
    known_good: str = "water"

    def __post_init__(self) -> None:
        """Refuse a URL with a user name or password. Raises ConfigError."""
        if "@" in urlsplit(self.url).netloc:
            raise ConfigError(
                "HttpSearch: the url has a user name or password, which a run would store with its settings: leave "
                "them out. A retriever of your own can read them from the environment"
            )

    async def find(self, query: str, k: int) -> list[Document]:
        """Query the service; BadCallError if the query itself is at fault, ServiceError if the service is."""
        if len(query) > MAX_CHARACTERS:
            raise BadCallError(f"the query is longer than {MAX_CHARACTERS} characters")
        try:
            return await self._found(as_unicode(query), k)
        except FAILURES as error:
            why = f"{type(error).__name__}: {error}"[:MAX_CHARACTERS]
            service = self.url, self.results, self.title, self.text, repr(self.body)
            if await works(service, lambda: self._found(self.known_good, k), self.timeout_s):
                raise BadCallError(f"the search service does not answer this query ({why})") from error
            raise ServiceError(f"search service {self.url}: {why}; check url, results, title and text") from error

    async def _found(self, query: str, k: int) -> list[Document]:
        async with asyncio.timeout(self.timeout_s):
            answer = json.loads(await self._ask(query, k))
        items = at(answer, self.results)
        if not isinstance(items, list):
            raise TypeError(f"{self.results!r} is not a list")
        return [Document(str(at(item, self.title) or ""), text_at(item, self.text)) for item in items[:k]]

    async def _ask(self, query: str, k: int) -> bytes:
        method, content = "GET", None
        if self.body is not None:
            method, content = "POST", json.dumps(filled(self.body, query, k)).encode()
        headers = {"Content-Type": "application/json"} | self.headers
        url = self.url.replace("{query}", quote(query, safe="")).replace("{k}", str(k))
        async with (
            httpx.AsyncClient(verify=tls(), trust_env=False, timeout=self.timeout_s) as client,
            client.stream(method, url, content=content, headers=headers) as response,
        ):
            response.raise_for_status()
            return await bounded(response.aiter_bytes(), self.max_bytes)


def filled(body: Any, query: str, k: int) -> Any:
    """Fill `{query}` and `{k}` into a JSON body; a string that is just `{k}` becomes the number."""
    if isinstance(body, dict):
        return {key: filled(value, query, k) for key, value in body.items()}
    if isinstance(body, list):
        return [filled(value, query, k) for value in body]
    if isinstance(body, str):
        return k if body == "{k}" else body.replace("{k}", str(k)).replace("{query}", query)
    return body


def at(value: Any, path: str) -> Any:
    """Return the value at a dotted path of keys and indices; LookupError or TypeError if there is none."""
    for part in path.split(".") if path else ():
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def text_at(value: Any, path: str) -> str:
    """Return the string or number at a path as text; TypeError for anything else."""
    found = at(value, path)
    if not isinstance(found, str | int | float):
        raise TypeError(f"{path!r} is {type(found).__name__}, not a string")
    return str(found)


def read_corpus(path: Path) -> Iterator[Document]:
    """Read a JSONL file whose rows have `text` (or `contents`, or a list `sentences`) and optionally `title`."""
    for source, row in json_lines(path):
        yield as_document(row, source)


def as_document(row: Any, source: str) -> Document:
    """Parse one row; DataError names the mistake and `source`, the file and line."""
    if not isinstance(row, dict):
        raise DataError(f"{source}: must be an object, not {type(row).__name__}")
    text = row.get("text", row.get("contents", row.get("sentences")))
    if isinstance(text, Sequence) and not isinstance(text, str):
        text = "".join(map(str, text))
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"{source}: no text found; its keys are {', '.join(row)}")
    return Document(str(row.get("title") or source), text)
