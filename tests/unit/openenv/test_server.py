"""Clients of OpenEnv play our environments over its wire, and no failure is a reward."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from agentrl.errors import ConfigError
from agentrl.openenv import OpenEnvServer, ServerLimits, server
from agentrl.openenv.wire import decoded
from agentrl.serving import websocket
from tests.unit.openenv.worlds import Fickle

WORLDS = "tests.unit.openenv.worlds"
WAIT_S = 60
TOKEN = "a-token-of-16-characters"
Message = dict[str, Any]


class Client:
    """A client that says what OpenEnv 0.10.0 says."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def ask(self, message: Message | str) -> Message:
        await self.socket.send(message if isinstance(message, str) else json.dumps(message))
        return json.loads(await self.socket.recv())  # type: ignore[no-any-return]

    async def reset(self, **data: Any) -> Message:
        return await self.ask({"type": "reset", "data": data})

    async def step(self, **action: Any) -> Message:
        return await self.ask({"type": "step", "data": action})

    async def say(self, text: str) -> Message:
        return await self.step(message=text)


@asynccontextmanager
async def serving(name: str = f"{WORLDS}:Fickle", token: str = "", **limits: float) -> AsyncIterator[str]:
    serves = OpenEnvServer(name, {}, ServerLimits(**limits), token)  # type: ignore[arg-type]
    async with serves.listening() as port:
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def session(url: str, query: str = "", **headers: str) -> AsyncIterator[Client]:
    async with connect(
        f"ws{url.removeprefix('http')}/ws{query}", additional_headers=headers, open_timeout=WAIT_S, max_size=None
    ) as socket:
        yield Client(socket)


@asynccontextmanager
async def playing(name: str = f"{WORLDS}:Fickle", **limits: float) -> AsyncIterator[Client]:
    async with serving(name, **limits) as url, session(url) as client:
        yield client


@pytest.fixture(autouse=True)
def torn_down() -> Iterator[None]:
    Fickle.open.clear()
    yield
    assert not Fickle.open, "an episode was not torn down"


def code(answer: Message) -> str:
    assert answer["type"] == "error"
    assert "reward" not in answer["data"]
    return str(answer["data"]["code"])


async def until(condition: Any) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 (conditions of objects that tell nobody)
            await asyncio.sleep(0)


async def test_an_episode_is_played_as_on_the_recorded_wire() -> None:
    async with playing() as client:
        first = await client.reset(seed=7, episode_id="mine", split="test", index=2)
        assert first == {
            "type": "observation",
            "data": {
                "observation": {
                    "text": "Be brief.\n\nSay 2.",
                    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say 2."}],
                },
                "reward": None,
                "done": False,
                "metadata": {"seed": 7, "id": "test-2", "split": "test", "index": 2},
            },
        }
        more = (await client.step(message="more", metadata={}))["data"]
        assert (more["observation"]["text"], more["reward"], more["done"]) == ("Again.", 0.5, False)
        state = {"episode_id": "mine", "step_count": 1, "id": "test-2", "split": "test", "index": 2}
        assert await client.ask({"type": "state"}) == {"type": "state", "data": state}
        last = (await client.say("2"))["data"]
        assert (last["observation"], last["reward"], last["done"]) == ({"text": "", "messages": []}, 1.5, True)
        assert last["metadata"]["stop_reason"] == "env_done"
        assert not Fickle.open
        assert code(await client.say("2")) == "EXECUTION_ERROR"
        assert (await client.reset())["data"]["done"] is False
        await client.socket.send('{"type": "close"}')
        with pytest.raises(ConnectionClosed):
            await client.socket.recv()


async def test_the_same_seed_begins_the_same_episode_and_the_last_turn_ends_it() -> None:
    async with playing() as client:
        tasks = [(await client.reset(seed=seed))["data"]["metadata"]["index"] for seed in (1, 2, 3, 1, 2, 3)]
        assert tasks[:3] == tasks[3:]
        turns = [(await client.say("more"))["data"] for _ in range(3)]
        assert [turn["done"] for turn in turns] == [False, False, True]
        assert turns[-1]["metadata"]["stop_reason"] == "max_turns"


@pytest.mark.parametrize(
    ("said", "reason"), [("raise", "table"), ("hang", "longer than 0.2 s"), ("judge", "no verdict")]
)
async def test_a_failure_is_an_error_and_never_a_reward(said: str, reason: str) -> None:
    async with playing() as client:
        await client.reset(index=1)
        answer = await client.say(said)
        assert code(answer) == "EXECUTION_ERROR"
        assert reason in answer["data"]["message"]
        assert not Fickle.open, "the failed episode is torn down at once"
        assert code(await client.say("1")) == "EXECUTION_ERROR"
        await client.reset(index=1)
        assert (await client.say("1"))["data"]["reward"] == 1.5


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("{", "INVALID_JSON"),
        ('{"type": "state", "data": NaN}', "INVALID_JSON"),
        ('{"type": "\\ud83d"', "INVALID_JSON"),
        ("[]", "VALIDATION_ERROR"),
        ("[" * 100_000, "INVALID_JSON"),
        ({"type": "restart"}, "UNKNOWN_TYPE"),
        ({"type": {}}, "UNKNOWN_TYPE"),
        ({"type": "reset", "data": {"indx": 1}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"seed": -1}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"split": "dev"}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"index": 4}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"index": 1, "id": "train-2"}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": []}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"text": "1"}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"message": 1}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"type": "call_tool", "tool_name": "add"}}, "VALIDATION_ERROR"),
    ],
)
async def test_what_a_client_gets_wrong_is_told_and_takes_no_turn(message: Message | str, expected: str) -> None:
    async with playing() as client:
        await client.reset(index=1)
        assert code(await client.ask(message)) == expected
        assert (await client.ask({"type": "state"}))["data"]["step_count"] == 0
        assert (await client.say("1"))["data"]["reward"] == 1.5


async def test_tools_are_listed_and_called_and_a_message_ends_the_episode() -> None:
    async with playing("tests.unit.env.worlds:Desk") as client:
        listed = (await client.step(type="list_tools"))["data"]["observation"]["tools"]
        assert [tool["name"] for tool in listed] == ["add", "fail", "hang", "break_down"]
        assert listed[0]["input_schema"]["required"] == ["n"]
        await client.reset()
        seen = (await client.step(type="call_tool", tool_name="add", arguments={"n": 4}))["data"]
        assert {"tool_name": "add", "result": "4", "error": None}.items() <= seen["observation"].items()
        assert (seen["reward"], seen["done"]) == (None, False)
        wrong = (await client.step(tool_name="add", arguments={"n": "x"}))["data"]["observation"]
        assert wrong["result"].startswith("error: n:")
        end = (await client.say("It is 4."))["data"]
        assert (end["reward"], end["done"]) == (4.0, True)


async def test_a_tool_whose_machine_is_gone_is_an_error() -> None:
    async with playing("tests.unit.env.worlds:Desk") as client:
        await client.reset()
        assert code(await client.step(type="call_tool", tool_name="break_down")) == "EXECUTION_ERROR"


async def test_a_full_server_says_so_until_a_session_ends() -> None:
    async with serving(max_sessions=1) as url:
        async with session(url) as client:
            await client.reset()
            async with session(url) as second:
                refused = json.loads(await second.socket.recv())
            assert code(refused) == "CAPACITY_REACHED"
            assert (refused["data"]["active_sessions"], refused["data"]["max_sessions"]) == (1, 1)
            async with httpx.AsyncClient(timeout=WAIT_S) as http:
                assert (await http.post(f"{url}/reset", json={})).status_code == 503
        await until(lambda: not Fickle.open)
        async with session(url) as client:
            assert (await client.reset())["type"] == "observation"


async def test_an_idle_session_ends() -> None:
    async with playing(idle_s=2.0) as client:
        await client.reset()
        assert code(json.loads(await client.socket.recv())) == "SESSION_ERROR"
        with pytest.raises(ConnectionClosed):
            await client.socket.recv()
        await until(lambda: not Fickle.open)


async def test_a_client_that_does_not_read_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "SEND_S", 3.0)
    async with serving(f"{WORLDS}:Long") as url, session(url) as client:
        client.socket.transport.pause_reading()
        await client.socket.send('{"type": "reset", "data": {}}')
        await until(lambda: Fickle.open)
        await until(lambda: not Fickle.open)
        client.socket.transport.resume_reading()
        assert json.loads(await client.socket.recv())["type"] == "observation"
        refused = json.loads(await client.socket.recv())
        assert (code(refused), "does not read" in refused["data"]["message"]) == ("SESSION_ERROR", True)


async def test_a_client_that_leaves_during_a_turn_leaves_nothing() -> None:
    async with serving(f"{WORLDS}:Patient") as url:
        async with session(url) as client:
            await client.reset()
            await client.socket.send('{"type": "step", "data": {"message": "wait"}}')
            await until(lambda: Fickle.open[0].turns)
        await until(lambda: not Fickle.open)


async def test_a_server_that_stops_tears_down_what_runs() -> None:
    async with serving(f"{WORLDS}:Patient") as url:
        client = await connect(f"ws{url.removeprefix('http')}/ws", open_timeout=WAIT_S)
        await Client(client).reset()
        await client.send('{"type": "step", "data": {"message": "wait"}}')
        await until(lambda: Fickle.open[0].turns)
    assert not Fickle.open
    await client.close()


async def test_pings_are_answered_during_a_turn() -> None:
    async with serving(f"{WORLDS}:Patient") as url, session(url) as client:
        await client.reset()
        await client.socket.send('{"type": "step", "data": {"message": "wait"}}')
        await until(lambda: Fickle.open[0].turns)
        async with asyncio.timeout(WAIT_S):
            await (await client.socket.ping())


async def test_a_message_in_fragments_is_one_and_one_too_long_or_binary_ends_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "MAX_BYTES", 100)
    async with serving() as url:
        async with session(url) as client:
            await client.socket.send(['{"type": "re', 'set", "data"', ": {}}"])
            assert json.loads(await client.socket.recv())["type"] == "observation"
        for message, number in ((b"{}", 1003), (["x" * 60] * 2, 1009)):
            async with session(url) as client:
                await client.socket.send(message)
                with pytest.raises(ConnectionClosed) as closed:
                    await client.socket.recv()
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == number


async def test_http_describes_the_environment_and_lists_its_tasks() -> None:
    async with serving() as url, httpx.AsyncClient(base_url=url, timeout=WAIT_S) as http:
        assert (await http.get("/health")).json() == {"status": "healthy"}
        assert (await http.get("/schema")).json()["action"]["required"] == ["message"]
        assert (await http.get("/metadata")).json()["description"].startswith("Turns that say")
        assert (await http.get("/state")).json() == {"episode_id": None, "step_count": 0}
        assert {"/reset", "/step", "/state"} <= (await http.get("/openapi.json")).json()["paths"].keys()
        [name] = (await http.get("/list_environments")).json()
        assert [split["name"] for split in (await http.get(f"/{name}/splits")).json()] == ["train", "test"]
        ask = lambda call, **body: http.post(f"/{name}/{call}", json={"split": "test", **body})  # noqa: E731
        assert (await ask("num_tasks")).json() == {"num_tasks": 4}
        assert (await ask("task", index=3)).json() == {"task": {"id": "test-3", "split": "test", "index": 3}}
        assert [task["index"] for task in (await ask("task_range", start=1, stop=3)).json()["tasks"]] == [1, 2]
        assert len((await ask("tasks")).json()["tasks"]) == 4
        assert (await ask("task", index=4)).status_code == 422
        assert (await ask("answers")).status_code == 404
        assert (await http.post("/other/num_tasks", json={"split": "test"})).status_code == 404


async def test_endless_tasks_have_no_number() -> None:
    async with serving("math") as url, httpx.AsyncClient(base_url=url, timeout=WAIT_S) as http:
        assert (await http.post("/math/num_tasks", json={"split": "train"})).status_code == 501
        assert (await http.post("/math/num_tasks", json={"split": "test"})).json()["num_tasks"] > 0


async def test_http_begins_an_episode_and_takes_its_only_turn() -> None:
    async with serving() as url, httpx.AsyncClient(base_url=url, timeout=WAIT_S) as http:
        assert (await http.post("/reset", json={"index": 3})).json()["metadata"]["id"] == "train-3"
        assert (await http.post("/reset")).status_code == 200
        right = {"action": {"message": "3"}, "index": 3}
        assert (await http.post("/step", json=right)).json()["reward"] == 1.5
        assert (await http.post("/step", json={"action": {"message": "judge"}})).status_code == 500
        assert (await http.post("/step", json={"action": {"text": "3"}})).status_code == 422
        await until(lambda: not Fickle.open)


async def test_a_client_of_tools_shares_a_session_of_http_with_its_websocket() -> None:
    async with serving("tests.unit.env.worlds:Desk") as url, httpx.AsyncClient(base_url=url, timeout=WAIT_S) as http:

        async def call(method: str, **params: Any) -> Message:
            answer = await http.post("/mcp", json={"jsonrpc": "2.0", "method": method, "params": params, "id": 1})
            return answer.json()  # type: ignore[no-any-return]

        opened = (await call("openenv/session/create"))["result"]["session_id"]
        async with session(url, f"?session_id={opened}") as client:
            await client.reset()
            [add, *_] = (await call("tools/list", session_id=opened))["result"]["tools"]
            assert (add["name"], add["inputSchema"]["type"]) == ("add", "object")
            called = await call("tools/call", session_id=opened, name="add", arguments={"n": 2})
            assert called["result"]["data"] == "2"
            rpc = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "add", "arguments": {"n": 3}}, "id": 9}
            again = await client.ask({"type": "mcp", "data": rpc})
            assert (again["data"]["result"]["data"], again["data"]["id"]) == ("5", 9)
        assert (await call("openenv/session/close", session_id=opened))["result"]["closed"]
        assert (await call("tools/list", session_id=opened))["error"]["code"] == -32000
        assert (await call("resources/list"))["error"]["code"] == -32601
        assert (await http.post("/mcp", json={})).json()["error"]["code"] == -32600
        assert (await http.post("/mcp", content=b"{")).json()["error"]["code"] == -32700


async def test_a_session_of_http_that_nobody_uses_ends() -> None:
    create = {"jsonrpc": "2.0", "method": "openenv/session/create", "id": 1}
    async with serving(idle_s=0.05, max_sessions=1) as url, httpx.AsyncClient(base_url=url, timeout=WAIT_S) as http:
        assert "result" in (await http.post("/mcp", json=create)).json()
        async with asyncio.timeout(WAIT_S):
            while "error" in (await http.post("/mcp", json=create)).json():
                pass


async def test_a_token_and_no_page_of_a_browser_is_admitted() -> None:
    async with serving(token=TOKEN) as url:
        with pytest.raises(InvalidStatus) as refused:
            async with session(url):
                pass
        assert refused.value.response.status_code == 401
        async with httpx.AsyncClient(base_url=url, timeout=WAIT_S) as http:
            assert (await http.post("/step", json={})).status_code == 401
            assert (await http.get("/health")).status_code == 200
        async with session(url, Authorization=f"Bearer {TOKEN}") as client:
            assert (await client.reset())["type"] == "observation"
        with pytest.raises(InvalidStatus) as refused:
            async with session(url, Authorization=f"Bearer {TOKEN}", Origin="https://example.org"):
                pass
        assert refused.value.response.status_code == 403
        headers = {"Authorization": f"Bearer {TOKEN}", "Origin": "https://example.org"}
        async with httpx.AsyncClient(base_url=url, timeout=WAIT_S, headers=headers) as http:
            assert (await http.post("/reset", json={})).status_code == 403


async def test_errors_of_the_environment_reach_the_clients_of_the_task_api() -> None:
    async with serving(f"{WORLDS}:Endless") as url, httpx.AsyncClient(base_url=url, timeout=WAIT_S) as http:
        answer = await http.post(f"/{WORLDS}:Endless/task", json={"split": "train", "index": 13})
        assert (answer.status_code, answer.json()) == (500, {"detail": answer.json()["detail"]})
        assert "no task today" in answer.json()["detail"]
        wanted = {"split": "train", "start": 5000, "stop": 5002}
        found = (await http.post(f"/{WORLDS}:Endless/task_range", json=wanted)).json()["tasks"]
        assert [task["index"] for task in found] == [5000, 5001]
        assert (await http.post(f"/{WORLDS}:Endless/task_range", json=wanted | {"start": -1})).status_code == 422


@pytest.mark.parametrize("half", ["\\ud83d", "\\ud83d 1 and more", "\\ud83d\\u0041", "\\udc00", "\\udc00 and more"])
async def test_half_a_surrogate_pair_is_read_as_a_question_mark(half: str) -> None:
    said = json.loads(f'"{half}"').encode(errors="replace").decode()
    assert decoded(f'{{"message": "{half}", "pair": "\\ud83d\\ude00"}}') == {"message": said, "pair": "\U0001f600"}
    async with playing() as client:
        await client.reset(index=1)
        assert (await client.ask(f'{{"type": "step", "data": {{"message": "{half}"}}}}'))["data"]["reward"] == 0.5


async def test_half_a_surrogate_pair_is_sent_escaped() -> None:
    async with playing(f"{WORLDS}:Odd") as client:
        assert (await client.reset(index=1))["data"]["observation"]["text"] == "Say \\ud83d."


@pytest.mark.parametrize(
    ("name", "reason"), [("Driven", "AgentEnv"), ("Grouped", "nobody would pay best"), ("Judged", "no model for roles")]
)
async def test_what_the_protocol_cannot_express_is_refused(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        async with serving(f"{WORLDS}:{name}"):
            pass
