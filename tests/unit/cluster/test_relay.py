"""Buckets reach each other host once, are freed there, and a host that cannot be reached fails its own engines only."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from agentrl.cluster import relay
from agentrl.cluster.ray.actors import ActorSpec
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.relay import HostAgents, HostRelay
from agentrl.engine.protocol import Engine
from agentrl.errors import AgentRLError, DeadlineError, LearnerError, WeightsError
from agentrl.types import Version
from agentrl.weights import host_files, staging
from agentrl.weights.delivery import Delivery
from agentrl.weights.host_files import HostFiles
from agentrl.weights.staging import StagedBucket, stage, stage_adapter
from agentrl.weights.transfer import StagedTransfer

VERSION = Version(0, 1)
COUNT = 4
LEARNER, ONE, TWO = "10.0.0.1", "10.0.0.2", "10.0.0.3"
WEIGHTS = {f"{number}": torch.full((8,), float(number)) for number in range(COUNT)}


class Agent:
    """The process of a HostFiles. As in Ray, an argument that is a failed reference fails the call it is given to."""

    def __init__(self, host: str, files: HostFiles, calls: Counter[tuple[str, str]]) -> None:
        self._host, self._files, self._calls = host, files, calls
        self.is_dead = self.is_stuck = self.is_killed = False
        self.dies_of = ""
        self.gate = asyncio.Event()
        self.gate.set()

    async def make(self, deadline_s: float) -> str:
        return self._host

    def kill(self) -> None:
        self.is_killed = True

    async def call(self, method: str, *args: Any, deadline_s: float) -> Any:
        if self.is_stuck:
            await asyncio.wait([asyncio.Future()], timeout=deadline_s)
            raise DeadlineError(f"files of {self._host}: {method} took longer than {deadline_s:g} s")
        if method == "write":
            await self.gate.wait()
        values = []
        for value in args:
            try:
                values.append(await value if asyncio.isfuture(value) else value)
            except (AgentRLError, OSError) as error:
                raise AgentRLError(f"files of {self._host}: {method} raised {error}") from error
        self.is_dead |= method == self.dies_of
        if self.is_dead:
            raise WeightsError(f"files of {self._host}: its process died during {method}")
        self._calls[method, self._host] += 1
        result = getattr(self._files, method)(*values)
        return await result if asyncio.iscoroutine(result) else result

    def begin(self, method: str, *args: Any) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(self.call(method, *args, deadline_s=1.0))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task


class Hosts:
    """A learner's host and others: the processes that the relay starts there, and their folders for buckets."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.staged = folder, folder / LEARNER
        self.agents: dict[str, Agent] = {}
        self.calls: Counter[tuple[str, str]] = Counter()
        self.started: Counter[str] = Counter()
        self.nodes = {host: f"node of {host}" for host in (LEARNER, ONE, TWO)}
        self.deadline_s = 4.0
        self.deaths: dict[str, str] = {}  # what a process dies of that is started there
        self.is_one_folder = False  # else each host has its own, in place of its shared memory
        self.relay = HostRelay(HostAgents(cast(Cluster, self), folder), lambda: LEARNER)
        self.staged.mkdir()

    def spawn(self, spec: ActorSpec) -> Agent:
        host = spec.place.nodes.removeprefix("node:")
        assert spec.args == (self.folder, host)
        (self.folder / host).mkdir(exist_ok=True)
        files = HostFiles(self.folder if self.is_one_folder else self.folder / host, host)
        self.agents[host] = Agent(host, files, self.calls)
        self.started[host] += 1
        self.agents[host].dies_of = self.deaths.get(host, "")
        return self.agents[host]

    async def node_ids(self, deadline_s: float) -> dict[str, str]:
        return self.nodes

    def register(self, process: str) -> None:
        assert process in self.agents

    async def stage(self, version: Version, deadline_s: float) -> AsyncGenerator[StagedBucket]:
        for bucket in stage(WEIGHTS.items(), self.staged, 64):
            yield bucket

    @asynccontextmanager
    async def publication(self, *hosts: str) -> AsyncIterator[Delivery]:
        engines = cast(Sequence[Engine], [SimpleNamespace(host=host) for host in hosts])
        async with StagedTransfer(self.stage, self.relay).opened(engines, VERSION, self.deadline_s) as delivery:
            yield delivery

    async def publish(self, *hosts: str) -> list[Any]:
        """The weights that an engine on each of these hosts loads, or why it does not."""

        async def loaded(reader: int) -> dict[str, torch.Tensor]:
            found = {}
            try:
                while bucket := await delivery.next(reader):
                    assert self.is_one_folder or Path(bucket["path"]).parent.name == hosts[reader], "the file is there"
                    [tensor] = bucket["tensors"]
                    found[tensor["name"]] = torch.from_numpy(np.fromfile(bucket["path"], np.float32)[:8])
            finally:
                delivery.leave(reader)
            return found

        async with self.publication(*hosts) as delivery:
            results = await asyncio.gather(*map(loaded, range(len(hosts))), return_exceptions=True)
        await settle()
        return results

    @property
    def unshared(self) -> list[Path]:
        """The files that stay when the next publication begins."""
        self.relay._shared.clear()
        return self.files

    @property
    def files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def arrived(result: Any) -> bool:
    return isinstance(result, dict) and all(torch.equal(result[name], tensor) for name, tensor in WEIGHTS.items())


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    monkeypatch.setattr(staging, "_SHARED_MEMORY", tmp_path / "none")
    monkeypatch.setattr(host_files, "shared_memory_takes", lambda _: True)
    monkeypatch.setattr(relay, "node_address", lambda: LEARNER)
    return Hosts(tmp_path)


async def test_a_bucket_is_read_once_and_written_once_for_each_other_host(hosts: Hosts) -> None:
    results = await hosts.publish(ONE, ONE, TWO, LEARNER)
    assert all(map(arrived, results))
    assert {call: count for call, count in hosts.calls.items() if call[0] in {"read", "write"}} == {
        ("read", LEARNER): COUNT,
        ("write", ONE): COUNT,
        ("write", TWO): COUNT,
    }
    assert hosts.started == {LEARNER: 1, ONE: 1, TWO: 1}
    assert hosts.files == []


async def test_a_host_that_left_and_came_back_gets_a_new_process(hosts: Hosts) -> None:
    assert all(map(arrived, await hosts.publish(ONE, TWO)))
    hosts.nodes[ONE], hosts.agents[ONE].is_dead = "another node", True
    assert all(map(arrived, await hosts.publish(ONE, TWO)))
    assert hosts.started == {LEARNER: 1, ONE: 2, TWO: 1}


async def test_on_one_host_nothing_is_copied(hosts: Hosts) -> None:
    assert all(map(arrived, await hosts.publish(LEARNER, LEARNER)))
    assert not hosts.started
    assert hosts.files == []


@pytest.mark.parametrize("engine", [ONE, LEARNER])
async def test_a_learner_on_another_host_than_the_driver_has_its_files_removed_there(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setattr(relay, "node_address", lambda: ONE)
    monkeypatch.setattr(StagedBucket, "discard", lambda _: pytest.fail("removed on the driver's host"))
    await hosts.relay._agents.agent(LEARNER)
    assert all(map(arrived, await hosts.publish(engine)))
    assert hosts.calls["discard", LEARNER] == COUNT
    assert hosts.files == []


async def test_a_bucket_is_freed_on_every_host_once_all_engines_have_loaded_it(hosts: Hosts) -> None:
    async with hosts.publication(ONE, TWO) as delivery:
        fast, slow = [await delivery.next(reader) for reader in (0, 1)]
        assert fast
        assert slow
        paths = {Path(fast["path"]), Path(slow["path"])}
        await delivery.next(0)
        await settle()
        assert paths <= {*hosts.files}, "the engine of the other host still loads it"
        await delivery.next(1)
        await settle()
        assert not paths & {*hosts.files}
    await settle()
    assert hosts.files == []


async def test_a_bucket_that_is_written_after_it_was_given_up_leaves_nothing(hosts: Hosts) -> None:
    """Ray may run a later call first, while the bytes of an earlier one are on their way."""
    files = HostFiles(hosts.folder, ONE)
    files.discard("late")
    files.write("late", {"": np.zeros(8, np.uint8)})
    files.write("also", {"": np.zeros(8, np.uint8)})
    assert [path.name.partition("-")[0] for path in hosts.files] == ["also"]


async def test_a_host_forgets_the_names_of_buckets_that_are_gone(hosts: Hosts) -> None:
    for _ in range(2):
        await hosts.publish(ONE, TWO)
    await settle()
    for agent in hosts.agents.values():
        assert not agent._files._discarded | agent._files._written
    files = HostFiles(hosts.folder, ONE)
    files.discard("late")
    files.write("late", {"": np.zeros(8, np.uint8)})
    assert not files._discarded | files._written


async def test_a_publication_that_ends_while_a_host_still_writes_leaves_nothing(hosts: Hosts) -> None:
    await hosts.publish(ONE)
    agent = hosts.agents[ONE]
    agent.gate.clear()
    async with hosts.publication(ONE) as delivery:
        waiting = asyncio.create_task(delivery.next(0))
        await settle()
        waiting.cancel()
    agent.gate.set()
    await settle()
    assert hosts.calls["write", ONE] == COUNT, "those of the first publication"
    assert hosts.files == []


@pytest.mark.parametrize("lost", [ONE, TWO])
async def test_a_host_whose_process_died_fails_its_own_engines_and_gets_another_process(
    hosts: Hosts, lost: str
) -> None:
    await hosts.publish(ONE, TWO)
    hosts.agents[lost].is_dead = True
    results = dict(zip((ONE, TWO, LEARNER), await hosts.publish(ONE, TWO, LEARNER), strict=True))
    assert [host for host, result in results.items() if not arrived(result)] == [lost]
    assert str(results[lost]) == f"files of {lost}: its process died during has_room"
    assert all(map(arrived, await hosts.publish(ONE, TWO)))
    assert hosts.started[lost] == 2
    assert hosts.files == []


@pytest.mark.parametrize("dies_of", ["has_room", "read"])
async def test_a_process_that_dies_on_the_learners_host_costs_no_engine(hosts: Hosts, dies_of: str) -> None:
    hosts.is_one_folder = True
    await hosts.publish(ONE, TWO)
    hosts.agents[LEARNER].dies_of = dies_of
    assert all(map(arrived, await hosts.publish(ONE, TWO, LEARNER)))
    assert all(map(arrived, await hosts.publish(ONE, TWO, LEARNER)))
    assert hosts.started == {LEARNER: 2, ONE: 1, TWO: 1}
    assert hosts.calls["read", LEARNER] == (COUNT if dies_of == "read" else 3 * COUNT - 1), (
        "no store where one died of it"
    )
    assert hosts.unshared == []


async def test_a_learners_host_whose_processes_die_ends_the_run_and_is_named(hosts: Hosts) -> None:
    hosts.is_one_folder, hosts.deaths = True, {LEARNER: "share"}
    await hosts.publish(ONE)
    hosts.agents[LEARNER].dies_of = "read"
    there, local = await hosts.publish(ONE, LEARNER)
    assert isinstance(there, LearnerError)
    assert str(there).startswith(f"the weights cannot leave the host {LEARNER}: files of {LEARNER}: its process died")
    assert arrived(local)
    assert hosts.started[ONE] == 1


@pytest.mark.parametrize("full", [{LEARNER}, {ONE}, {LEARNER, ONE}])
async def test_weights_go_through_the_folder_that_all_hosts_see_where_the_object_store_has_no_room(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, full: set[str]
) -> None:
    monkeypatch.setattr(HostFiles, "has_room", lambda self, _: self._host not in full)
    hosts.is_one_folder = True
    assert all(map(arrived, await hosts.publish(ONE, ONE, TWO)))
    assert [hosts.calls["write", host] for host in (ONE, TWO)] == ([0, COUNT] if full == {ONE} else [0, 0])
    assert hosts.calls["share", LEARNER] == COUNT, "once for all hosts"
    assert len(hosts.files) == COUNT, "engines may still read them"
    assert all(map(arrived, await hosts.publish(ONE)))
    assert len(hosts.files) == COUNT
    assert hosts.unshared == []


async def test_what_is_staged_in_the_folder_that_all_hosts_see_stays_there(hosts: Hosts) -> None:
    hosts.staged, hosts.is_one_folder = hosts.folder, True
    assert all(map(arrived, await hosts.publish(ONE, TWO, LEARNER)))
    assert hosts.started == {LEARNER: 1}
    assert hosts.calls == {("share", LEARNER): COUNT}
    assert len(hosts.files) == COUNT
    assert hosts.unshared == []


async def test_a_folder_that_all_hosts_see_and_that_is_full_is_named_and_ends_the_run(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(_files: HostFiles, _path: Path, copy: Path) -> None:
        raise AgentRLError(f"files of {LEARNER}: share raised OSError: no space left: {copy}")

    monkeypatch.setattr(HostFiles, "has_room", lambda *_: False)
    monkeypatch.setattr(HostFiles, "share", full)
    [error] = await hosts.publish(ONE)
    assert isinstance(error, LearnerError)
    assert "no space left" in str(error)


async def test_a_late_failure_of_a_process_that_died_leaves_the_next_one_alone(hosts: Hosts) -> None:
    agents = hosts.relay._agents
    await agents.call(ONE, "check", deadline_s=1.0)
    dead = hosts.agents[ONE]
    dead.gate.clear()
    late = asyncio.create_task(agents.call(ONE, "write", "bucket", {}, deadline_s=1.0))
    await settle()
    dead.is_dead = True
    with pytest.raises(WeightsError):
        await agents.call(ONE, "check", deadline_s=1.0)
    await agents.call(ONE, "check", deadline_s=1.0)
    dead.gate.set()
    with pytest.raises(WeightsError):
        await late
    await agents.call(ONE, "check", deadline_s=1.0)
    assert hosts.started[ONE] == 2


async def test_a_host_that_stalls_fails_its_own_engines_for_one_reason_and_gets_another_process(hosts: Hosts) -> None:
    await hosts.publish(ONE, TWO)
    stuck = hosts.agents[TWO]
    stuck.is_stuck, hosts.deadline_s = True, 2.0
    one, *two = await hosts.publish(ONE, TWO, TWO)
    assert arrived(one)
    assert [type(error) for error in two] == [WeightsError] * 2
    assert str(two[0]).startswith(f"{TWO}: the weights did not get there while the engines of other hosts waited")
    assert two[0] is two[1], "one cause, for which the engines are replaced together"
    assert all(map(arrived, await hosts.publish(ONE, TWO)))
    assert stuck.is_killed
    assert (hosts.started[ONE], hosts.started[TWO]) == (1, 2)
    assert hosts.files == []


async def test_a_reader_that_is_cancelled_while_its_copy_is_on_its_way_leaves_the_copy_to_others(hosts: Hosts) -> None:
    await hosts.publish(ONE)
    hosts.agents[ONE].gate.clear()
    async with hosts.publication(ONE, ONE) as delivery:
        cancelled, other = [asyncio.create_task(delivery.next(reader)) for reader in (0, 1)]
        await settle()
        cancelled.cancel()
        await asyncio.wait({cancelled})
        assert cancelled.cancelled()
        hosts.agents[ONE].gate.set()
        assert await other


@pytest.mark.parametrize("gives_up", [False, True])
async def test_a_process_that_does_not_answer_is_ended_and_replaced_by_the_next_call(
    hosts: Hosts, gives_up: bool
) -> None:
    agents = hosts.relay._agents
    await agents.call(ONE, "check", deadline_s=1.0)
    stuck = hosts.agents[ONE]
    stuck.is_stuck = True
    call = asyncio.create_task(agents.call(ONE, "check", deadline_s=60.0 if gives_up else 0.01))
    await settle()
    if gives_up:
        call.cancel()
    with pytest.raises(asyncio.CancelledError if gives_up else DeadlineError):
        await call
    assert (stuck.is_killed, hosts.started[ONE]) == (False, 1), "it may still remove files"
    await agents.call(ONE, "check", deadline_s=1.0)
    assert (stuck.is_killed, hosts.started[ONE]) == (True, 2)
    await agents.call(ONE, "check", deadline_s=1.0)
    assert hosts.started[ONE] == 2


async def test_a_learners_host_that_stalls_gets_another_process(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    await hosts.publish(ONE)
    monkeypatch.setattr(relay, "ANSWER_S", 0.01)
    stuck = hosts.agents[LEARNER]
    stuck.is_stuck, hosts.deadline_s = True, 2.0
    there, local = await hosts.publish(ONE, LEARNER)
    assert isinstance(there, WeightsError)
    assert arrived(local)
    await asyncio.gather(*hosts.relay._agents._checks, return_exceptions=True)
    assert all(map(arrived, await hosts.publish(ONE)))
    assert stuck.is_killed
    assert hosts.files == []


async def test_a_process_that_does_not_start_is_tried_again(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_agent: Agent, deadline_s: float) -> str:
        raise WeightsError("no room")

    with monkeypatch.context() as broken:
        broken.setattr(Agent, "make", fails)
        [error] = await hosts.publish(ONE)
        assert isinstance(error, WeightsError)
    assert all(map(arrived, await hosts.publish(ONE)))
    assert hosts.files == []


# --- the files of one host ----------------------------------------------------------------------------------------


def test_what_shared_memory_cannot_take_is_in_the_fallback_under_a_name_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, run = tmp_path / "shm", tmp_path / "run"
    memory.mkdir()
    run.mkdir()
    monkeypatch.setattr(staging, "_SHARED_MEMORY", memory)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=17 << 20))
    small, large = {"": np.ones(100, np.uint8)}, {"": np.ones(1 << 20, np.uint8)}
    (run / "bucket").write_text("staged by the learner, in the folder that all hosts see")
    files = [HostFiles(run, host) for host in (ONE, TWO)]
    assert files[0].write("small", small).parent == memory
    paths = [each.write("bucket", large) for each in files]
    assert [path.parent for path in paths] == [run, run]
    assert len({*paths, run / "bucket"}) == 3, "hosts do not write over each other, nor over the learner"
    files[0].discard("small")
    assert list(memory.iterdir()) == []
    for each in files:
        each.discard("bucket")
    assert list(run.iterdir()) == []


def test_a_host_that_cannot_write_a_bucket_removes_its_own_part_of_it_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_SHARED_MEMORY", tmp_path / "none")
    (tmp_path / "bucket").write_text("staged by the learner")

    class Full(np.ndarray):
        def tofile(self, path: Any, *_: Any) -> None:
            Path(path).write_bytes(b"half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        HostFiles(tmp_path, ONE).write("bucket", {"": np.ones(8, np.uint8).view(Full)})
    assert [path.name for path in tmp_path.iterdir()] == ["bucket"]


def test_the_folder_of_an_adapter_is_copied_file_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_SHARED_MEMORY", tmp_path / "none")

    def write(folder: Path) -> None:
        (folder / "adapter_config.json").write_text("{}")
        (folder / "adapter_model.safetensors").write_bytes(b"weights")

    bucket = stage_adapter([("a", torch.ones(2))], tmp_path, write)
    files = HostFiles(tmp_path, ONE)
    copy = files.write(bucket.path.name, files.read(bucket.path))
    assert bucket.moved(copy) == {"adapter": str(copy)}
    assert copy != bucket.path
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == {
        path.name: path.read_bytes() for path in bucket.path.iterdir()
    }
    files.discard(bucket.path.name)
    assert list(tmp_path.iterdir()) == []
