"""Environments of verifiers 0.4. `tests/test_verifiers.py` runs this in an interpreter that has it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agentrl.env import Env, EnvDriver, StopReason, close_shared, make_env, testing
from agentrl.env.testing import rehearse
from agentrl.errors import ConfigError, UnknownNameError
from agentrl.types import Trajectory

SLOW_S = 120.0


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    testing.close_shared_sync()


def sums(**options: Any) -> Env:
    return make_env("verifiers:sums-taskset", **options)


def sampled(trajectory: Trajectory) -> list[tuple[str, bytes]]:
    return [(segment.agent, bytes(segment.ids[:-1])) for segment in trajectory.segments if segment.is_action]


def first(env: Env) -> Any:
    """Return the data of the first task."""

    async def read() -> Any:
        try:
            return (await EnvDriver(env).task("train", 0)).data
        finally:
            await close_shared()

    return asyncio.run(read())


def test_an_unmodified_taskset_plays_on_the_endpoint() -> None:
    answer = str(first(sums())["answer"])
    trajectory = rehearse(sums(), [answer], timeout_s=SLOW_S)
    assert (trajectory.reward, trajectory.stop_reason) == (2.0, StopReason.AGENT_DONE), trajectory.error
    assert (len(trajectory.sequences), sampled(trajectory)) == (1, [("agent", answer.encode())])
    assert [(s.name, s.value, s.weight, s.agent) for s in trajectory.signals] == [
        ("right", 1.0, 2.0, "agent"),
        ("length", 1.0, 0.0, "agent"),
    ]
    assert rehearse(sums(), ["x"], timeout_s=SLOW_S).reward == 0.0


def test_an_empty_answer_is_scored_and_not_a_failure() -> None:
    trajectory = rehearse(sums(), [""], timeout_s=SLOW_S)
    assert (trajectory.reward, trajectory.stop_reason, trajectory.is_valid) == (0.0, StopReason.AGENT_DONE, True)


def test_a_conversation_that_outgrows_the_context_is_truncated_and_scored() -> None:
    env = make_env("verifiers:duel-taskset", args={"rounds": 9})
    trajectory = rehearse(env, ["1"] * 9, max_context=150, timeout_s=SLOW_S)
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.CONTEXT_OVERFLOW, True), trajectory.error


def test_a_reward_that_fails_is_invalid_and_never_0() -> None:
    trajectory = rehearse(sums(is_strict=True), ["seven"], timeout_s=SLOW_S)
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.VERIFIER_ERROR, False), trajectory.error
    assert "ValueError" in trajectory.error


def test_a_task_that_fails_is_an_error_of_the_environment() -> None:
    trajectory = rehearse(sums(fault="setup"), ["0"], timeout_s=SLOW_S)
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.ENV_ERROR, False)
    assert "no machine" in trajectory.error


def test_two_seats_have_sequences_and_rewards_of_their_own() -> None:
    trajectory = rehearse(make_env("verifiers:duel-taskset"), ["5", "3", "1", "1"], timeout_s=SLOW_S)
    assert trajectory.stop_reason is StopReason.AGENT_DONE, trajectory.error
    assert sorted(sampled(trajectory)) == [("black", b"1"), ("black", b"3"), ("white", b"1"), ("white", b"5")]
    assert len(trajectory.sequences) == 2
    assert {(s.agent, s.value) for s in trajectory.signals if s.name == "win"} == {("white", 1.0), ("black", -1.0)}
    assert trajectory.is_valid


def test_every_attempt_of_an_agent_has_tokens_and_rewards_of_its_own() -> None:
    env = sums(args={"id": "best-of-n", "n": 3})
    answer = str(first(env)["answer"])
    trajectory = rehearse(env, ["x", answer, "y"], timeout_s=SLOW_S)
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.AGENT_DONE, True), trajectory.error
    assert sampled(trajectory) == [("agent", b"x"), ("agent#2", answer.encode()), ("agent#3", b"y")]
    rights = [(s.agent, s.value) for s in trajectory.signals if s.name == "right"]
    assert rights == [("agent", 0.0), ("agent#2", 1.0), ("agent#3", 0.0)]


@pytest.mark.parametrize("args", [{}, {"id": "best-of-n", "n": 2}])
def test_a_prompt_without_room_is_unanswered(args: dict[str, Any]) -> None:
    trajectory = rehearse(sums(args=args), ["0", "0"], max_context=8, timeout_s=SLOW_S)
    assert (trajectory.stop_reason, trajectory.is_unanswered) == (StopReason.CONTEXT_OVERFLOW, True), trajectory.error


class Opponent(BaseHTTPRequestHandler):
    """Another model, which always says 2."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        message = {"role": "assistant", "content": "2"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = json.dumps({"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]})
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def opponent() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Opponent)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_seat_with_a_model_of_its_own_is_not_trained(opponent: str) -> None:
    client = {"type": "eval", "base_url": opponent, "api_key_var": "NO_KEY"}
    args = {"frozen": "black", "black": {"model": "other", "client": client}}
    trajectory = rehearse(make_env("verifiers:duel-taskset", args=args), ["5", "1"], timeout_s=SLOW_S)
    assert sampled(trajectory) == [("white", b"5"), ("white", b"1")], trajectory.error
    assert (trajectory.reward, trajectory.is_valid) == (1.0, True)
    assert {s.name: (s.value, s.weight) for s in trajectory.signals} == {"win": (1.0, 1.0), "black/win": (-1.0, 0.0)}


def test_a_seat_of_the_policy_that_is_not_trained_is_refused() -> None:
    env = make_env("verifiers:duel-taskset", args={"frozen": "black"})
    trajectory = rehearse(env, ["5", "3", "1", "1"], timeout_s=SLOW_S)
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.ENV_ERROR, False)
    assert "not trainable" in trajectory.error


def test_what_needs_a_container_or_a_program_is_refused_before_a_run() -> None:
    with pytest.raises(ConfigError, match="container"):
        make_env("verifiers:box-taskset").preflight()
    with pytest.raises(ConfigError, match="bash"):
        sums(args={"agent": {"harness": {"id": "bash"}}}).preflight()
    with pytest.raises(ConfigError, match="no endpoint"):
        sums(args={"agent": {"model": "other"}}).preflight()
    with pytest.raises(ConfigError, match="agents"):
        sums(args={"agents": {}}).preflight()
    assert "agent" in sums().preflight()


def test_settings_of_the_taskset_are_keys() -> None:
    assert sums(n=40).config.n == 40
    with pytest.raises(UnknownNameError, match=r"env\.n"):
        sums(m=40)
    with pytest.raises(ConfigError, match="no_such_env is not installed"):
        make_env("verifiers:no-such-env")
    with pytest.raises(ConfigError, match="Taskset"):
        make_env("verifiers:json")


async def test_the_tasks_are_the_same_for_twins_and_the_splits_are_disjoint() -> None:
    await testing.check_tasks(sums)
    await testing.check_tasks(lambda: make_env("verifiers:endless-taskset", size=30))


async def test_episodes_at_once_keep_their_own_tokens() -> None:
    async def one(index: int) -> list[tuple[str, bytes]]:
        trajectory = await asyncio.to_thread(rehearse, sums(), [f"answer {index}"], timeout_s=SLOW_S)
        return sampled(trajectory)

    assert await asyncio.gather(*map(one, range(4))) == [[("agent", f"answer {index}".encode())] for index in range(4)]
