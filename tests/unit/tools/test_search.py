"""Search finds what contains the words, in an order that is always the same; a broken service is not the model's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from agentrl_tools.errors import ServiceError
from agentrl_tools.search import Document, HttpSearch, Index, Search, read_corpus
from hypothesis import given
from hypothesis import strategies as st

from agentrl.env import BadCallError
from agentrl.errors import ConfigError, DataError
from tests.unit.tools.web import web

CORPUS = [
    Document("Lisbon", "The capital of Portugal lies on the Tagus."),
    Document("Porto", "A harbour town in the north of Portugal."),
    Document("Tagus", "A river of Spain and Portugal; it is mentioned with every town on it."),
    Document("São Tomé", "An island in the gulf."),
    Document("Twin A", "the same words"),
    Document("Twin B", "the same words"),
]


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with web() as running:
        yield running


async def titles(query: str, k: int = 3) -> list[str]:
    return [document.title for document in await Index(CORPUS).find(query, k)]


@pytest.mark.parametrize("url", ["http://me:mine@127.0.0.1/s?q={query}", "https://key@127.0.0.1"])
def test_a_url_with_a_password_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigError, match="a user name or password") as caught:
        HttpSearch(url, "hits")
    assert "mine" not in str(caught.value)
    for fine in ("http://127.0.0.1/@me?q={query}", "http://127.0.0.1?mail=me@here&q={query}"):
        assert HttpSearch(fine, "hits").url == fine


async def test_the_best_match_comes_first_and_a_title_counts_twice() -> None:
    assert await titles("Tagus") == ["Tagus", "Lisbon"]
    assert await titles("capitals of Portugal", 1) == ["Lisbon"]
    assert await titles("porto ", 1) == ["Porto"]
    assert await titles("sao tome") == ["São Tomé"]
    assert await titles("zebra") == []


async def test_equal_scores_keep_the_order_of_the_corpus() -> None:
    assert await titles("same words") == ["Twin A", "Twin B"]


@pytest.mark.parametrize(
    "query", ['"', "AND", "NEAR(a b)", "title:Tagus*", "a OR", "-x", "'; DROP TABLE documents", "💥"]
)
async def test_the_query_is_words_and_no_language(query: str) -> None:
    await titles(query)


INDEX = Index(CORPUS)


@given(st.text(max_size=200))
def test_no_query_breaks_the_index(query: str) -> None:
    assert len(INDEX.rank(query, 3)) <= 3


async def test_a_long_query_is_cut() -> None:
    index = Index([Document(str(n), " ".join(f"w{i}" for i in range(n, n + 50))) for n in range(2000)])
    query = " ".join(f"w{i}" for i in range(50_000))
    assert len(await index.find(query, 3)) == 3


async def test_a_large_corpus_gives_the_same_from_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    inline = await titles("Portugal town")
    monkeypatch.setattr("agentrl_tools.search.LARGE", 1)
    assert await titles("Portugal town") == inline


async def test_the_tool_shows_titles_and_tells_what_it_showed() -> None:
    seen: list[Document] = []
    tool = Search(Index(CORPUS), k=1, max_characters=11, calls=2, on_found=seen.extend)
    assert await tool.search("Tagus") == "[Tagus] A river of "
    assert await tool.search("zebra") == "nothing found"
    assert seen == [CORPUS[2]]
    with pytest.raises(BadCallError, match="the query is empty"):
        await tool.search("  ")
    with pytest.raises(BadCallError, match="no searches are left"):
        await tool.search("Tagus")


# --- a service over HTTP ----------------------------------------------------------------------------------------


async def test_a_service_is_asked_by_its_url_or_by_a_json_body(server: ThreadingHTTPServer) -> None:
    home = f"http://127.0.0.1:{server.server_port}"
    get = HttpSearch(f"{home}/search?q={{query}}&n={{k}}", "data.hits", text="body.text", title="name")
    assert await get.find("a&b c", 2) == [Document("About a&b c", "Words.")] * 2
    post = HttpSearch(
        f"{home}/retrieve",
        "result.0",
        text="document.contents",
        title="document.title",
        body={"queries": ["{query}"], "topk": "{k}"},
    )
    assert await post.find('say "hi" {k}', 2) == [Document('say "hi" {k}', "Text.")] * 2


@pytest.mark.parametrize(
    ("path", "options", "expected"),
    [
        ("/down", {}, "503"),
        ("/hello", {}, "JSONDecodeError"),
        ("/search?q=x", {"results": "data.documents"}, "KeyError"),
        ("/search?q=x", {"results": "data"}, "check url, results, title and text"),
        ("/search?q=x", {"results": "data.hits", "title": "name", "text": "name.text"}, "TypeError"),
        ("/search?q=x", {"results": "data.hits", "title": "name", "text": "body"}, "'body' is dict, not a string"),
        ("/search?q=x", {"results": "data"}, "'data' is not a list"),
        ("/deep", {}, "RecursionError"),
        ("/hang", {"timeout_s": 0.2}, "Timeout"),
        ("/big", {"max_bytes": 1000}, "more than 1000 bytes"),
    ],
)
async def test_a_service_that_fails_is_the_infrastructures_fault(
    server: ThreadingHTTPServer, path: str, options: dict[str, Any], expected: str
) -> None:
    service = HttpSearch(f"http://127.0.0.1:{server.server_port}{path}", **({"results": ""} | options))
    with pytest.raises(ServiceError, match=expected) as caught:
        await service.find("x", 3)
    assert caught.value.fault == "infra"


async def test_a_query_that_cannot_be_sent_is_not_the_services_fault(server: ThreadingHTTPServer) -> None:
    home = f"http://127.0.0.1:{server.server_port}"
    service = HttpSearch(f"{home}/search?q={{query}}", "data.hits", text="body.text", title="name")
    assert (await service.find("half \ud800", 1))[0].title == "About half ?"
    with pytest.raises(BadCallError, match="longer than 1000 characters"):
        await service.find("x" * 70_000, 1)


@pytest.mark.parametrize(
    ("path", "query", "expected"),
    [
        ("/picky", 'a "', "400 Bad Request"),
        ("/fragile", "down", "503 Service Unavailable"),
        ("/fragile", "hang", "Timeout"),
        ("/fragile", "junk", "RecursionError"),
        ("/fragile", "big", "more than 50000 bytes"),
    ],
)
async def test_a_query_that_breaks_a_service_which_answers_others_is_the_models(
    server: ThreadingHTTPServer, path: str, query: str, expected: str, asked_again: None
) -> None:
    url = f"http://127.0.0.1:{server.server_port}{path}?q={{query}}"
    service = HttpSearch(url, "data.hits", "body.text", "name", max_bytes=50_000)
    hasty = replace(service, timeout_s=0.3) if query == "hang" else service
    with pytest.raises(BadCallError, match=f"does not answer this query.*{expected}"):
        await hasty.find(query, 1)
    assert [document.title for document in await service.find("x", 1)] == ["About x"]


async def test_many_queries_that_fail_ask_for_the_known_good_once(server: ThreadingHTTPServer) -> None:
    service = HttpSearch(f"http://127.0.0.1:{server.server_port}/down?q={{query}}", "")
    failures = await asyncio.gather(*(service.find("x", 1) for _ in range(20)), return_exceptions=True)
    assert {type(failure) for failure in failures} == {ServiceError}
    assert [path for _, path in server.seen].count("/down?q=water") == 1  # type: ignore[attr-defined]


def test_accents_are_put_in_order_for_a_bounded_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorting a run of marks takes the square of its length."""
    read = []
    monkeypatch.setattr("agentrl_tools.search.unicodedata.normalize", lambda _, text: read.append(len(text)) or text)
    Index(CORPUS).rank("a" + "\u0315\u0300" * 100_000, 1)
    assert read == [4000]


# --- a corpus in a file -----------------------------------------------------------------------------------------


def test_a_corpus_is_read_from_rows_of_several_kinds(tmp_path: Path) -> None:
    rows = [{"title": "A", "text": "one"}, {"contents": "two"}, {"title": "C", "sentences": ["th", "ree"]}]
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert list(read_corpus(path)) == [Document("A", "one"), Document("corpus.jsonl:2", "two"), Document("C", "three")]
    assert Index.of_file(path).size == 3


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{oops", "not a line of JSON"),
        ("[1]", "must be an object"),
        ('{"title": "A"}', "no text found; its keys are title"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, line: str, expected: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"text": "fine"}\n' + line)
    with pytest.raises(DataError, match=rf"corpus\.jsonl:2: {expected}"):
        Index.of_file(path)
