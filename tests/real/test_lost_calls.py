"""A call of a learner rank runs once, though Ray loses it or its answer on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.real
ASK = """
import asyncio, json
import ray
from agentrl.cluster.ray import actors
from agentrl.errors import AgentRLError

class Rank:
    def __init__(self):
        self.calls = []

    def step(self, number):
        self.calls.append(number)
        if number % 5 == 4:
            raise ValueError("no such step")
        return number

    def made(self):
        return self.calls

class Actor:
    sent = 0

    def __init__(self, actor):
        self.actor, self.remote = actor, lambda *words: self._send(*words)

    def __getattr__(self, name):
        return self if name == "call" else getattr(self.actor, name)

    def _send(self, *words):
        Actor.sent += 1
        return self.actor.call.remote(*words)

async def main():
    actors.UNREACHABLE_S = 0.0
    rank = actors.start_actor(actors.ActorSpec("rank", Rank, is_blocking=True))
    is_made = False
    while not is_made:
        try:
            is_made = bool(await rank.make(deadline_s=60.0))
        except AgentRLError as error:
            assert "could not be reached during start" in str(error), error
    rank._actor = Actor(rank._actor)
    said = []
    for number in range(30):
        try:
            said.append(await rank.call("step", number, deadline_s=60.0))
        except AgentRLError as error:
            assert "ValueError: no such step" in str(error), error
            said.append(None)
    print(json.dumps([said, Actor.sent, await rank.call("made", deadline_s=60.0)]))

ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
asyncio.run(main())
ray.shutdown()
"""
FAILURES = {"num_failures": 30, "req_failure_prob": 25, "resp_failure_prob": 25, "in_flight_failure_prob": 25}


def test_a_call_runs_once_though_it_or_its_answer_is_lost() -> None:
    lost = {"RAY_testing_rpc_failure": json.dumps({"CoreWorkerService.grpc_client.PushTask": FAILURES})}
    words = [sys.executable, "-c", ASK]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=os.environ | lost, check=False)
    assert done.returncode == 0, done.stderr
    said, sent, made = json.loads(done.stdout.splitlines()[-1])
    assert said == [None if number % 5 == 4 else number for number in range(30)]
    assert made == [*range(30)]
    assert sent > len(made), "none was lost"
