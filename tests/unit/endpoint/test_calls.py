"""Which call a request belongs to: one of its own, or that which it repeats."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from http import HTTPStatus
from itertools import count
from typing import cast

import httpx
import pytest

from agentrl.endpoint import Answer, Ask, Endpoint, Responder
from agentrl.endpoint.calls import Call, Calls, _is_retry
from agentrl.env import AgentEnv, Context, Model, Task, play, reward
from agentrl.errors import acatch
from agentrl.serving import Head, RequestError, Response
from agentrl.serving.connection import Connection
from agentrl.serving.server import HttpServer
from agentrl.types import Message

FIRST = Head("POST", "/v1/chat/completions", {})
RETRY = Head("POST", "/v1/chat/completions", {"x-stainless-retry-count": "1"})


class Numbering(Responder):
    """Answers with the number of the call, once it is released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.numbers = count()

    async def answer(self, ask: Ask) -> Answer:
        number = next(self.numbers)
        await self.released.wait()
        return Answer(Message(role="assistant", content=str(number)))

    async def count(self, ask: Ask) -> int:
        raise AssertionError("nobody counts tokens")

    async def deliver(self, answer: Answer, is_awaited: Callable[[], bool]) -> bool:
        raise AssertionError("the server delivers")


ASK = Ask((Message(role="user", content="same"),))


async def said(call: asyncio.Task[Answer]) -> str:
    return str((await call).message["content"])


async def test_each_retry_of_equal_requests_joins_another_call() -> None:
    calls = Calls(responder := Numbering())
    firsts = [calls.call(ASK, FIRST, b"same") for _ in range(3)]
    retries = [calls.call(ASK, RETRY, b"same") for _ in range(3)]
    responder.released.set()
    answers = [sorted([await said(one.answer) for one in asked]) for asked in (firsts, retries)]
    assert answers == [["0", "1", "2"]] * 2


class Client:
    """A connection, as far as calls look at it."""

    is_closed = False


async def test_a_retry_takes_no_answer_that_a_client_has_received() -> None:
    calls, client = Calls(responder := Numbering()), connection()
    responder.released.set()
    received, lost = calls.call(ASK, FIRST, b"same"), calls.call(ASK, FIRST, b"same")
    received.received_by(client)
    for _ in range(3):
        assert calls.call(ASK, RETRY, b"same") is lost
    lost.received_by(client)
    assert calls.call(ASK, RETRY, b"same") is received
    await calls.close()


async def test_a_retry_joins_the_call_in_flight_rather_than_one_that_a_client_has_received() -> None:
    calls, client = Calls(responder := Numbering()), connection()
    responder.released.set()
    received, asked = calls.call(ASK, FIRST, b"same"), calls.call(ASK, FIRST, b"same")
    received.received_by(client)
    with asked.awaited_by(client):
        assert calls.call(ASK, RETRY, b"same") is asked
    await calls.close()


async def test_a_retry_is_of_the_call_that_failed_rather_than_of_one_in_flight() -> None:
    calls, client = Calls(responder := Numbering()), connection()
    asked = calls.call(ASK, FIRST, b"same")
    with asked.awaited_by(client):
        failed = await failed_call(calls, responder, 502)
        assert calls.call(ASK, RETRY, b"same") not in (asked, failed)
    await calls.close()


async def test_of_answers_that_were_received_a_retry_gets_the_last() -> None:
    calls, client = Calls(responder := Numbering()), connection()
    responder.released.set()
    first, second = calls.call(ASK, FIRST, b"same"), calls.call(ASK, FIRST, b"same")
    first.received_by(client)
    second.received_by(client)
    assert calls.call(ASK, RETRY, b"same") is second
    await calls.close()


async def test_a_retry_gets_the_answer_whose_connection_has_closed_though_it_was_written() -> None:
    calls, (kept, closed) = Calls(responder := Numbering()), (connection(), connection())
    responder.released.set()
    first, second = calls.call(ASK, FIRST, b"same"), calls.call(ASK, FIRST, b"same")
    first.received_by(kept)
    second.received_by(closed)
    closed.is_closed = True  # type: ignore[misc]
    assert calls.call(ASK, RETRY, b"same") is second
    await calls.close()


@pytest.mark.parametrize(("status", "expected"), [(502, "1"), (429, "1"), (400, "0")])
async def test_a_retry_is_of_the_call_that_failed_where_clients_repeat_it_and_not_of_one_that_was_answered(
    status: int, expected: str
) -> None:
    calls, client = Calls(responder := Numbering()), connection()
    responder.released.set()
    received = calls.call(ASK, FIRST, b"same")
    await received.answer
    received.received_by(client)
    await failed_call(calls, responder, status)
    assert await said(calls.call(ASK, RETRY, b"same").answer) == expected
    await calls.close()


async def failed_call(calls: Calls, responder: Responder, status: int) -> Call:
    """A call that has failed."""

    async def failing(ask: Ask) -> Answer:
        raise RequestError(HTTPStatus(status), "role_error", "away")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(responder, "answer", failing)
        call = calls.call(ASK, FIRST, b"same")
        with pytest.raises(RequestError, match="away"):
            await call.answer
    return call


def connection() -> Connection:
    return cast(Connection, Client())


async def test_requests_that_differ_or_are_no_retries_are_calls_of_their_own() -> None:
    calls = Calls(responder := Numbering())
    keyed = Head("POST", "/", {"idempotency-key": "a"})
    requests = [(FIRST, b"same"), (FIRST, b"same"), (RETRY, b"other"), (keyed, b"same")]
    responder.released.set()
    assert [await said(calls.call(ASK, *one).answer) for one in requests] == ["0", "1", "2", "3"]
    assert await said(calls.call(ASK, keyed, b"same").answer) == "3"


async def test_a_retry_at_another_path_is_a_call_of_its_own() -> None:
    calls = Calls(responder := Numbering())
    responder.released.set()
    chat, messages = (Head("POST", f"/v1/{path}", RETRY.headers) for path in ("chat/completions", "messages"))
    assert [await said(calls.call(ASK, head, b"same").answer) for head in (chat, messages, chat)] == ["0", "1", "0"]


async def test_the_end_of_an_episode_ends_its_calls() -> None:
    calls = Calls(Numbering())
    call = calls.call(ASK, FIRST, b"same")
    await asyncio.sleep(0)
    await calls.close()
    with pytest.raises(asyncio.CancelledError):
        await call.answer


async def test_a_retry_of_a_call_that_failed_is_a_call_of_its_own() -> None:
    calls, failures = (
        Calls(responder := Numbering()),
        iter([RequestError(HTTPStatus.BAD_GATEWAY, "role_error", "away")]),
    )
    answered = responder.answer

    async def failing(ask: Ask) -> Answer:
        for failure in failures:
            raise failure
        return await answered(ask)

    responder.answer = failing  # type: ignore[method-assign]
    responder.released.set()
    with pytest.raises(RequestError, match="away"):
        await calls.call(ASK, FIRST, b"same").answer
    again = calls.call(ASK, RETRY, b"same")
    assert await said(again.answer) == "0"
    assert calls.call(ASK, RETRY, b"same") is again
    await calls.close()


def test_only_a_number_marks_a_retry() -> None:
    for text, expected in (("1", True), ("0", False), ("00", False), ("9" * 5000, True), ("²", False), ("x", False)):
        assert _is_retry(Head("POST", "/", {"x-stainless-retry-count": text})) is expected


async def test_a_handler_that_fails_is_an_answer_and_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(head: Head, connection: Connection) -> Response:
        raise ValueError(f"{head.path} is not served")

    async with HttpServer(fails, 4).listening() as port, httpx.AsyncClient() as client:
        answers = [await client.get(f"http://127.0.0.1:{port}/x") for _ in range(2)]
    assert [(answer.status_code, answer.json()["error"]["type"]) for answer in answers] == [(500, "internal")] * 2
    assert "ValueError: /x is not served" in caplog.text


class HalfClosing(AgentEnv):
    """Closes its side of the connection after the request."""

    def tasks(self, split: str) -> list[Task]:
        return [Task(split, 0)]

    async def play(self, task: Task, ctx: Context, model: Model) -> str:
        body = json.dumps({"model": model.name, "messages": [{"role": "user", "content": "hi"}]})
        url = httpx.URL(model.base_url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {model.api_key}\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        writer.write_eof()
        answer = (await reader.read()).decode()
        writer.close()
        await model.ask("hi")
        return answer

    @reward
    def told(self, ctx: Context) -> float:
        return float("its side of the connection before it had the answer: keep it open" in ctx.result)


def test_a_client_that_closes_its_side_before_the_answer_reads_why_it_gets_none() -> None:
    (episode,) = play(HalfClosing(), ["one", "two"])
    assert episode.reward == 1.0


@pytest.mark.parametrize("ahead", [0, 300_000])
async def test_a_client_that_has_gone_is_noticed_however_much_it_has_sent_ahead(ahead: int) -> None:
    noticed = asyncio.get_running_loop().create_future()

    async def waits(head: Head, connection: Connection) -> Response:
        await connection.body(1)
        outcome = await acatch(asyncio.wait_for(connection.while_open(asyncio.Event().wait()), 5))
        noticed.set_result(type(outcome.error))
        return Response(b"")

    async with HttpServer(waits, 4).listening() as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n." + b"x" * ahead)
        writer.close()
        await writer.wait_closed()
        assert await noticed is ConnectionAbortedError


async def test_a_large_body_is_not_taken_for_a_request_ahead() -> None:
    async def waits(head: Head, connection: Connection) -> Response:
        body = await connection.body(1 << 24)
        return Response(json.dumps([len(body), connection.is_closed]).encode())

    async with HttpServer(waits, 4).listening() as port, httpx.AsyncClient() as client:
        answer = await client.post(f"http://127.0.0.1:{port}/x", content=b"x" * (1 << 22))
    assert answer.json() == [1 << 22, False]


class Impatient(AgentEnv):
    """Repeats a request, and asks the same thing once more."""

    def tasks(self, split: str) -> list[Task]:
        return [Task(split, 0)]

    async def play(self, task: Task, ctx: Context, model: Model) -> list[str]:
        body = {"model": model.name, "messages": [{"role": "user", "content": "same"}]}
        own, retry = {"authorization": f"Bearer {model.api_key}"}, {"x-stainless-retry-count": "1"}
        async with httpx.AsyncClient(base_url=model.base_url) as http:
            found = [await http.post("chat/completions", json=body, headers=own | more) for more in ({}, retry, {})]
        return [one.json()["choices"][0]["message"]["content"] for one in found]

    @reward
    def repeated(self, ctx: Context) -> float:
        return float(ctx.result == ["one", "one", "two"])


def test_an_episode_that_is_stepped_through_answers_a_retry_as_before() -> None:
    (episode,) = play(Impatient(), ["one", "two"])
    assert episode.reward == 1.0


class OwnLoop(AgentEnv):
    """A plain agent, which begins a loop of its own."""

    def tasks(self, split: str) -> list[Task]:
        return [Task(split, 0)]

    def play(self, task: Task, ctx: Context, model: Model) -> list[object]:
        return [asyncio.run(model.ask("hi")), asyncio.run(model.tokens.generate([5], None, ())).finish_reason]

    @reward
    def answered(self, ctx: Context) -> float:
        return float(ctx.result == ["one", "stop"])


def test_an_episode_that_is_stepped_through_may_have_a_loop_of_its_own() -> None:
    (episode,) = play(OwnLoop(), ["one", "two"])
    assert episode.reward == 1.0


async def test_a_request_whose_episode_ends_while_it_arrives_is_refused_and_samples_nothing() -> None:
    endpoint, responder = Endpoint(max_context=64), Numbering()
    body = json.dumps({"model": "policy", "messages": [{"role": "user", "content": "hi"}]})
    try:
        async with endpoint.open(responder) as model:
            url = httpx.URL(model.base_url)
            reader, writer = await asyncio.open_connection(url.host, url.port)
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {model.api_key}\r\n"
            writer.write(
                f"{head}Connection: close\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            )
            assert b" 100 " in await reader.readuntil(b"\r\n\r\n"), "the server waits for the body"
        writer.write(body.encode())
        answer = (await reader.read()).decode()
        writer.close()
    finally:
        await endpoint.close()
    assert " 401 " in answer
    assert "belongs to no running episode" in answer
    assert next(responder.numbers) == 0
