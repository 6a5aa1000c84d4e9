"""A server of OpenEnv is played over its own wire; its failures are infrastructure, the model's are told."""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("websockets", reason="websockets is not installed: pip install 'websockets>=15'")

from agentrl_openenv import wire
from agentrl_openenv.actions import action_of, request, shown
from agentrl_openenv.wire import ServerError, Session
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from agentrl.env import StopReason, make_env, play, resolve, testing, text_of
from agentrl.errors import ConfigError

GUESS = {"properties": {"metadata": {"type": "object"}, "guess": {"type": "integer"}}, "required": ["guess"]}
TOOLS = {
    "properties": {"type": {}, "tool_name": {"type": "string"}, "arguments": {"type": "object"}},
    "required": ["tool_name"],
}
TOOL = {
    "name": "guess",
    "description": "Guess.",
    "input_schema": {"type": "object", "properties": {"number": {"type": "integer"}}},
}


@dataclass
class Stub:
    """What a test sets, and what it sees."""

    url: str = ""
    action: dict[str, Any] = field(default_factory=lambda: GUESS)
    capacity: int = 1000
    fault: str = ""
    before: str = ""
    after: str = ""
    begins: str = ""
    rejects: str = ""
    chat: bool = False
    open: int = 0
    most: int = 0

    def describe(self, socket: ServerConnection, request: Request) -> Response | None:
        """Answer the requests of HTTP."""
        pages = {"/health": {"status": "healthy"}, "/metadata": {"description": "Guess a number from 1 to 9."}}
        pages["/schema"] = {"action": self.action, "observation": {}, "state": {}}
        if request.path == "/ws":
            return None
        return socket.respond(HTTPStatus.OK, json.dumps(pages.get(request.path, {})))

    async def session(self, socket: ServerConnection) -> None:
        """Serve one session."""
        if self.open >= self.capacity:
            await socket.send(error("CAPACITY_REACHED", "full"))
            return
        self.open += 1
        self.most = max(self.most, self.open)
        secret = 0
        try:
            if self.before:
                await socket.send(self.before)
            async for text in socket:
                asked = json.loads(text)
                if self.rejects in (asked["type"], asked["data"].get("type", "none")):
                    await socket.send(error("VALIDATION_ERROR", "not so"))
                elif asked["type"] == "reset":
                    secret = random.Random(asked["data"]["seed"]).randint(1, 9)
                    await socket.send(self.begins or observation(self.shown("Begin.")))
                elif self.fault == "hang":
                    await socket.wait_closed()
                elif self.fault == "break":
                    return
                elif self.fault:
                    await socket.send(self.fault)
                else:
                    await socket.send(self.step(asked["data"], secret))
                    if self.after:
                        await socket.send(self.after)
        except ConnectionClosed:
            pass
        finally:
            self.open -= 1

    def shown(self, text: str) -> dict[str, Any]:
        """A text as this server shows it."""
        return {"text": text} | ({"messages": [{"role": "system", "content": text}]} if self.chat else {})

    def step(self, action: dict[str, Any], secret: int) -> str:
        """Answer an action."""
        if action.get("type") == "list_tools":
            return observation({"tools": [TOOL]})
        if "message" in action:
            return observation(self.shown("Done."), float(str(secret) in action["message"]), is_done=True)
        is_call = action.get("type") == "call_tool"
        guess = action["arguments"].get("number") if is_call else action.get("guess")
        if not isinstance(guess, int) or not 1 <= guess <= 9:
            return error("VALIDATION_ERROR", "guess is a number from 1 to 9")
        said = "found" if guess == secret else "higher" if guess < secret else "lower"
        content = {"tool_name": "guess", "result": said, "error": None} if is_call else {"text": said}
        return observation(content, float(guess == secret), guess == secret)


def observation(content: dict[str, Any], reward: float | None = None, is_done: bool = False) -> str:
    return json.dumps({"type": "observation", "data": {"observation": content, "reward": reward, "done": is_done}})


def error(code: str, message: str) -> str:
    return json.dumps({"type": "error", "data": {"code": code, "message": message}})


@pytest.fixture
def stub() -> Iterator[Stub]:
    """A server on a thread and loop of its own."""
    made, ready, loop = Stub(), threading.Event(), asyncio.new_event_loop()
    server: list[Server] = []

    async def start() -> None:
        server.append(await serve(made.session, "127.0.0.1", 0, process_request=made.describe))
        made.url = f"http://127.0.0.1:{server[0].sockets[0].getsockname()[1]}"
        ready.set()

    async def stop() -> None:
        server[0].close()
        await server[0].wait_closed()

    def run() -> None:
        loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(stop())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(20)
    yield made
    loop.call_soon_threadsafe(loop.stop)
    thread.join(20)
    assert not thread.is_alive()


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    testing.close_shared_sync()


def secret(seed: int) -> int:
    return random.Random(seed).randint(1, 9)


def test_a_server_is_played_in_text(stub: Stub) -> None:
    env = make_env(f"openenv:{stub.url}")
    [episode] = play(env, [f"It is {secret(3)}."], split="test", index=1)
    assert episode.reward == 1.0
    assert text_of(episode.messages[0]) == (
        "Guess a number from 1 to 9.\n\nAnswer with the guess only, a number.\n\nBegin."
    )
    assert env.preflight() == f"OpenEnv server at {stub.url}."


@pytest.mark.timeout(240)
def test_checks_miss_only_what_a_server_does_not_have(stub: Stub) -> None:
    command = ["env", "check", f"openenv:{stub.url}", "--env.turns", "4", "--level", "truth", "--json"]
    done = subprocess.run([sys.executable, "-m", "agentrl", *command], capture_output=True, text=True, check=False)
    failed = {check["name"] for check in json.loads(done.stdout)["checks"] if check["status"] == "failed"}
    assert failed == {"oracle", "canaries"}, done.stdout


def test_what_the_server_rejects_is_told_and_costs_what_the_key_says(stub: Stub) -> None:
    env = make_env(f"openenv:{stub.url}", turns=3, unreadable=-0.5)
    trajectory = testing.rehearse(env, ["12", "I do not know", str(1 + secret(0) % 9)])
    assert "guess is a number from 1 to 9" in text_of(trajectory.messages[2])
    assert "no action found" in text_of(trajectory.messages[4])
    assert (trajectory.reward, trajectory.stop_reason) == (-1.0, StopReason.MAX_TURNS)


def test_tools_of_a_server_are_tools_of_the_model(stub: Stub) -> None:
    stub.action = TOOLS
    trajectory = testing.rehearse(
        make_env(f"openenv:{stub.url}"),
        [testing.tool_call("guess", number=40), testing.tool_call("guess", number=secret(1))],
        split="test",
    )
    told = [text_of(message) for message in trajectory.messages if message["role"] == "tool"]
    assert told == ["Invalid: guess is a number from 1 to 9", "found"]
    assert (trajectory.reward, trajectory.stop_reason) == (1.0, StopReason.ENV_DONE)


def test_a_text_is_an_action_beside_tools_if_the_server_has_a_field_for_it(stub: Stub) -> None:
    stub.action = {"properties": TOOLS["properties"] | {"message": {"type": "string"}}}  # type: ignore[operator]
    trajectory = testing.rehearse(
        make_env(f"openenv:{stub.url}"), [testing.tool_call("guess", number=1), f"It is {secret(1)}."], split="test"
    )
    assert (trajectory.reward, trajectory.stop_reason) == (1.0, StopReason.ENV_DONE)


def test_an_observation_with_chat_messages_is_shown_as_they_are(stub: Stub) -> None:
    stub.chat = True
    [episode] = play(make_env(f"openenv:{stub.url}", rules="Be brief."), ["1"], split="test")
    assert [(one["role"], one["content"]) for one in episode.messages[:2]] == [
        ("user", "Be brief."),
        ("system", "Begin."),
    ]


async def test_episodes_wait_for_a_session_of_a_full_server(stub: Stub) -> None:
    stub.capacity = 2
    await testing.check_concurrent(
        lambda: make_env(f"openenv:{stub.url}", turns=2),
        2,
        policies=lambda env, task: [[str(secret(task.data["seed"]))], ["0"]],
    )
    assert stub.most == 2


async def test_the_end_of_a_session_wakes_who_waits_for_one(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.capacity = 1
    monkeypatch.setattr(wire, "FIRST_WAIT_S", 600.0)
    first, _ = await Session.begin([stub.url], {"seed": 1}, timeout_s=20.0, wait_s=1000.0)
    waiting = asyncio.create_task(Session.begin([stub.url], {"seed": 2}, timeout_s=20.0, wait_s=1000.0))
    while not wire.WAITING:  # noqa: ASYNC110 (a deque has no event)
        await asyncio.sleep(0)
    monkeypatch.setattr(wire, "FIRST_WAIT_S", 0.01)  # the server may take a moment to see that the session has ended
    await first.close()
    second, _ = await waiting
    await second.close()
    assert stub.most == 1
    assert not wire.WAITING


def test_a_server_that_stays_full_is_an_infrastructure_failure(stub: Stub) -> None:
    stub.capacity = 0
    trajectory = testing.rehearse(make_env(f"openenv:{stub.url}", wait_s=0.2), ["1"])
    assert trajectory.stop_reason is StopReason.INFRA_ERROR
    assert "no session was free for 0.2 s" in trajectory.error


@pytest.mark.parametrize(
    "fault",
    [
        "hang", "break", "no json", "[]", '{"type": "observation", "data": {}}', error("EXECUTION_ERROR", "it raised"),
        "[" * 100_000, '{"data": {"observation": {}, "reward": 1, "done": true}}',
        '{"type": "state", "data": {"observation": {}, "reward": 1, "done": true}}',
        '{"type": "observation", "data": {"observation": {}, "reward": 1, "done": "false"}}',
        *(f'{{"type": "observation", "data": {{"observation": {{}}, "reward": {reward}, "done": true}}}}'
          for reward in ("9" * 400, "NaN", "1e999")),
    ],
)  # fmt: skip
def test_a_failure_of_the_server_is_never_a_reward_of_0(fault: str, stub: Stub) -> None:
    stub.fault = fault
    trajectory = testing.rehearse(make_env(f"openenv:{stub.url}", timeout_s=1.0), ["1"])
    assert trajectory.stop_reason is StopReason.INFRA_ERROR, trajectory.error
    assert stub.url.removeprefix("http") in trajectory.error


async def test_a_message_that_no_call_asked_for_is_the_answer_of_none(stub: Stub) -> None:
    stub.after = observation({"text": "higher"}, 100.0)
    session, _ = await Session.begin([stub.url], {"seed": 1}, timeout_s=20.0, wait_s=1.0)
    assert (await session.call("step", {"guess": 1})).reward == 0.0
    await (await session._socket.ping())  # the server answers it after both messages
    with pytest.raises(ServerError, match=r"step: the server sent .*100.* unasked"):
        await session.call("step", {"guess": secret(1)})
    await session.close()


async def test_a_server_that_speaks_first_is_not_played(stub: Stub) -> None:
    stub.before = observation({"text": "Welcome."}, 100.0)
    trajectory = await asyncio.to_thread(testing.rehearse, make_env(f"openenv:{stub.url}"), lambda _: "1")
    assert not trajectory.is_valid  # noticed at the latest when the session ends
    assert "unasked" in trajectory.error


@pytest.mark.parametrize("guess", [secret(1), secret(1) % 9 + 1])
def test_an_answer_too_many_at_the_end_makes_the_reward_invalid(guess: int, stub: Stub) -> None:
    stub.after = observation({"text": "found"}, 100.0, is_done=True)
    trajectory = testing.rehearse(make_env(f"openenv:{stub.url}", turns=1), [str(guess)], split="test")
    assert (trajectory.is_valid, trajectory.stop_reason) == (False, StopReason.VERIFIER_ERROR)
    assert "unasked" in trajectory.error


def test_the_reward_of_the_reset_counts(stub: Stub) -> None:
    stub.begins = observation({"text": "Begin."}, 0.5)
    [episode] = play(make_env(f"openenv:{stub.url}"), [str(secret(3))], split="test", index=1)
    assert (episode.reward, episode.stop_reason) == (1.5, StopReason.ENV_DONE)


def test_an_episode_that_is_over_after_its_reset_is_not_played(stub: Stub) -> None:
    stub.begins = observation({"text": "Begin."}, 0.5, is_done=True)
    trajectory = testing.rehearse(make_env(f"openenv:{stub.url}"), ["1"])
    assert trajectory.stop_reason is StopReason.INFRA_ERROR
    assert "over after its reset" in trajectory.error
    assert not trajectory.turns


@pytest.mark.parametrize(
    "answer", ['{"observation": {}, "done": true}', '{"observation": {}, "reward": null, "done": true}']
)
def test_an_episode_without_any_reward_is_not_worth_0(answer: str, stub: Stub) -> None:
    stub.fault = f'{{"type": "observation", "data": {answer}}}'
    trajectory = testing.rehearse(make_env(f"openenv:{stub.url}"), ["1"])
    assert (trajectory.is_valid, trajectory.stop_reason) == (False, StopReason.VERIFIER_ERROR)
    assert "no answer of the server has a reward (steps: 1)" in trajectory.error


def test_an_episode_that_is_cut_off_before_any_reward_has_collected_none(stub: Stub) -> None:
    stub.fault = observation({"text": "Go on."})
    trajectory = testing.rehearse(make_env(f"openenv:{stub.url}", turns=2), ["1", "2"])
    assert (trajectory.is_valid, trajectory.reward, trajectory.stop_reason) == (True, 0.0, StopReason.MAX_TURNS)


def test_an_episode_without_an_action_is_worth_what_its_turns_cost(stub: Stub) -> None:
    trajectory = testing.rehearse(make_env(f"openenv:{stub.url}", turns=2, unreadable=-0.5), ["12", "I do not know"])
    assert (trajectory.reward, trajectory.stop_reason) == (-1.0, StopReason.MAX_TURNS)


@pytest.mark.parametrize("rejected", ["reset", "list_tools"])
def test_a_session_that_cannot_begin_is_never_played(rejected: str, stub: Stub) -> None:
    stub.rejects, stub.action = rejected, TOOLS
    trajectory = testing.rehearse(make_env(f"openenv:{stub.url}"), ["1"])
    assert trajectory.stop_reason is StopReason.INFRA_ERROR, trajectory
    assert "not so" in trajectory.error


async def test_an_answer_that_comes_late_is_not_that_of_the_next_call(stub: Stub) -> None:
    session, _ = await Session.begin([stub.url], {"seed": 1}, timeout_s=20.0, wait_s=1.0)
    late = asyncio.ensure_future(session.call("step", {"guess": secret(1)}))
    await asyncio.sleep(0)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    with pytest.raises(ServerError, match="the session broke"):
        await session.call("step", {"guess": 0})
    await session.close()


async def test_an_episode_cancelled_wherever_it_waits_leaves_no_session(stub: Stub) -> None:
    make = lambda: make_env(f"openenv:{stub.url}", turns=2)  # noqa: E731
    cuts = [
        cut async for cut in testing.cancel_everywhere(make, lambda env, task: ["0", str(secret(task.data["seed"]))])
    ]
    assert len(cuts) > 3
    assert stub.most >= 1


async def test_twins_see_the_same(stub: Stub) -> None:
    await testing.check_twins(
        lambda: make_env(f"openenv:{stub.url}"), lambda env, task: ["0", str(secret(task.data["seed"]))]
    )


def test_what_is_no_server_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"openenv:\./my_env is neither an address nor a folder"):
        resolve("openenv:./my_env")
    with pytest.raises(ConfigError, match=r"openenv:http://127\.0\.0\.1:9 does not answer"):
        make_env("openenv:http://127.0.0.1:9", timeout_s=2.0).preflight()


def schema(*required: str, **fields: dict[str, Any]) -> dict[str, Any]:
    return {"properties": {**fields, "metadata": {}}, "required": list(required)}


TEXT, MOVE = schema("message", message={"type": "string"}), schema("move", move={"enum": ["up", "down"]})
WINDS, DIGITS = schema("wind", wind={"enum": ["east", "northeast"]}), schema("n", n={"enum": [1, 10]})
ANSWERS = schema("answer", answer={"enum": ["да", "нет"]})
SIDES = schema("side", side={"enum": ["北", "南"]})
VALUE, WHOLE = schema("v", v={"type": "number"}), schema("n", n={"type": "integer"})
BOTH = schema("x", "y", x={"type": "integer"}, y={"type": "integer"})


@pytest.mark.parametrize(
    ("form", "text", "action"),
    [
        (TEXT, " Hello. ", {"message": "Hello."}),
        (MOVE, "Not up, but DOWN.", {"move": "down"}),
        (MOVE, "left", None),
        (MOVE, "I give up, downright.", {"move": "up"}),
        (WINDS, "go northeast", {"wind": "northeast"}),
        (WINDS, "eastern", None),
        (SIDES, "向北走", {"side": "北"}),
        (ANSWERS, "Да, но без интернета", {"answer": "да"}),
        (ANSWERS, "нет, никогда", {"answer": "нет"}),
        (VALUE, "(that is 1,234)", {"v": 1234.0}),
        (VALUE, '{"v": 1,234}', {"v": 1234.0}),
        (schema("sign", sign={"enum": ["+", "-"]}), "3+4", {"sign": "+"}),
        (schema("x", x={"enum": [""]}), "", None),
        (DIGITS, "10", {"n": 10}),
        (DIGITS, "100", None),
        (BOTH, 'First {"x": 1} then ```{"x": 2, "y": {"z": 3}}```.', {"x": 2, "y": {"z": 3}}),
        (BOTH, "{x}", None),
        (BOTH, "[1, 2]", None),
        (BOTH, "{" * 5000, None),
        (BOTH, r"\frac{1}{2} " * 500 + '{"x": 1, "y": 2}', {"x": 1, "y": 2}),
        (BOTH, '{"x":' * 20_000, None),
        (VALUE, "about 2.5", {"v": 2.5}),
        (VALUE, "1e-3", {"v": 0.001}),
        (VALUE, "5, or rather -1,200.5.", {"v": -1200.5}),
        (VALUE, "1e999", None),
        (VALUE, "1" + ",000" * 10_000, None),
        (VALUE, "at (120,340)", {"v": 340.0}),
        (VALUE, "about .5", {"v": 0.5}),
        (WHOLE, "9007199254740993", {"n": 9007199254740993}),
        (WHOLE, "", None),
        (WHOLE, "3.5", None),
        (WHOLE, "between 3-4.0", {"n": 4}),
        (WHOLE, "9" * 5000, None),
        (WHOLE, "-" + "0" * 5000 + "12", {"n": -12}),
        (WHOLE, "0" * 5000, {"n": 0}),
        (BOTH, f'{{"x": {"9" * 5000}}}', None),
    ],
)
def test_a_text_becomes_an_action(form: dict[str, Any], text: str, action: dict[str, Any] | None) -> None:
    assert action_of(form, text) == action


def test_the_model_reads_what_to_answer() -> None:
    assert request(MOVE) == "Answer with one of: up, down."
    assert request(BOTH).startswith('Answer with a JSON object: {"x": {')
    assert shown({"grid": [1], "hint": None}) == json.dumps({"grid": [1]})


def test_the_readme_names_keys_that_exist() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    keys = set(re.findall(r"^\| `--env\.(\w+)`", text, re.MULTILINE))
    assert keys == resolve("openenv:http://127.0.0.1:1").Config.model_fields.keys()
