"""The server of a reward model answers good requests, and every bad one with a typed error."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from agentrl.reward_models.batcher import BatchLimits
from agentrl.reward_models.server import RewardServer, ServerLimits
from agentrl.serving import connection as http
from tests.unit.reward_models.lengths import NOW, Lengths, serving

TOKEN = "a-token-of-16-characters"


def error_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["type"]


async def raw(client: httpx.AsyncClient, data: bytes) -> bytes:
    """The response to these bytes, after which the server closes the connection."""
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    return answer


async def test_texts_and_conversations_are_scored_in_order() -> None:
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "four"}]
    async with serving() as client:
        answer = await client.post("/v1/score", json={"inputs": ["a", messages, "ab"]})
    assert answer.json() == {"scores": [1.0, 4.0, 2.0], "errors": []}


async def test_the_form_of_openrlhf_is_served() -> None:
    async with serving() as client:
        asked = {"query": ["ab", "abc"], "prompts": ["a", "a"], "labels": ["", None]}
        answer = await client.post("/get_reward", json=asked)
    assert answer.json() == {"rewards": [2.0, 3.0], "scores": [2.0, 3.0], "extra_logs": {}}


async def test_a_text_without_a_score_is_an_error_of_its_own_and_never_0() -> None:
    async with serving() as client:
        answer = (await client.post("/v1/score", json={"inputs": ["long", "ab", "nan"]})).json()
        refused = await client.post("/get_reward", json={"query": ["ab", "nan"]})
    assert answer["scores"] == [None, 2.0, None]
    assert [(error["index"], error["type"]) for error in answer["errors"]] == [(0, "too_long"), (2, "not_finite")]
    assert error_of(refused) == (422, "not_finite")


async def test_requests_of_many_callers_share_a_batch_within_the_budget() -> None:
    scorer = Lengths()
    limits = ServerLimits(BatchLimits(max_tokens=40, wait_s=0.0))
    async with serving(scorer, limits=limits, is_open=False) as client:
        first = asyncio.create_task(client.post("/v1/score", json={"inputs": ["x"]}))
        assert await asyncio.to_thread(scorer.began.wait, 30)
        others = [asyncio.create_task(client.post("/v1/score", json={"inputs": ["y" * 10]})) for _ in range(6)]
        while (await client.get("/health")).json()["queued"] < 6:
            pass
        scorer.gate.set()
        answers = [(await task).json()["scores"] for task in [first, *others]]
    assert answers == [[1.0], *[[10.0]] * 6]
    assert scorer.batches == [1, 4, 2]


async def test_a_full_queue_is_429_and_takes_requests_again_later() -> None:
    scorer = Lengths()
    limits = ServerLimits(BatchLimits(wait_s=0.0, max_queue=2))
    async with serving(scorer, limits=limits, is_open=False) as client:
        first = asyncio.create_task(client.post("/v1/score", json={"inputs": ["x"]}))
        assert await asyncio.to_thread(scorer.began.wait, 30)
        second = asyncio.create_task(client.post("/v1/score", json={"inputs": ["x", "y"]}))
        while (await client.get("/health")).json()["queued"] < 2:
            pass
        refused = await client.post("/v1/score", json={"inputs": ["z"]})
        scorer.gate.set()
        assert [(await task).status_code for task in (first, second)] == [200, 200]
        assert (await client.post("/v1/score", json={"inputs": ["z"]})).status_code == 200
    assert error_of(refused) == (429, "overloaded")
    assert refused.headers["retry-after"] == "1"


async def test_more_texts_than_the_queue_holds_are_refused_for_good() -> None:
    async with serving(limits=ServerLimits(BatchLimits(max_queue=2))) as client:
        assert error_of(await client.post("/v1/score", json={"inputs": ["x"] * 3})) == (413, "too_many")


async def test_a_text_on_which_a_model_fails_is_an_error_of_that_text_alone() -> None:
    scorer = Lengths()
    async with serving(scorer, is_open=False) as client:
        first = asyncio.create_task(client.post("/v1/score", json={"inputs": ["x"]}))
        await asyncio.to_thread(scorer.began.wait, 30)
        together = [asyncio.create_task(client.post("/v1/score", json={"inputs": [t]})) for t in ("fail", "ab")]
        queued = 0
        while queued < 2:
            queued = (await client.get("/health")).json()["queued"]
        scorer.gate.set()
        _, failed, scored = await asyncio.gather(first, *together)
    assert scorer.batches == [1, 2, 1, 1, 1], "both, each alone, and one token of the one that failed"
    assert scored.json()["scores"] == [2.0]
    assert failed.json() == {
        "scores": [None],
        "errors": [{"index": 0, "type": "model_failed", "message": "RuntimeError: out of memory"}],
    }


async def test_a_text_on_which_a_model_fails_discards_no_scores_of_its_request() -> None:
    async with serving() as client:
        answer = (await client.post("/v1/score", json={"inputs": ["a", "fail", "ab"]})).json()
        refused = await client.post("/get_reward", json={"query": ["a", "fail"]})
    assert (answer["scores"], answer["errors"][0]["index"]) == ([1.0, None, 2.0], 1)
    assert error_of(refused) == (500, "model_failed")


@pytest.mark.parametrize("is_broken", [True, False])
async def test_the_texts_of_a_client_that_has_left_are_not_scored(is_broken: bool) -> None:
    scorer = Lengths()
    async with serving(scorer, limits=ServerLimits(BatchLimits(max_tokens=1, wait_s=0.0)), is_open=False) as client:
        reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
        body = json.dumps({"inputs": ["x"] * 9}).encode()
        writer.write(b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        assert await asyncio.to_thread(scorer.began.wait, 30)
        if is_broken:
            writer.transport.abort()
        else:
            writer.write_eof()
            assert await reader.read() == b""
        await asyncio.sleep(0.5)
        scorer.gate.set()
        assert (await client.post("/v1/score", json={"inputs": ["ab"]})).json()["scores"] == [2.0]
        writer.close()
    assert scorer.batches == [1, 1]


async def test_head_has_the_response_of_get_without_its_body() -> None:
    async with serving() as client:
        health, unknown = await client.head("/health"), await client.head("/nowhere")
        assert (health.status_code, health.content, unknown.status_code) == (200, b"", 404)
        assert (await client.get("/health")).json()["status"] == "ok", "on the same connection"


async def test_a_request_without_a_body_is_answered_at_once() -> None:
    async with serving() as client, asyncio.timeout(5):
        assert b" 400 " in await raw(client, b"POST /v1/score HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")


async def test_a_request_has_a_deadline_and_a_stuck_server_is_not_healthy() -> None:
    scorer = Lengths()
    async with serving(scorer, limits=ServerLimits(NOW, timeout_s=0.05), is_open=False) as client:
        assert error_of(await client.post("/v1/score", json={"inputs": ["x"]})) == (504, "timeout")
        health = await client.get("/health")
        while health.status_code == 200:
            health = await client.get("/health")
        assert error_of(health) == (503, "stuck")


async def test_a_model_that_scores_nothing_any_more_is_not_healthy() -> None:
    scorer = Lengths()
    async with serving(scorer) as client:
        await client.post("/v1/score", json={"inputs": ["fail"]})
        assert (await client.get("/health")).status_code == 200, "it scores one token"
        for body in ({"inputs": ["ab", "break"]}, {"inputs": ["a"]}):
            assert error_of(await client.post("/v1/score", json=body)) == (503, "stuck"), "another server may score it"
        health = await client.get("/health")
        assert error_of(health) == (503, "stuck")
        assert "device-side assert" in health.text
        scorer.is_broken = False
        assert (await client.post("/v1/score", json={"inputs": ["fail"]})).json()["scores"] == [None]
        assert (await client.get("/health")).status_code == 200


async def test_a_text_whose_first_token_fails_alone_leaves_the_model_healthy() -> None:
    async with serving() as client:
        assert (await client.post("/v1/score", json={"inputs": ["ab"]})).json()["scores"] == [2.0]
        assert (await client.post("/v1/score", json={"inputs": ["~b"]})).json()["scores"] == [None]
        assert (await client.get("/health")).status_code == 200, "it scores the token of another text"


async def test_only_the_token_admits_and_nothing_of_a_stranger_is_read() -> None:
    scorer = Lengths()
    async with serving(scorer, TOKEN) as client:
        body = {"inputs": ["x"]}
        for wrong in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Bearer {TOKEN}x"}):
            assert error_of(await client.post("/v1/score", json=body, headers=wrong)) == (401, "wrong_token")
        head = b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Length: 999999\r\n\r\n"
        assert b"401" in (await raw(client, head)).splitlines()[0]
        right = await client.post("/v1/score", json=body, headers={"Authorization": f"Bearer {TOKEN}"})
        assert (right.status_code, (await client.get("/health")).status_code) == (200, 200)
    assert scorer.batches == [1]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[1]", b'{"inputs": 3}', b'{"inputs": [3]}', b'{"inputs": [[]]}', b'{"query": ["x"]}',
        b'{"inputs": [[{"role": "nobody", "content": ""}]]}', b'{"inputs": ["\xff"]}', b"[" * 100_000,
    ],
)  # fmt: skip
async def test_a_malformed_body_is_400(body: bytes) -> None:
    async with serving() as client:
        assert error_of(await client.post("/v1/score", content=body)) == (400, "malformed")
        assert (await client.post("/v1/score", json={"inputs": ["x"]})).status_code == 200


@pytest.mark.parametrize(("path", "key"), [("/v1/score", "inputs"), ("/get_reward", "query")])
async def test_half_a_surrogate_pair_is_read_as_a_question_mark(path: str, key: str) -> None:
    async with serving() as client:
        answer = await client.post(path, content=f'{{"{key}": ["ab", "a\\uD83d"]}}'.encode())
    assert (answer.status_code, answer.json()["scores"]) == (200, [2.0, 2.0])


async def test_what_is_no_http_is_400_and_another_path_404() -> None:
    async with serving() as client:
        assert b"400" in (await raw(client, b"\0\1\2 nothing\r\n\r\n")).splitlines()[0]
        assert b"400" in (await raw(client, b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000)).splitlines()[0]
        assert error_of(await client.get("/v1/score")) == (404, "not_found")


async def test_an_oversized_body_is_413_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentrl.reward_models.server.MAX_BODY_BYTES", 1000)
    async with serving() as client:
        assert error_of(await client.post("/v1/score", content=b"x" * 5000)) == (413, "too_large")


async def test_a_slow_client_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_S", 0.05)
    monkeypatch.setattr(http, "HEAD_S", 0.05)
    monkeypatch.setattr(http, "DISCARD_S", 0.05)
    async with serving() as client:
        answer = await raw(client, b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        assert json.loads(answer.rpartition(b"\r\n")[2])["error"]["type"] == "slow_request"


async def test_half_a_head_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEAD_S", 0.05)
    async with serving() as client:
        assert await raw(client, b"POST /v1/score HT") == b""


async def test_a_caller_that_is_gone_costs_no_place_in_a_batch() -> None:
    scorer = Lengths()
    async with serving(scorer, limits=ServerLimits(NOW, timeout_s=0.2), is_open=False) as client:
        first = asyncio.create_task(client.post("/v1/score", json={"inputs": ["x"]}))
        assert await asyncio.to_thread(scorer.began.wait, 30)
        late = await client.post("/v1/score", json={"inputs": ["y"]})
        assert error_of(late) == (504, "timeout")
        await first
        scorer.gate.set()
        assert (await client.post("/v1/score", json={"inputs": ["z"]})).status_code == 200
    assert scorer.batches == [1, 1]


async def test_a_server_that_stops_answers_what_it_has_accepted_and_takes_nothing_new() -> None:
    scorer = Lengths()
    listening = RewardServer(scorer, limits=ServerLimits(NOW)).listening()
    port = await listening.__aenter__()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        asked = asyncio.create_task(client.post("/v1/score", json={"inputs": ["ab"]}))
        assert await asyncio.to_thread(scorer.began.wait, 30)
        stopping = asyncio.create_task(listening.__aexit__(None, None, None))
        await asyncio.sleep(0)
        with pytest.raises(httpx.ConnectError):
            await httpx.AsyncClient().get(f"http://127.0.0.1:{port}/health")
        scorer.gate.set()
        assert (await asked).json()["scores"] == [2.0]
        await stopping


async def test_more_connections_than_allowed_are_refused() -> None:
    async with serving(limits=ServerLimits(NOW, max_connections=1)) as client:
        assert (await client.get("/health")).status_code == 200  # stays open
        refused = await raw(client, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"429" in refused.splitlines()[0]
