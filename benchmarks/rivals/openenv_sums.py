"""The two-turn tool task of benchmarks/agents.py over OpenEnv 0.10: its client, and its server in a child process.

    PYTHON benchmarks/rivals/openenv_sums.py EPISODES

For each line that it reads it plays the episodes at once, each in a session of its own, and prints the CPU
milliseconds of a turn, of the client and of the server. There is no model: an action is made by hand, and nothing is
tokenized or recorded. It needs no agentrl.
"""

# ruff: noqa: ARG002 (the methods that the library calls ignore arguments)
# mypy: ignore-errors
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from openenv.core.generic_client import GenericEnvClient

QUESTION, ANSWER = "What is 17 + 25? Use the tool.", "42"
TURNS, MOST, DEADLINE_S = 2, 4096, 600.0
CALL = {"call": {"a": 17, "b": 25}}


class Said(Action):
    """A call of the tool, or an answer."""

    call: dict[str, int] | None = None
    answer: str = ""


class Told(Observation):
    """An observation."""

    text: str = ""


class Sums(Environment):
    """The task, whose reward is 1 for the right answer."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._state = State(step_count=0)

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._state = State(episode_id=episode_id, step_count=0)
        return Told(text=QUESTION)

    def step(self, action, timeout_s=None, **kwargs):
        self._state.step_count += 1
        if action.call is not None:
            return Told(text=str(sum(action.call.values())))
        return Told(done=True, reward=float(ANSWER in action.answer))

    @property
    def state(self):
        return self._state


def app():
    """Return the server."""
    return create_fastapi_app(Sums, Said, Told, max_concurrent_envs=MOST)


async def play(url: str) -> float:
    """Play one episode; return its reward."""
    async with GenericEnvClient(base_url=url) as env:
        await env.reset()
        result = await env.step(CALL)
        result = await env.step({"answer": f"It is {result.observation['text']}."})
        assert result.done
        return float(result.reward)


def of_server_s(pid: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def ready(port: int, server: subprocess.Popen) -> None:
    """Wait until the server listens."""
    ends_at = time.monotonic() + DEADLINE_S
    while time.monotonic() < ends_at and server.poll() is None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.2)
        else:
            writer.close()
            return
    raise SystemExit("the server of OpenEnv did not start")


async def rounds(port: int, server: subprocess.Popen, episodes: int) -> None:
    """Play the episodes for each line of stdin."""
    await ready(port, server)
    while await asyncio.to_thread(sys.stdin.readline):
        mine, theirs = time.process_time(), of_server_s(server.pid)
        rewards = await asyncio.gather(*(play(f"http://127.0.0.1:{port}") for _ in range(episodes)))
        assert rewards == [1.0] * episodes, rewards
        each = 1e3 / (TURNS * episodes)
        client, served = each * (time.process_time() - mine), each * (of_server_s(server.pid) - theirs)
        print(json.dumps({"ms": client + served, "client_ms": client}), flush=True)


def main(episodes: int) -> None:
    """Serve in a child, play here."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    where = ["--factory", "openenv_sums:app", "--host", "127.0.0.1", "--port", str(port)]
    command = [sys.executable, "-m", "uvicorn", *where, "--log-level", "error"]
    with subprocess.Popen(command, cwd=Path(__file__).parent) as server:
        try:
            asyncio.run(rounds(port, server, episodes))
        finally:
            server.terminate()


if __name__ == "__main__":
    main(int(sys.argv[1]))
