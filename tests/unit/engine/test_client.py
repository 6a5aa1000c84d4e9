"""The client spreads, batches, withdraws and re-sends requests, and no caller waits for a dead engine."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from agentrl.engine import client as client_module
from agentrl.engine import server as server_module
from agentrl.engine.client import EngineClient
from agentrl.engine.scripted import Delay, Die, Hang, Raise, Sampled, Script, ScriptedEngine, ScriptedTurn
from agentrl.engine.server import EngineServer
from agentrl.engine.wire import Answer, Request
from agentrl.errors import DeadlineError, EngineDiedError, EngineError, EngineRefusedError
from agentrl.types import Prompt, Sampling, Version

PROMPT = Prompt((1, 2, 3))
SAMPLING = Sampling(8, stop_token_ids=(0,))


class Wire:
    """An EngineServer behind a wire: all that crosses is pickled and counted; `cut` is the death of its process."""

    def __init__(self, server: EngineServer) -> None:
        self.server = server
        self.submits: list[int] = []
        self.collects = self.collecting = 0
        self.cancelled: list[int] = []
        self.submitted = asyncio.Event()
        self._cut = asyncio.Event()

    def cut(self) -> None:
        self._cut.set()

    async def submit(self, client: str, requests: Sequence[Request]) -> None:
        self._check()
        self.submits.append(len(requests))
        await self.server.submit(client, pickle.loads(pickle.dumps(requests)))
        self.submitted.set()

    async def collect(self, client: str, timeout_s: float) -> list[Answer]:
        self._check()
        self.collects += 1
        self.collecting += 1
        collecting = asyncio.create_task(self.server.collect(client, timeout_s))
        cutting = asyncio.create_task(self._cut.wait())
        try:
            await asyncio.wait({collecting, cutting}, return_when=asyncio.FIRST_COMPLETED)
            self._check()
            outcomes: list[Answer] = pickle.loads(pickle.dumps(await collecting))
            return outcomes
        finally:
            self.collecting -= 1
            collecting.cancel()
            cutting.cancel()

    async def cancel(self, client: str, numbers: Sequence[int]) -> None:
        self._check()
        self.cancelled.extend(numbers)
        await self.server.cancel(client, numbers)

    def _check(self) -> None:
        if self._cut.is_set():
            raise EngineDiedError("the actor died")


def held(aborted: asyncio.Event) -> Delay:
    """A reply that never comes; `aborted` is set when the engine stops waiting for it."""

    async def until() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            aborted.set()

    return Delay(until, "never")


async def wire_to(script: Script = ("ok",)) -> Wire:
    return Wire(EngineServer(await ScriptedEngine.ready(script)))


Connect = Callable[..., EngineClient]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Makes clients; at the end all is closed, and no task may be left behind."""
    clients: list[EngineClient] = []
    servers: list[EngineServer] = []

    def connect(*wires: Wire, resends: int = 3) -> EngineClient:
        servers.extend(wire.server for wire in wires)
        clients.append(EngineClient(wires, "worker-0", resends))
        return clients[-1]

    yield connect
    for client in clients:
        await client.close()
    for server in servers:
        await server.close()
    for _ in range(3):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_completion_comes_back_as_the_engine_gave_it(connect: Connect) -> None:
    engine = await ScriptedEngine.ready(["same"])
    client = connect(Wire(EngineServer(engine)))
    assert await client.generate(PROMPT, SAMPLING, 5.0) == await engine.generate(PROMPT, SAMPLING, 5.0)
    assert await client.score((1, 2, 3), 5.0) == await engine.score((1, 2, 3), 5.0)


async def test_every_field_of_sampling_reaches_the_engine(connect: Connect) -> None:
    engine = await ScriptedEngine.ready(["one two", Sampled(), Sampled()])
    client = connect(Wire(EngineServer(engine)))
    assert (await client.generate(PROMPT, Sampling(9, 0.5, 3, (7,), (" two",)), 5.0)).ids == tuple(b"one two")
    sampled = await client.generate(PROMPT, Sampling(9, 0.5, 3), 5.0)
    assert sampled == await engine.generate(PROMPT, Sampling(9, 0.5, 3), 5.0)


async def test_the_requests_of_one_tick_are_one_call_and_so_are_their_outcomes(connect: Connect) -> None:
    wire = await wire_to()
    client = connect(wire)
    await asyncio.gather(*(client.generate(PROMPT, SAMPLING, 5.0) for _ in range(1000)))
    assert wire.submits == [1000]
    assert wire.collects <= 3


async def test_requests_go_to_the_engine_with_the_fewest_in_flight(connect: Connect) -> None:
    wires = [await wire_to() for _ in range(3)]
    client = connect(*wires)
    await asyncio.gather(*(client.generate(PROMPT, SAMPLING, 5.0) for _ in range(300)))
    assert [sum(wire.submits) for wire in wires] == [100, 100, 100]


async def test_a_conversation_stays_with_its_engine_though_another_has_less_to_do(connect: Connect) -> None:
    def script(prompt: tuple[int, ...], _: int) -> ScriptedTurn:
        return "ok" if prompt == (1, 2, 3) else Hang()

    home, other = await wire_to(script), await wire_to(script)
    client = connect(home, other)
    await client.generate(PROMPT, SAMPLING, 5.0, key="talk")
    busy = asyncio.create_task(client.generate(Prompt((9,)), SAMPLING, 60.0))
    await asyncio.sleep(0)
    await client.generate(PROMPT, SAMPLING, 5.0, key="talk")
    assert (sum(home.submits), sum(other.submits)) == (3, 0)
    busy.cancel()


async def test_a_pending_request_is_waited_for_not_asked_about(connect: Connect) -> None:
    wire = await wire_to(["ok", Hang()])
    client = connect(wire)
    await client.generate(PROMPT, SAMPLING, 5.0)
    with pytest.raises(DeadlineError):
        await client.generate(PROMPT, SAMPLING, 0.02)
    assert wire.collects <= 4


async def test_a_lost_engine_is_asked_nothing_more(connect: Connect) -> None:
    wire = await wire_to([Hang()])
    client = connect(wire, resends=0)
    call = asyncio.create_task(client.generate(PROMPT, SAMPLING, 60.0))
    await wire.submitted.wait()
    client.lose(0, "its node went down")
    with pytest.raises(EngineDiedError, match="its node went down"):
        await asyncio.wait_for(call, 1.0)
    await asyncio.sleep(0)
    assert wire.collecting == 0


async def test_cancelling_a_call_aborts_the_request_in_the_engine(connect: Connect) -> None:
    aborted = asyncio.Event()
    wire = await wire_to([held(aborted), "next"])
    client = connect(wire)
    call = asyncio.create_task(client.generate(PROMPT, SAMPLING, 60.0))
    await wire.submitted.wait()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.wait_for(aborted.wait(), 1.0)
    assert bytes((await client.generate(PROMPT, SAMPLING, 5.0)).ids[:-1]) == b"next"


async def test_a_call_cancelled_in_its_own_tick_leaves_nothing_in_the_engine(connect: Connect) -> None:
    wire = await wire_to([Hang()])
    client = connect(wire)
    call = asyncio.create_task(client.generate(PROMPT, SAMPLING, 60.0))
    asyncio.get_running_loop().call_soon(call.cancel)
    with pytest.raises(asyncio.CancelledError):
        await call
    await wire.submitted.wait()
    await asyncio.sleep(0)
    assert wire.cancelled == [0]


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (EngineRefusedError("no room"), EngineRefusedError, "^no room$"),
        (DeadlineError("late"), DeadlineError, "^late$"),
        (EngineError("out of blocks"), EngineError, "^out of blocks$"),
        (KeyError("a bug"), EngineError, "KeyError: 'a bug'"),
    ],
)
async def test_an_error_is_raised_at_its_caller_as_what_it_was(
    connect: Connect, error: Exception, kind: type[Exception], message: str
) -> None:
    client = connect(await wire_to([Raise(error), "ok"]))
    with pytest.raises(kind, match=message) as caught:
        await client.generate(PROMPT, SAMPLING, 5.0)
    assert type(caught.value) is kind
    await client.generate(PROMPT, SAMPLING, 5.0)


async def test_a_deadline_ends_the_call_wherever_it_waits(connect: Connect) -> None:
    with pytest.raises(DeadlineError):
        await connect(await wire_to([Hang()])).generate(PROMPT, SAMPLING, 0.02)
    without_engine = connect(await wire_to())
    without_engine.lose(0, "for the test")
    with pytest.raises(DeadlineError, match="0 of 1 engines alive"):
        await without_engine.generate(PROMPT, SAMPLING, 0.02)


async def test_a_dead_process_fails_all_its_callers_at_once(connect: Connect) -> None:
    wire = await wire_to([Hang()])
    client = connect(wire, resends=0)
    calls = [asyncio.create_task(client.generate(PROMPT, SAMPLING, 60.0)) for _ in range(100)]
    await wire.submitted.wait()
    wire.cut()
    done, _ = await asyncio.wait(calls, timeout=1.0)
    assert len(done) == 100
    for call in calls:
        assert isinstance(error := call.exception(), EngineDiedError)
        assert "the actor died" in str(error)


async def test_a_process_found_dead_at_the_next_request_fails_it_at_once(connect: Connect) -> None:
    wire = await wire_to()
    client = connect(wire, resends=0)
    wire.cut()
    with pytest.raises(EngineDiedError):
        await asyncio.wait_for(client.generate(PROMPT, SAMPLING, 60.0), 1.0)


async def test_a_process_that_gives_no_sign_of_life_is_not_waited_for(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "COLLECT_S", 0.01)
    monkeypatch.setattr(client_module, "GRACE_S", 0.01)
    wire = await wire_to()

    async def collect(wire: Wire, client: str, timeout_s: float) -> list[Answer]:
        await asyncio.Event().wait()
        return []

    client = connect(wire, resends=0)
    with monkeypatch.context() as patch:
        patch.setattr(Wire, "collect", collect)
        with pytest.raises(EngineDiedError, match="TimeoutError"):
            await asyncio.wait_for(client.generate(PROMPT, SAMPLING, 60.0), 1.0)
    await client.generate(PROMPT, SAMPLING, 1.0)


async def test_an_engine_that_failed_one_call_is_asked_again(connect: Connect) -> None:
    class Confused(Wire):
        async def submit(self, client: str, requests: Sequence[Request]) -> None:
            await super().submit(client, requests)
            if len(self.submits) == 1:
                raise RuntimeError("a bug of this call")

        async def collect(self, client: str, timeout_s: float) -> list[Answer]:
            try:
                return await super().collect(client, timeout_s)
            finally:
                for _ in range(9):
                    await asyncio.sleep(0)  # a call takes a while to be cancelled

    wire = Confused(EngineServer(await ScriptedEngine.ready([Hang(), "ok"])))
    client = connect(wire)
    assert bytes((await client.generate(PROMPT, SAMPLING, 5.0)).ids[:-1]) == b"ok"
    assert wire.submits == [1, 1]


async def test_requests_of_a_dead_engine_are_sent_again_to_another(connect: Connect) -> None:
    first, second = await wire_to([Hang()]), await wire_to(["from the second"])
    client = connect(first, second)
    calls = [asyncio.create_task(client.generate(PROMPT, Sampling(40), 5.0, key=i)) for i in range(10)]
    await first.submitted.wait()
    first.cut()
    for call in calls:
        assert bytes((await call).ids) == b"from the second"
    assert sum(second.submits) == 10


async def test_an_engine_that_dies_inside_a_living_process_is_left_too(connect: Connect) -> None:
    first, second = await wire_to([Hang(), Die()]), await wire_to(["ok"])
    client = connect(first, second)
    await asyncio.gather(*(client.generate(PROMPT, SAMPLING, 5.0) for _ in range(4)))
    await client.generate(PROMPT, SAMPLING, 5.0)
    assert (sum(first.submits), sum(second.submits)) == (2, 5)


async def test_requests_wait_for_the_restart_when_no_engine_is_left(connect: Connect) -> None:
    wire = await wire_to([Hang()])
    client = connect(wire)
    calls = [asyncio.create_task(client.generate(PROMPT, SAMPLING, 5.0)) for _ in range(3)]
    await wire.submitted.wait()
    wire.cut()
    done, _ = await asyncio.wait(calls, timeout=0.02)
    assert not done
    client.replace(0, await wire_to(["again"]))
    assert [bytes((await call).ids[:-1]) for call in calls] == [b"again"] * 3


async def test_a_request_that_kills_every_engine_is_not_sent_for_ever(connect: Connect) -> None:
    wires = [await wire_to([Die()]) for _ in range(4)]
    client = connect(*wires, resends=2)
    with pytest.raises(EngineDiedError):
        await client.generate(PROMPT, SAMPLING, 5.0)
    assert [sum(wire.submits) for wire in wires] == [1, 1, 1, 0]


async def test_closing_aborts_what_is_in_flight_on_both_sides(connect: Connect) -> None:
    aborted = asyncio.Event()
    wire = await wire_to([held(aborted)])
    client = connect(wire)
    call = asyncio.create_task(client.generate(PROMPT, SAMPLING, 60.0))
    await wire.submitted.wait()
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(EngineDiedError, match="closed"):
        await asyncio.wait_for(call, 1.0)
    await asyncio.wait_for(aborted.wait(), 1.0)
    await client.close()


async def test_an_aborted_request_has_no_outcome() -> None:
    server = EngineServer(await ScriptedEngine.ready([Hang()]))
    await server.submit("client", [(0, "generate", ((1,), 8), 60.0)])
    await asyncio.sleep(0)
    await server.cancel("client", [0])
    assert await server.collect("client", 0.01) == []
    await server.close()


async def test_the_requests_of_a_client_that_fell_silent_are_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    aborted = asyncio.Event()
    monkeypatch.setattr(server_module, "LEASE_S", 0.02)
    server = EngineServer(await ScriptedEngine.ready([held(aborted)]))
    await server.submit("dead", [(0, "generate", ((1,), 8), 60.0)])
    await asyncio.wait_for(aborted.wait(), 1.0)
    await server.close()


async def test_the_server_is_the_engine_to_all_others_and_tells_its_clients_of_the_end() -> None:
    engine = await ScriptedEngine.ready([Hang()])
    server = EngineServer(engine)
    assert await server.version() == Version(0, 0)
    await server.submit("client", [(0, "generate", ((1,), 8), 60.0)])
    await asyncio.sleep(0)
    await server.close()
    [(number, kind, _)] = await server.collect("client", 1.0)
    assert (number, kind) == (0, "EngineDiedError")
    with pytest.raises(EngineDiedError):
        await engine.version()
