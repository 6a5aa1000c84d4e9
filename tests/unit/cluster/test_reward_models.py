"""Every finished episode gets the signals of the run's reward models, and a served model that dies is replaced."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from agentrl.cluster import reward_models as module
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.reward_models import RewardModels, ServedModel
from agentrl.cluster.signals import Stop
from agentrl.config.schema import Config
from agentrl.errors import RunError
from agentrl.records.folder import RunFolder
from agentrl.records.restarts import Restarts, read_restarts
from agentrl.reward_models import RewardModel
from agentrl.roles import RoleReply
from agentrl.types import SampleId, Segment, Signal, StopReason, TokenSequence, Trajectory
from tests.tiny import tiny_model, tiny_reward_model, tiny_tokenizer
from tests.unit.cluster.test_engines import Process, Processes
from tests.unit.reward_models.lengths import Lengths, serving
from tests.unit.reward_models.test_client import TURNS, answering, silent
from tests.unit.reward_models.test_judge import said


def episode(**changes: Any) -> Trajectory:
    tokens = tiny_tokenizer()
    prompt, answer = (tuple(tokens(text)["input_ids"]) for text in ("question", " answer"))
    sequence = TokenSequence((Segment(prompt, False), Segment(answer, True, (-1.0,) * len(answer))))
    found = Trajectory(
        SampleId(0, 0), 0, "train", 0, "t", (sequence,), tuple(TURNS), (Signal("own", 1.0),), StopReason.ENV_DONE,
        turns=2,
    )  # fmt: skip
    return replace(found, **changes)


class LocalProcess(Process):
    """A process whose server scores by length, and which can be killed."""

    def __init__(self, spec: Any, *, hangs: bool) -> None:
        super().__init__(spec)
        self.scorer = Lengths()
        if not hangs:
            self.scorer.gate.set()

    async def make(self, *args: Any, deadline_s: float) -> int:
        self.made_with = args
        self.object = ServedModel(self.scorer, *self.spec.args[1:])
        return 1

    async def call(self, method: str, *args: Any, deadline_s: float) -> Any:
        if self.is_killed:
            raise RunError("its process died")
        return await getattr(self.object, method)(*args)

    async def die(self) -> None:
        await self.object.close()
        self.is_killed = True


class LocalProcesses(Processes):
    """Such processes, the first of which hang."""

    is_local = True

    def __init__(self, hanging: int) -> None:
        super().__init__()
        self._hanging = hanging

    def spawn(self, spec: Any) -> Process:
        self.spawned.append(LocalProcess(spec, hangs=len(self.spawned) < self._hanging))
        return self.spawned[-1]


async def nobody(judge: str, question: str) -> RoleReply:
    raise AssertionError(f"no engine judges as {judge}")


@asynccontextmanager
async def opened(
    folder: Path,
    *models: dict[str, object],
    restarts: int = 5,
    timeout_s: float = 20.0,
    hanging: int = 0,
    devices: Callable[[str], Awaitable[list[str]]] | None = None,
) -> AsyncIterator[tuple[RewardModels, LocalProcesses, Stop]]:
    reward = {"models": models, "score_timeout_s": timeout_s, "placement": "colocate" if devices else "separate"}
    sections = {"reward": reward, "engine": {"restarts": restarts, "count": 1}, "learner": {"ranks": 1}}
    sections |= {"device": "cuda" if devices else "cpu"}
    processes, stop = LocalProcesses(hanging), Stop()
    records = Restarts(RunFolder(folder), restarts, lambda _: None)
    config = Config.model_validate(sections)
    reward_models = RewardModels(cast(Cluster, processes), config, folder, records, stop, nobody, devices)
    await reward_models.start()
    try:
        yield reward_models, processes, stop
    finally:
        for process in processes.spawned:
            cast(LocalProcess, process).scorer.gate.set()
        await reward_models.close()
        records.close()


async def test_several_models_add_weighted_signals_for_the_episode_and_for_each_turn(tmp_path: Path) -> None:
    async with serving() as client, AsyncExitStack() as stack:
        url = str(client.base_url)
        turns = {"name": "steps", "url": url, "scope": "turn", "weight": 0.1}
        whole = {"name": "whole", "url": url, "weight": 0.5}
        models, _, _ = await stack.enter_async_context(opened(tmp_path, whole, turns))
        scored = await models.rewarded(episode())
    assert [(s.name, s.value, s.weight, s.scope, s.turn) for s in scored.signals] == [
        ("own", 1.0, 1.0, "episode", None),
        ("whole", 5.0, 0.5, "episode", None),
        ("steps", 3.0, 0.1, "turn", 0),
        ("steps", 5.0, 0.1, "turn", 1),
    ]
    assert scored.reward == pytest.approx(1.0 + 2.5 + 0.3 + 0.5)
    assert scored.is_valid


async def test_a_server_in_the_form_of_openrlhf_reads_the_text_of_the_tokens(tmp_path: Path) -> None:
    tiny_model(tmp_path)
    async with answering((200, b'{"rewards": [2.5]}')) as (url, asked), AsyncExitStack() as stack:
        models, _, _ = await stack.enter_async_context(opened(tmp_path, {"name": "rm", "url": f"{url}/get_reward"}))
        scored = await models.rewarded(episode())
    assert scored.signals[1].value == 2.5
    assert asked == [b'{"query":["question answer"],"prompts":["question"],"labels":[""]}']


async def test_a_judge_reads_the_messages(tmp_path: Path) -> None:
    async with answering(said("Score: 9")) as (url, asked), AsyncExitStack() as stack:
        judge = {"name": "honest", "url": url, "judge": "qwen", "prompt": "{conversation}", "weight": 0.1}
        models, _, _ = await stack.enter_async_context(opened(tmp_path, judge))
        scored = await models.rewarded(episode())
    assert [(s.name, s.value, s.weight) for s in scored.signals[1:]] == [("honest", 9.0, 0.1)]
    assert b"[assistant]\\nseven" in asked[0]


async def test_a_failed_model_makes_the_sample_invalid_unless_it_has_no_weight(tmp_path: Path) -> None:
    async with answering((500, b"out of memory")) as (url, _):
        for weight, is_valid in ((1.0, False), (0.0, True)):
            async with opened(tmp_path, {"name": "rm", "url": url, "weight": weight}) as (models, _, _):
                scored = await models.rewarded(episode())
            assert scored.is_valid is is_valid
            assert scored.signals[1].value is None
            assert (scored.stop_reason is StopReason.VERIFIER_ERROR) is not is_valid
            assert ("out of memory" in scored.error) is not is_valid


@pytest.mark.parametrize(("scope", "turns"), [("episode", [None]), ("turn", [0, 1])])
async def test_an_error_of_a_client_makes_the_sample_invalid_and_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str, turns: list[int | None]
) -> None:
    async def fails(self: RewardModel, given: object) -> Signal:
        raise ZeroDivisionError("first\nsecond")

    monkeypatch.setattr(RewardModel, "score", fails)
    async with opened(tmp_path, {"name": "rm", "url": "http://127.0.0.1:9", "scope": scope}) as (models, _, _):
        scored = await models.rewarded(episode())
    assert scored.stop_reason is StopReason.VERIFIER_ERROR
    assert [(s.reason, s.value, s.turn) for s in scored.signals[1:]] == [
        ("ZeroDivisionError: first", None, turn) for turn in turns
    ]


async def test_a_cancellation_of_scoring_stays_one(tmp_path: Path) -> None:
    async with silent() as (url, heard), opened(tmp_path, {"name": "rm", "url": url}) as (models, _, _):
        scoring = asyncio.create_task(models.rewarded(episode()))
        await heard.get()
        scoring.cancel()
        await asyncio.wait({scoring})
    assert scoring.cancelled()


@pytest.mark.parametrize(
    "changes",
    [
        {"stop_reason": StopReason.ENV_ERROR, "signals": ()},
        {"stop_reason": StopReason.DEADLINE, "signals": ()},
        {"sequences": ()},
    ],
)
async def test_an_episode_that_counts_for_nothing_is_not_scored(tmp_path: Path, changes: dict[str, Any]) -> None:
    async with opened(tmp_path, {"name": "rm", "url": "http://127.0.0.1:9"}) as (models, _, _):
        given = episode(**changes)
        assert await models.rewarded(given) is given


async def test_an_environment_without_rewards_of_its_own_is_scored_by_the_models(tmp_path: Path) -> None:
    async with serving() as client, opened(tmp_path, {"name": "rm", "url": str(client.base_url)}) as (models, _, _):
        assert (await models.rewarded(episode(signals=()))).is_valid


async def test_a_served_model_that_dies_is_replaced_and_its_requests_are_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.01)
    async with opened(tmp_path, {"name": "rm", "model": "./rm"}) as (models, processes, stop):
        first = cast(LocalProcess, processes.spawned[0])
        assert (await models.rewarded(episode())).signals[1].value == 5.0
        await first.die()
        assert (await models.rewarded(episode())).signals[1].value == 5.0
        assert len(processes.spawned) == 2
        assert not stop.is_called
    assert cast(LocalProcess, processes.spawned[1]).is_killed
    [restart] = read_restarts(RunFolder(tmp_path))
    assert (restart.process, restart.why) == ("reward model rm", "its process died")


HUNG = re.compile("a batch has been running for . s")


async def test_a_served_model_that_hangs_is_replaced_and_its_requests_are_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.01)
    async with opened(tmp_path, {"name": "rm", "model": "./rm"}, timeout_s=2.0, hanging=1) as (models, processes, stop):
        scored = await asyncio.gather(*(models.rewarded(episode()) for _ in range(3)))
        assert [each.signals[1].value for each in scored] == [5.0] * 3
        assert (len(processes.spawned), stop.is_called) == (2, False)
    [restart] = read_restarts(RunFolder(tmp_path))
    assert HUNG.fullmatch(restart.why)


async def test_a_request_on_which_two_servers_in_a_row_hang_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.01)
    async with opened(tmp_path, {"name": "rm", "model": "./rm"}, timeout_s=2.0, hanging=2) as (models, processes, stop):
        assert "two servers were replaced before they answered" in (await models.rewarded(episode())).signals[1].reason
        assert (await models.rewarded(episode())).signals[1].value == 5.0
        assert (len(processes.spawned), stop.is_called) == (3, False)


async def test_too_many_deaths_stop_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.01)
    async with opened(tmp_path, {"name": "rm", "model": "./rm"}, restarts=0) as (_, processes, stop):
        await cast(LocalProcess, processes.spawned[0]).die()
        why = r"^reward models died once \(engine.restarts = 0\); the last, reward model rm: its process died$"
        with pytest.raises(RunError, match=why):
            await asyncio.wait_for(stop.cut(asyncio.Event().wait()), 10)


async def test_a_model_beside_a_rank_sees_its_gpu_and_so_does_the_one_that_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.01)

    async def devices(name: str) -> list[str]:
        return {"rm": ["3"]}[name]

    async with opened(tmp_path, {"name": "rm", "model": "./rm"}, devices=devices) as (models, processes, _):
        assert models.shares_gpus
        first = cast(LocalProcess, processes.spawned[0])
        assert first.made_with == (["3"],)
        assert "CUDA_VISIBLE_DEVICES" not in first.spec.env
        await first.die()
        assert (await models.rewarded(episode())).signals[1].value == 5.0
        assert cast(LocalProcess, processes.spawned[1]).made_with == (["3"],)


def test_a_served_model_is_loaded_where_its_gpu_is_the_one_that_it_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    module.make_served_model(str(tiny_reward_model(tmp_path / "rm")), "", 20.0, True, ["3"])
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
