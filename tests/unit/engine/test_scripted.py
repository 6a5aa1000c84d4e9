"""The shipped fake keeps the Engine contract, and follows its script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from agentrl.engine.protocol import Engine
from agentrl.engine.scripted import Delay, Die, Hang, Raise, ScriptedEngine
from agentrl.engine.scripted_policy import ZipfPolicy
from agentrl.errors import DeadlineError, EngineDiedError, EngineError, EngineRefusedError, WeightsError
from agentrl.types import Prompt, Sampling, TensorSpec, Version, WeightManifest
from tests.conformance.engine import EngineConformance, Fault, Kit

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROMPT = Prompt((1, 2, 3))


def manifest_of(version: Version) -> WeightManifest:
    tensors = tuple(TensorSpec(name, (2, 2), "float32", f"{name} of {version}") for name in ("embed", "layer", "head"))
    return WeightManifest(version, tensors)


class ScriptedKit(Kit):
    prompt = Prompt((5, 6, 7, 8))
    vocab_size = 256
    can_sleep = True
    max_model_len = 4096
    tolerance = 1e-12
    long_tokens = 200
    quiet_s = 0.05
    deadline_s = 10.0
    death_s = 1.0

    def __init__(self) -> None:
        self.published = 0

    async def update(self, engine: Engine, fault: Fault = "none") -> Version:
        self.published += 1
        version = Version(0, self.published)
        tensors = manifest_of(version).tensors
        await engine.start_update(1.0)
        for tensor in tensors[1:] if fault == "dropped" else tensors:
            digest = "old" if fault == "stale" and tensor is tensors[-1] else tensor.digest
            await engine.load({"tensors": [{"name": tensor.name, "digest": digest}]}, 1.0)
        await engine.finish_update(manifest_of(version), 1.0)
        return version

    def reference(self, ids: Sequence[int], temperature: float, version: Version) -> Sequence[float]:
        policy = ZipfPolicy.of(manifest_of(version), self.vocab_size)
        return [policy.logprob(policy.context(ids[:t]), ids[t], temperature) for t in range(1, len(ids))]

    async def kill(self, engine: Engine) -> None:
        assert isinstance(engine, ScriptedEngine)
        engine.kill()


@pytest.fixture(scope="module")
def kit() -> Kit:
    return ScriptedKit()


async def started() -> ScriptedEngine:
    engine = ScriptedEngine(pace=lambda: asyncio.sleep(0))
    await engine.start(1.0)
    return engine


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine(kit: Kit) -> AsyncIterator[Engine]:
    engine = await started()
    await engine.pause(1.0)
    await kit.update(engine)
    await engine.resume(1.0)
    yield engine
    await engine.close()


@pytest_asyncio.fixture(loop_scope="module")
async def disposable_engine() -> AsyncIterator[Engine]:
    engine = await started()
    yield engine
    await engine.close()


class TestScriptedConforms(EngineConformance):
    pass


async def test_texts_are_sampled_in_order_with_the_stop_token_and_start_over() -> None:
    engine = await ScriptedEngine.ready(["ab", "c"])
    sampled = [await engine.generate(PROMPT, Sampling(8, stop_token_ids=(0, 9)), 1.0) for _ in range(3)]
    assert [(c.ids, c.finish_reason) for c in sampled] == [
        ((97, 98, 0), "stop"),
        ((99, 0), "stop"),
        ((97, 98, 0), "stop"),
    ]


async def test_ids_are_given_verbatim_up_to_max_tokens_or_a_stop_token() -> None:
    engine = await ScriptedEngine.ready([[7, 8, 9]])
    results = [
        await engine.generate(PROMPT, s, 1.0) for s in (Sampling(8), Sampling(2), Sampling(8, stop_token_ids=(8,)))
    ]
    assert [(c.ids, c.finish_reason) for c in results] == [((7, 8, 9), "stop"), ((7, 8), "length"), ((7, 8), "stop")]


async def test_a_stop_string_ends_a_text_and_keeps_its_tokens() -> None:
    engine = await ScriptedEngine.ready(["one two three"])
    completion = await engine.generate(PROMPT, Sampling(20, stop=(" two",)), 1.0)
    assert (bytes(completion.ids), completion.finish_reason) == (b"one two", "stop")


async def test_a_callable_script_sees_the_prompt_and_the_number_of_the_request() -> None:
    engine = await ScriptedEngine.ready(lambda prompt, number: f"{sum(prompt)}:{number}")
    texts = [bytes((await engine.generate(PROMPT, Sampling(8), 1.0)).ids) for _ in range(2)]
    assert texts == [b"6:0", b"6:1"]


async def test_the_encoding_is_the_callers() -> None:
    engine = await ScriptedEngine.ready(["a b"], encode=lambda text: [len(word) for word in text.split()], vocab_size=9)
    assert (await engine.generate(PROMPT, Sampling(8), 1.0)).ids == (1, 1)


async def test_a_scripted_id_outside_the_vocabulary_is_refused() -> None:
    engine = await ScriptedEngine.ready([[999]])
    with pytest.raises(EngineRefusedError, match="999"):
        await engine.generate(PROMPT, Sampling(8), 1.0)


async def test_a_delayed_reply_waits_for_its_gate_and_can_be_cancelled() -> None:
    gate = asyncio.Event()
    engine = await ScriptedEngine.ready([Delay(gate.wait, "late"), "soon"])
    late = asyncio.create_task(engine.generate(PROMPT, Sampling(8), 5.0))
    await asyncio.sleep(0)
    assert bytes((await engine.generate(PROMPT, Sampling(8), 1.0)).ids) == b"soon"
    assert not late.done()
    gate.set()
    assert bytes((await late).ids) == b"late"
    gate.clear()
    cancelled = asyncio.create_task(engine.generate(PROMPT, Sampling(8), 5.0))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def test_a_hanging_request_ends_at_its_deadline() -> None:
    engine = await ScriptedEngine.ready([Hang()])
    with pytest.raises(DeadlineError, match=r"0\.01 s"):
        await engine.generate(PROMPT, Sampling(8), 0.01)


async def test_a_scripted_error_is_raised_and_the_engine_lives_on() -> None:
    engine = await ScriptedEngine.ready([Raise(EngineError("out of blocks")), "fine"])
    with pytest.raises(EngineError, match="out of blocks"):
        await engine.generate(PROMPT, Sampling(8), 1.0)
    assert bytes((await engine.generate(PROMPT, Sampling(8), 1.0)).ids) == b"fine"


async def test_a_timeout_of_the_script_is_not_taken_for_the_deadline() -> None:
    engine = await ScriptedEngine.ready([Raise(TimeoutError("the script's own"))])
    with pytest.raises(TimeoutError, match="the script's own"):
        await engine.generate(PROMPT, Sampling(8), 1.0)


async def test_a_scripted_death_takes_the_hanging_requests_along() -> None:
    engine = await ScriptedEngine.ready([Hang(), Die()])
    hanging = asyncio.create_task(engine.generate(PROMPT, Sampling(8), 60.0))
    await asyncio.sleep(0)
    with pytest.raises(EngineDiedError):
        await engine.generate(PROMPT, Sampling(8), 60.0)
    with pytest.raises(EngineDiedError):
        await asyncio.wait_for(hanging, 1.0)


async def test_a_death_in_the_very_tick_of_a_deadline_reaches_the_others() -> None:
    loop = asyncio.get_running_loop()
    engine = await ScriptedEngine.ready([Hang()])
    deadlines_s = [0.01, 60.0] * 8
    tasks = [asyncio.create_task(engine.generate(PROMPT, Sampling(8), deadline_s)) for deadline_s in deadlines_s]
    await asyncio.sleep(0)
    killing = loop.call_later(0.01, engine.kill)
    while loop.time() <= killing.when():
        pass  # hold the loop until both timers are due: they fire in one tick, the deadline first
    ended, _ = await asyncio.wait(tasks, timeout=1.0)
    assert len(ended) == len(tasks)
    assert all(isinstance(task.exception(), EngineDiedError) for task in ended)


async def test_with_a_pace_an_update_falls_between_two_tokens() -> None:
    tokens, all_spent = asyncio.Semaphore(3), asyncio.Event()

    async def pace() -> None:
        if tokens.locked():
            all_spent.set()
        await tokens.acquire()

    engine = await ScriptedEngine.ready([[1, 2, 3, 4, 5]], pace=pace)
    task = asyncio.create_task(engine.generate(PROMPT, Sampling(8), 5.0))
    await all_spent.wait()
    await engine.pause(1.0)
    await engine.start_update(1.0)
    await engine.finish_update(WeightManifest(Version(0, 1), ()), 1.0)
    await engine.resume(1.0)
    tokens.release()
    tokens.release()
    assert [tuple(span) for span in (await task).versions] == [((0, 0), 0, 3), ((0, 1), 3, 5)]


async def test_what_is_missing_different_or_unknown_in_an_update_is_named() -> None:
    manifest = manifest_of(Version(0, 1))
    whole = {tensor.name: tensor.digest for tensor in manifest.tensors}
    wrong: list[tuple[dict[str, str], str]] = [
        ({k: v for k, v in whole.items() if k != "layer"}, "layer never arrived"),
        (whole | {"head": "old"}, "head differs"),
        (whole | {"extra": "x"}, "extra is not in the manifest"),
    ]
    for received, message in wrong:
        engine = ScriptedEngine()
        await engine.start(1.0)
        await engine.pause(1.0)
        await engine.start_update(1.0)
        await engine.load({"tensors": [{"name": name, "digest": received[name]} for name in received]}, 1.0)
        with pytest.raises(WeightsError, match=message):
            await engine.finish_update(manifest, 1.0)


async def test_a_bucket_that_tells_no_digests_is_checked_by_name() -> None:
    engine = ScriptedEngine()
    await engine.start(1.0)
    await engine.pause(1.0)
    await engine.start_update(1.0)
    await engine.load({"path": "0.bin", "tensors": [{"name": "embed"}, {"name": "layer"}]}, 1.0)
    with pytest.raises(WeightsError, match="head never arrived"):
        await engine.finish_update(manifest_of(Version(0, 1)), 1.0)


async def test_an_engine_that_cannot_sleep_refuses_to() -> None:
    engine = await ScriptedEngine.ready(can_sleep=False)
    for call in (engine.sleep(1.0), engine.wake(1.0)):
        with pytest.raises(EngineRefusedError):
            await call


async def test_its_distribution_is_one() -> None:
    policy = ZipfPolicy(50, "weights")
    for temperature in (0.5, 1.0, 2.0):
        state = policy.context((1, 2, 3))
        probabilities = [2.718281828459045 ** policy.logprob(state, token, temperature) for token in range(50)]
        assert sum(probabilities) == pytest.approx(1.0)
