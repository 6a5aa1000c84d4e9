"""A reward model's score is a signal; whatever goes wrong makes it invalid, with the reason."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
import pytest

from agentrl.errors import ConfigError
from agentrl.reward_models import Query, RewardModel
from agentrl.reward_models.batcher import BatchLimits
from agentrl.reward_models.client import ServedRewardModel
from agentrl.reward_models.server import ServerLimits
from agentrl.roles import poster
from agentrl.types import Message
from tests.unit.reward_models.lengths import Lengths, serving

TURNS = [
    Message(role="user", content="?"),
    Message(role="assistant", content="one"),
    Message(role="user", content="!"),
    Message(role="assistant", content="seven"),
]
HEAD = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[str]:
    """The url of a server on this machine."""
    tasks = set[asyncio.Task[None]]()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(cast("asyncio.Task[None]", asyncio.current_task()))
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def silent() -> AsyncIterator[tuple[str, asyncio.Queue[bytes]]]:
    """A server that accepts requests, whose heads it gives, and never answers."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.put_nowait(await reader.readuntil(b"\r\n\r\n"))
        await reader.read()

    async with listening(listen) as url:
        yield url, heard


@asynccontextmanager
async def answering(*answers: tuple[int, bytes] | bytes | None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gives these answers, the last one for ever.

    An answer is a status and a body, or bytes with a head of their own; None aborts the connection after the request.
    """
    left, asked = list(answers), list[bytes]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-l"))
        asked.append(await reader.readexactly(length))
        found = left.pop(0) if len(left) > 1 else left[0]
        if found is not None:
            writer.write(found if isinstance(found, bytes) else HEAD % (found[0], len(found[1]), found[1]))
            await writer.drain()

    async with listening(answer) as url:
        yield url, asked


def scores(*values: object) -> tuple[int, bytes]:
    return 200, json.dumps({"scores": values}).encode()


async def reason(*answers: tuple[int, bytes] | bytes | None, path: str = "", timeout_s: float = 30.0) -> str:
    """Why the signal of a text is invalid when the server gives these answers."""
    async with answering(*answers) as (url, _):
        model = RewardModel(url + path, timeout_s=timeout_s)
        signal = await model.score("text")
        await model.aclose()
    assert (signal.valid, signal.value) == (False, None)
    return signal.reason


async def test_a_score_is_a_signal_with_name_weight_and_verifier() -> None:
    async with serving() as client:
        model = RewardModel(str(client.base_url), name="helpful", weight=0.5)
        signal = await model.score(TURNS)
        await model.aclose()
    assert (signal.name, signal.value, signal.weight, signal.scope, signal.valid) == (
        "helpful",
        5.0,
        0.5,
        "episode",
        True,
    )
    assert signal.verifier == str(client.base_url)


async def test_calls_that_come_together_share_requests() -> None:
    async with answering(scores(*range(4)), scores(0, 1)) as (url, asked):
        model = RewardModel(url, max_batch=4)
        signals = await asyncio.gather(*(model.score(f"text {n}") for n in range(6)))
        await model.aclose()
    assert sorted(len(json.loads(body)["inputs"]) for body in asked) == [2, 4]
    assert sorted(signal.value for signal in signals if signal.value is not None) == [0, 0, 1, 1, 2, 3]


async def test_requests_at_once_are_bounded() -> None:
    scorer = Lengths()
    async with serving(scorer, limits=ServerLimits(BatchLimits(wait_s=0.0)), is_open=False) as client:
        model = RewardModel(str(client.base_url), max_batch=1, max_connections=2)
        asked = [asyncio.create_task(model.score("x")) for _ in range(5)]
        assert await asyncio.to_thread(scorer.began.wait, 30)
        while sum(scorer.batches) + (await client.get("/health")).json()["queued"] < 2:
            pass
        scorer.gate.set()
        assert [(await task).value for task in asked] == [1.0] * 5
        await model.aclose()
    assert max(scorer.batches) <= 2


async def test_the_form_of_openrlhf_is_sent_to_get_reward() -> None:
    async with answering((200, b'{"rewards": [2.5], "scores": [1], "extra_logs": {}}')) as (url, asked):
        model = RewardModel(f"{url}/get_reward")
        signal = await model.score(Query("question answer", "question", "42"))
        refused = await model.score(TURNS)
        await model.aclose()
    assert signal.value == 2.5
    assert json.loads(asked[0]) == {"query": ["question answer"], "prompts": ["question"], "labels": ["42"]}
    assert "takes rendered text, not messages" in refused.reason


async def test_scores_and_extra_logs_of_openrlhf_are_evidence() -> None:
    body = b'{"rewards": [2.5, 0], "scores": [1, 0], "extra_logs": {"length": [7, 8], "note": "x"}}'
    async with answering((200, body)) as (url, _):
        model = RewardModel(f"{url}/get_reward")
        signals = await asyncio.gather(model.score("one"), model.score("two"))
        await model.aclose()
    assert [signal.evidence for signal in signals] == [{"scores": 1, "length": 7}, {"scores": 0, "length": 8}]


async def test_several_servers_are_asked_in_turn_and_for_each_other() -> None:
    rewards = (200, b'{"rewards": [1.0]}')
    async with answering(rewards) as (one, asked), answering(rewards, (503, b"")) as (two, refusing):
        model = RewardModel(f"{one}/get_reward, {two}/get_reward/")
        values = [(await model.score(text)).value for text in "abcd"]
        await model.aclose()
    assert values == [1.0] * 4
    assert [json.loads(body)["query"] for body in asked] == [["a"], ["c"], ["d"]]
    assert [json.loads(body)["query"] for body in refusing] == [["b"], ["d"]]


def test_servers_of_two_forms_are_refused() -> None:
    with pytest.raises(ConfigError, match="write all in one form"):
        RewardModel("http://one/get_reward,http://two")


async def test_an_input_that_cannot_be_scored_spoils_no_other() -> None:
    async with serving() as client:
        model = RewardModel(str(client.base_url))
        signals = await asyncio.gather(*map(model.score, ["ab", "long", "nan", "abc"]))
        await model.aclose()
    assert [signal.value for signal in signals] == [2.0, None, None, 3.0]
    assert signals[1].reason.startswith("too_long: the text has 9 tokens")
    assert signals[2].reason.startswith("not_finite")


PATHS = ["", "/get_reward"]


async def values_of(url: str, *given: Any) -> tuple[list[float | None], list[str]]:
    """The scores of conversations that are sent together, and the reasons of those that have none."""
    model = RewardModel(url)
    signals = await asyncio.gather(*map(model.score, given))
    await model.aclose()
    return [signal.value for signal in signals], [signal.reason for signal in signals if not signal.valid]


@pytest.mark.parametrize("path", PATHS)
async def test_a_text_that_is_refused_spoils_no_other(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poster, "FIRST_PAUSE_S", 0.0)
    async with serving() as client:
        values, reasons = await values_of(f"{client.base_url}{path}", "ab", "long", "abc", "\ud83d", "nan", "fail", "a")
    assert values == [2.0, None, 3.0, None, None, None, 1.0]
    for reason, said in zip(
        reasons, ["the text has 9 tokens", "surrogates", "not_finite", "model_failed"], strict=True
    ):
        assert said in reason


@pytest.mark.parametrize("content", [{"x": float("nan")}, {"x": b"bytes"}, {"x": "\ud83d"}])
async def test_messages_that_have_no_json_spoil_no_others(content: dict[str, object]) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": content}}
    odd = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    async with serving() as client:
        values, reasons = await values_of(str(client.base_url), TURNS, odd, "ab")
    assert values == [5.0, None, 2.0]
    assert "Error: " in reasons[0]


async def test_messages_for_a_server_of_texts_spoil_no_others() -> None:
    async with serving() as client:
        values, reasons = await values_of(f"{client.base_url}/get_reward", "ab", TURNS, "abc")
    assert values == [2.0, None, 3.0]
    assert "takes rendered text, not messages" in reasons[0]


@pytest.mark.parametrize("path", PATHS)
async def test_a_request_with_too_many_texts_is_divided(path: str) -> None:
    async with serving(limits=ServerLimits(BatchLimits(wait_s=0.0, max_queue=2))) as client:
        values, _ = await values_of(f"{client.base_url}{path}", *("a" * n for n in range(1, 8)))
    assert values == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


@pytest.mark.parametrize("path", PATHS)
async def test_a_request_with_too_many_bytes_is_divided(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentrl.reward_models.server.MAX_BODY_BYTES", 1000)
    async with serving() as client:
        values, reasons = await values_of(f"{client.base_url}{path}", "a" * 700, "a" * 701, "a" * 2000)
    assert values == [700.0, 701.0, None]
    assert "the body has more than 1000 bytes" in reasons[0]


@pytest.mark.parametrize(("status", "requests"), [(422, 7), (400, 7), (413, 7), (401, 1), (404, 1)])
async def test_only_a_refusal_of_the_content_divides_a_request(status: int, requests: int) -> None:
    async with answering((status, b"no")) as (url, asked):
        values, reasons = await values_of(url, *"abcd")
    assert (values, len(reasons)) == ([None] * 4, 4)
    assert len(asked) == requests


async def test_the_parts_of_a_request_share_its_deadline() -> None:
    async with answering((422, b""), (503, b"")) as (url, _):
        model = RewardModel(url, timeout_s=0.3)
        first, second = await asyncio.gather(model.score("one"), model.score("two"))
        await model.aclose()
    assert "gave no answer within" in first.reason
    assert "gave no answer within 0 s" in second.reason


async def test_requests_wait_for_a_connection_as_long_as_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one connection, 20 requests that take 9 s each have a deadline of 10 s."""
    loop = asyncio.get_running_loop()
    passed_s, time = 0.0, loop.time

    async def handle(self: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        nonlocal passed_s
        passed_s += 9.0
        await asyncio.sleep(0)  # a deadline that has passed ends the request here
        return httpx.Response(200, json={"scores": [1.0]})

    monkeypatch.setattr(loop, "time", lambda: time() + passed_s)
    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", handle)
    model = RewardModel("http://127.0.0.1:9", timeout_s=10.0, max_batch=1, max_connections=1)
    signals = await asyncio.gather(*(model.score("x") for _ in range(20)))
    await model.aclose()
    assert passed_s == 180.0
    assert [signal.value for signal in signals] == [1.0] * 20


async def test_requests_that_wait_for_a_connection_fail_with_a_server_that_answers_none() -> None:
    async with serving(scorer := Lengths(), is_open=False) as client:
        model = RewardModel(str(client.base_url), timeout_s=0.2, max_batch=1, max_connections=1)
        signals = await asyncio.gather(*(model.score("x") for _ in range(12)))
        scorer.gate.set()
        await model.aclose()
    reasons = [signal.reason for signal in signals]
    assert sum("gave no answer within 0.2 s" in reason for reason in reasons) in (1, 2)
    assert all("answered none of the requests before this one within 0.2 s" in reason for reason in reasons[2:])


@pytest.mark.parametrize(
    ("url", "is_proxied"),
    [
        ("https://judge.example", True),
        ("http://10.0.0.7:5000", True),
        ("http://127.0.0.1:5000", False),
        ("http://127.9.9.9:5000", False),
        ("http://localhost", False),
        ("https://[::1]:5000", False),
        ("http://0.0.0.0:5000", False),
        ("http://localhost.:5000", False),
        ("http://[::ffff:127.0.0.1]:5000", False),
        ("http://[::]:5000", False),
        ("http://127.1:5000", False),
        ("http://inside.example", False),
    ],
)
async def test_a_proxy_is_asked_for_servers_that_the_user_names_on_other_machines(
    url: str, is_proxied: bool, connected: Callable[[], list[bool]]
) -> None:
    model = RewardModel(url, token="secret")
    assert (await model.score("x")).value == 1.0
    await model.aclose()
    assert connected() == [is_proxied]


async def test_each_of_several_servers_has_its_own_way(connected: Callable[[], list[bool]]) -> None:
    model = RewardModel("http://127.0.0.1:5000,https://judge.example")
    assert [(await model.score("x")).value for _ in range(2)] == [1.0, 1.0]
    await model.aclose()
    assert connected() == [False, True]


@pytest.mark.parametrize("proxy", ["socks5://secret.example:1080", "http://bob:secret@x:y", "secret://x"])
async def test_a_proxy_that_cannot_be_used_is_refused_unless_it_is_not_needed(
    proxy: str, connected: Callable[[], list[bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("ALL_PROXY", proxy)
    model = RewardModel("http://127.0.0.1:5000")
    assert (await model.score("x")).value == 1.0
    await model.aclose()
    with pytest.raises(ConfigError, match="proxies or certificates in the environment variables") as refusal:
        RewardModel("http://10.0.0.7:5000")
    assert "secret" not in str(refusal.value)


async def test_no_proxy_is_asked_for_a_model_that_the_run_serves(connected: Callable[[], list[bool]]) -> None:
    model = ServedRewardModel("rm", 1.0, "secret", 30.0, 0.0)
    model.move("http://10.0.0.7:5000")
    assert (await model.score("x")).value == 1.0
    await model.aclose()
    assert connected() == [False]


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[bool]]:
    """Whether each request went to the proxy of the environment variables; no socket is opened."""
    found = list[bool]()

    async def handle(self: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        found.append("Proxy" in type(self._pool).__name__)
        return httpx.Response(200, json={"scores": [1.0]})

    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example")
    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", handle)
    return lambda: found


async def test_a_server_that_hangs_costs_its_share_of_the_time_and_is_then_left_out() -> None:
    async with answering(scores(1.0)) as (good, asked), silent() as (hung, heard):
        model = RewardModel(f"{hung},{good}", timeout_s=1.0)
        assert [(await model.score(text)).value for text in "abcd"] == [1.0] * 4
        await model.aclose()
    assert (heard.qsize(), len(asked)) == (1, 4)


async def test_servers_that_all_give_no_answer_are_all_asked_until_the_deadline() -> None:
    async with answering(None) as (one, first), answering(None) as (two, second):
        model = RewardModel(f"{one},{two}", timeout_s=0.5)
        assert "gave no answer within 0.5 s" in (await model.score("x")).reason
        await model.aclose()
    assert min(len(first), len(second)) >= 1


async def test_a_server_that_is_killed_mid_request_or_busy_is_asked_again() -> None:
    async with answering(None, (429, b""), (503, b""), scores(3.5)) as (url, asked):
        model = RewardModel(url)
        assert (await model.score("text")).value == 3.5
        await model.aclose()
    assert len(asked) == 4


async def test_a_server_that_fails_is_asked_three_times() -> None:
    async with answering((500, b""), (408, b""), scores(3.5)) as (url, asked):
        model = RewardModel(url)
        assert (await model.score("text")).value == 3.5
        await model.aclose()
    assert len(asked) == 3
    async with answering((500, b"out of memory")) as (url, asked):
        model = RewardModel(url)
        assert "status 500: out of memory" in (await model.score("text")).reason
        await model.aclose()
    assert len(asked) == 3


@pytest.mark.parametrize(("said", "pauses"), [("7", [7.0]), ("soon", [0.1]), ("-1", [0.1]), ("\u0667", [0.1])])
async def test_a_busy_server_is_left_alone_for_as_long_as_it_asks(
    said: str, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept, sleep = list[float](), asyncio.sleep

    async def noted(delay_s: float) -> None:
        slept.append(delay_s)
        await sleep(0)

    busy = b"HTTP/1.1 429 X\r\nRetry-After: %b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % said.encode()
    async with answering(busy, scores(3.5)) as (url, _):
        model = RewardModel(url)
        monkeypatch.setattr(poster.asyncio, "sleep", noted)
        assert (await model.score("text")).value == 3.5
        monkeypatch.undo()
        await model.aclose()
    assert slept == pauses


async def test_a_dead_server_makes_the_signal_invalid_at_the_deadline() -> None:
    async with answering(None) as (url, _):
        pass
    model = RewardModel(url, timeout_s=0.2)
    signal = await model.score("text")
    assert not signal.valid
    assert "gave no answer within 0.2 s (ConnectError" in signal.reason
    await model.aclose()


async def test_a_server_that_hangs_makes_the_signal_invalid_at_the_deadline() -> None:
    scorer = Lengths()
    async with serving(scorer, is_open=False) as client:
        model = RewardModel(str(client.base_url), timeout_s=0.2)
        assert "gave no answer within 0.2 s" in (await model.score("text")).reason
        scorer.gate.set()
        await model.aclose()


def in_charset(charset: str, status: int = 200) -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: text/html; charset={charset}\r\nConnection: close\r\n\r\n"
    return head.encode() + b"no JSON"


UNUSABLE: Sequence[tuple[tuple[int, bytes] | bytes, str]] = [
    (in_charset("hex", 500), "status 500: no JSON"),
    (in_charset("punycode"), "text that is not JSON: 'no JSON'"),
    ((200, b'{"scores": [1.0], "errors": [{"index": [0]}]}'), "an error of no input: {'index': [0]}"),
    ((200, b'{"scores": [1.0], "errors": [{"index": 1}]}'), "an error of no input: {'index': 1}"),
    ((200, b'{"scores": [1.0], "errors": 5}'), "errors that are no list: 5"),
    ((200, b"nothing"), "text that is not JSON: 'nothing'"),
    ((200, b"[" * 100_000), "text that is not JSON"),
    ((200, b"[]"), "without a list 'scores'"),
    ((200, b'{"scores": 3}'), "without a list 'scores'"),
    (scores(1.0, 2.0), "2 scores for 1 texts"),
    (scores(), "0 scores for 1 texts"),
    (scores(None), "the score None, which is no number"),
    (scores("high"), "the score 'high'"),
    ((200, b'{"scores": [NaN]}'), "the value is nan"),
    ((200, b'{"scores": [1e400]}'), "the value is inf"),
    (scores(1e30), "a reward is at most"),
    ((401, b"wrong token"), "status 401: wrong token"),
    ((500, b"out of memory"), "status 500: out of memory"),
]


@pytest.mark.parametrize(("answer", "said"), UNUSABLE, ids=[said for _, said in UNUSABLE])
async def test_an_unusable_answer_makes_the_signal_invalid(answer: tuple[int, bytes] | bytes, said: str) -> None:
    assert said in await reason(answer)


def encoded(encoding: str, status: int = 200) -> bytes:
    body = gzip.compress(b'{"scores": [1.0]}')
    head = f"HTTP/1.1 {status} X\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


@pytest.mark.parametrize("encoding", ["gzip", "gzip, identity", "unknown"])
async def test_a_compressed_answer_is_refused_and_none_is_asked_for(encoding: str) -> None:
    assert "compressed its answer" in await reason(encoded(encoding))
    async with answering(encoded(encoding, 503), scores(1.0)) as (url, _):
        model = RewardModel(url)
        assert (await model.score("text")).value == 1.0
        assert model._poster._headers["Accept-Encoding"] == "identity"
        await model.aclose()


async def test_what_a_server_writes_is_bounded_and_unicode() -> None:
    long = "x" * 10_000
    error = json.dumps({"scores": [None], "errors": [{"index": 0, "type": "\ud83d", "message": long}]}).encode()
    assert len(found := await reason((200, error))) < 1000
    assert found.startswith("?: xxx")
    assert len(await reason(scores(long))) < 1000
    logs = json.dumps({"rewards": [1.0], "extra_logs": {"note": [long], "odd": ["\ud83d"]}}).encode()
    async with answering((200, logs), (200, b'{"rewards": [1.0], "extra_logs": {"odd": ["\\ud83d"]}}')) as (url, _):
        model = RewardModel(f"{url}/get_reward")
        cut, whole = await model.score("one"), await model.score("two")
        await model.aclose()
    assert (cut.value, len(cut.evidence["cut"])) == (1.0, 10_000)
    assert whole.evidence == {"odd": "?"}


async def test_an_answer_has_a_greatest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poster, "MAX_BYTES", 1 << 20)
    assert "answered with more than 1 MiB" in await reason((200, b" " * (2 << 20)))


async def test_an_unusable_answer_in_the_form_of_openrlhf_is_invalid_too() -> None:
    assert "0 rewards for 1 texts" in await reason((200, b'{"rewards": []}'), path="/get_reward")


async def test_the_token_is_sent() -> None:
    async with serving(token="a-token-of-16-characters") as client:
        url = str(client.base_url)
        admitted, refused = RewardModel(url, token="a-token-of-16-characters"), RewardModel(url)
        assert (await admitted.score("ab")).value == 2.0
        assert "wrong_token" in (await refused.score("ab")).reason
        await asyncio.gather(admitted.aclose(), refused.aclose())


async def test_a_token_is_stripped_and_one_that_no_header_can_carry_is_refused() -> None:
    assert RewardModel("http://127.0.0.1:9", token="secret\n")._poster._headers["Authorization"] == "Bearer secret"
    for token in ("sec\nret", "sec\x7fret", "s\u00e9cret"):
        with pytest.raises(ConfigError, match="reward model rm: its token must be") as refusal:
            RewardModel("http://127.0.0.1:9", name="rm", token=token)
        assert "ret" not in str(refusal.value)


async def test_a_request_that_cannot_be_sent_fails_at_once_and_does_not_show_the_token() -> None:
    async with answering(scores(1.0)) as (url, _):
        model = RewardModel(url)
        model._poster._headers["Authorization"] = "Bearer secret\n"
        signal = await model.score("x")
        await model.aclose()
    assert signal.reason == f"{url}/v1/score: LocalProtocolError: the request cannot be sent"


@pytest.mark.parametrize("status", [200, 401])
async def test_a_server_that_repeats_the_token_does_not_have_it_shown(status: int) -> None:
    for answer in (b"wrong token: a-secret", b'{"scores": ["a-secret"]}'):
        async with answering((status, answer)) as (url, _):
            model = RewardModel(url, token="a-secret")
            signal = await model.score("x")
            await model.aclose()
        assert "[token]" in signal.reason
        assert "a-secret" not in signal.reason


def test_an_address_that_is_no_url_is_refused() -> None:
    with pytest.raises(ConfigError, match="write for example http://"):
        RewardModel("127.0.0.1:5000")


@pytest.mark.parametrize("url", ["http://user:pass,word@one", "http://one,https://user@two:5000/get_reward"])
def test_an_address_with_credentials_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match=r"reward model rm has a user name .*, and set token") as it:
        RewardModel(url, name="rm")
    assert "word" not in str(it.value).replace("password", "")
