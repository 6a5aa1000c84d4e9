"""A remote engine has every method of an engine and of a transport, and never waits without a deadline."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from typing import Any

import pytest

from agentrl.engine.protocol import Engine
from agentrl.engine.remote import MARGIN_S, TRANSPORT_MARGIN_S, RemoteEngine
from agentrl.engine.wire import Transport
from agentrl.types import Prompt, Sampling


class Process:
    """An actor that records the calls it gets, with their deadlines."""

    name, key = "engine 0", "key"

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def call(self, method: str, *args: Any, deadline_s: float) -> Any:
        self.calls.append((method, *args, deadline_s))
        return method

    async def make(self, *args: Any, deadline_s: float) -> int:
        return 1

    def kill(self) -> None:
        pass


@pytest.mark.parametrize("protocol", [Engine, Transport])
def test_every_method_is_there(protocol: type) -> None:
    methods = {name for name in vars(protocol) if not name.startswith("_")}
    assert methods
    assert methods <= vars(RemoteEngine).keys()


def test_the_methods_without_a_deadline_are_a_named_few() -> None:
    methods = {
        name: method for protocol in (Engine, Transport) for name, method in vars(protocol).items() if name[0] != "_"
    }
    last = {name: [*inspect.signature(method).parameters][-1] for name, method in methods.items()}
    untimed = {name for name, parameter in last.items() if parameter not in ("deadline_s", "timeout_s")}
    assert untimed == {"version", "close", "submit", "cancel"}


async def test_a_call_carries_its_deadline_and_waits_a_little_longer() -> None:
    process = Process()
    engine = RemoteEngine(process)
    await engine.pause(3.0)
    await engine.generate(Prompt((1,)), Sampling(8), deadline_s=5.0)
    await engine.version()
    await engine.collect("worker", 20.0)
    await engine.submit("worker", [])
    await engine.close()
    assert process.calls == [
        ("pause", 3.0, 3.0 + MARGIN_S),
        ("generate", Prompt((1,)), Sampling(8), 5.0, 5.0 + MARGIN_S),
        ("version", MARGIN_S),
        ("collect", "worker", 20.0, 20.0 + TRANSPORT_MARGIN_S),
        ("submit", "worker", [], TRANSPORT_MARGIN_S),
        ("close", MARGIN_S),
    ]


def test_it_can_be_sent_to_workers() -> None:
    engine = pickle.loads(pickle.dumps(RemoteEngine(Process())))
    assert asyncio.run(engine.version()) == "version"
