"""A simulated engine takes exactly as long as a queue of its requests takes on paper."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agentrl.planning.simulation.cache import Context, PrefixCache, block_of, contexts
from agentrl.planning.simulation.clock import run
from agentrl.planning.simulation.engine import EngineRates, SimulatedEngine
from agentrl.types import Version
from tests.unit.planning.workshop import config, episode

V0, V1, V2 = (Version(0, n) for n in range(3))
STEP = EngineRates(step_s=1.0, request_s=0.0, prefill_s=0.0)
SHARED = EngineRates(step_s=0.0, request_s=0.5, prefill_s=0.0)
BLOCK = 16


def after(length: int, prompt: str | None = None) -> Context:
    """A context of a sequence of its own; those with the same prompt are equal."""
    return Context(length, object(), prompt, length if prompt else 0)


def ends(
    rates: EngineRates, *requests: tuple[float, int, int, str | None], places: int = 256, caches: bool = True
) -> list[float]:
    """When each request ends: (when it comes, its context, its length, the name of its prompt)."""

    async def play() -> list[float]:
        engine = SimulatedEngine(rates, places, V0, BLOCK if caches else 0)
        loop = asyncio.get_running_loop()

        async def one(at: float, context: int, length: int, prompt: str | None) -> float:
            await asyncio.sleep(at)
            await engine.generate(length, after(context, prompt))
            return loop.time()

        return await asyncio.gather(*(one(*request) for request in requests))

    return run(play())


def test_requests_at_once_take_as_many_steps_as_the_longest_has_tokens() -> None:
    assert ends(STEP, (0, 0, 10, None), (0, 0, 4, None)) == pytest.approx([10, 4])


def test_requests_share_the_throughput() -> None:
    # Both until 4 tokens are done: 2 x 4 x 0.5 s. Then the longer one alone: 6 x 0.5 s.
    assert ends(SHARED, (0, 0, 10, None), (0, 0, 4, None)) == pytest.approx([7, 4])


def test_a_request_that_comes_later_slows_the_one_in_flight() -> None:
    # Alone for 2 s: 4 tokens. Together 1 s per token: the second is done with 3 at 5 s, the first has 3 left, 1.5 s.
    assert ends(SHARED, (0, 0, 10, None), (2, 0, 3, None)) == pytest.approx([6.5, 5])


def test_requests_beyond_the_places_wait_in_order() -> None:
    requests = [(0.0, 0, 5, None), (0.0, 0, 5, None), (0.0, 0, 5, None)]
    assert ends(STEP, *requests, places=2) == pytest.approx([5, 5, 10])
    assert ends(STEP, *requests, places=1) == pytest.approx([5, 10, 15])


def test_prompts_are_read_before_anything_is_sampled() -> None:
    rates = EngineRates(step_s=1.0, request_s=0.0, prefill_s=0.01)
    assert ends(rates, (0, 100, 10, None), (0, 50, 4, None)) == pytest.approx([11.5, 5.5])


def test_a_prompt_that_comes_later_stops_the_others_while_it_is_read() -> None:
    rates = EngineRates(step_s=1.0, request_s=0.0, prefill_s=0.01)
    assert ends(rates, (0, 0, 10, None), (5, 200, 2, None)) == pytest.approx([12, 9])


def test_a_shared_prompt_is_read_once_but_for_its_last_block() -> None:
    rates = EngineRates(step_s=0.0, request_s=0.0, prefill_s=1.0)
    for length, unread in ((100, 4), (96, 16), (0, 0)):  # the last token is always computed
        cache = PrefixCache(BLOCK)
        assert [cache.read(after(length, "a")) for _ in range(2)] == [length, unread]
    assert max(ends(rates, (0, 100, 1, "a"), (0, 100, 1, "a"), (0, 100, 1, "b"))) == pytest.approx(204)
    assert max(ends(rates, (0, 100, 1, "a"), (0, 100, 1, "a"), caches=False)) == pytest.approx(200)


def published(rates: EngineRates, at: float, pause_s: float, context: int, length: int) -> tuple[float, list[object]]:
    """End of a request and the versions of its tokens, with a publication at some time."""

    async def play() -> tuple[float, list[object]]:
        engine = SimulatedEngine(rates, 8, V0, BLOCK)
        request = asyncio.create_task(engine.generate(length, after(context, "a")))
        await asyncio.sleep(at)
        engine.pause()
        await asyncio.sleep(pause_s)
        engine.resume(V1)
        spans = await request
        return asyncio.get_running_loop().time(), list(spans)

    return run(play())


def test_a_publication_delays_a_request_by_its_own_length() -> None:
    end, spans = published(STEP, at=4, pause_s=7, context=0, length=10)
    assert end == pytest.approx(17)
    assert spans == [(V0, 0, 4), (V1, 4, 10)]


def test_after_a_publication_the_context_in_flight_is_read_again() -> None:
    # 20 s for the prompt, 4 tokens in 4 s, the pause, again 24 tokens to read, 6 more to sample.
    rates = EngineRates(step_s=1.0, request_s=0.0, prefill_s=1.0)
    end, spans = published(rates, at=24, pause_s=2, context=20, length=10)
    assert end == pytest.approx(20 + 4 + 2 + 24 + 6)
    assert spans == [(V0, 0, 4), (V1, 4, 10)]


def test_after_a_publication_the_members_of_a_group_read_their_prompt_once() -> None:
    # 100 tokens and 4 for the prompt; after 5 sampled ones again 105 and, beyond six blocks, 9; then 5 more.
    async def play() -> float:
        engine = SimulatedEngine(EngineRates(step_s=1.0, request_s=0.0, prefill_s=1.0), 8, V0, BLOCK)
        members = [asyncio.create_task(engine.generate(10, after(100, "a"))) for _ in range(2)]
        await asyncio.sleep(104 + 5)
        engine.pause()
        engine.resume(V1)
        await asyncio.gather(*members)
        return asyncio.get_running_loop().time()

    assert run(play()) == pytest.approx(104 + 5 + 105 + 9 + 5)


def reads(*, publishes: bool, caches: bool = True) -> list[int]:
    """How many tokens two turns of an episode read: 40 and 20, after each of which 8 are sampled."""
    cache, found = PrefixCache(BLOCK if caches else 0), []
    for turn, context in zip((0, 1), contexts(episode([8, 8], [40, 20]), "episode", "group"), strict=True):
        if turn and publishes:
            cache.clear()
        found.append(cache.read(context))
        cache.keep(context, 8)
    return found


def test_a_later_turn_reads_what_is_new_and_after_a_publication_everything() -> None:
    assert reads(publishes=False) == [40, 36]  # of 48 the last is not read: two whole blocks, as in vLLM
    assert reads(publishes=True) == [40, 68]
    assert reads(publishes=False, caches=False) == [40, 68]


@pytest.mark.parametrize(("sampled", "unread"), [(8, 36), (9, 21), (1, 29)])
def test_an_engine_reads_the_last_sampled_token_again(sampled: int, unread: int) -> None:
    async def play() -> float:
        engine, first, name = SimulatedEngine(EngineRates(0.0, 0.0, 1.0), 8, V0, BLOCK), 40, object()
        await engine.generate(sampled, Context(first, name))
        began = asyncio.get_running_loop().time()
        await engine.generate(1, Context(first + sampled + 20, name))
        return asyncio.get_running_loop().time() - began

    assert run(play()) == pytest.approx(unread)


def test_a_later_turn_shares_the_prompt_of_its_group() -> None:
    cache = PrefixCache(BLOCK)
    assert [cache.read(c) for n in (1, 2) for c in contexts(episode([8, 8], [40, 20]), n, "group")] == [40, 36, 8, 36]


def test_a_rewritten_history_shares_nothing() -> None:
    [*turns] = episode([8, 8], [40, 20]).turns
    rewritten = replace(episode(), turns=(turns[0], replace(turns[1], sequence=1)))
    cache = PrefixCache(BLOCK)
    assert [cache.read(c) for n in (1, 2) for c in contexts(rewritten, n, "group")] == [40, 20, 8, 20]


def test_blocks_are_those_of_vllm_on_the_device_unless_it_is_given_others() -> None:
    on_cpu, given = config(), config(engine__vllm={"block_size": 32})
    on_gpu = on_cpu.model_copy(update={"device": "cuda"})
    assert [block_of(each) for each in (on_cpu, on_gpu, given)] == [128, 16, 32]
    assert block_of(config(engine__prefix_caching=False)) == 0


def test_a_request_that_comes_during_a_pause_begins_nothing() -> None:
    async def play() -> list[float]:
        engine, loop = SimulatedEngine(STEP, 8, V0, BLOCK), asyncio.get_running_loop()

        async def one(at: float) -> float:
            await asyncio.sleep(at)
            await engine.generate(10, after(0, None))
            return loop.time()

        requests = [asyncio.create_task(one(at)) for at in (0, 5)]
        await asyncio.sleep(4)
        engine.pause()
        await asyncio.sleep(6)
        engine.resume(V1)
        return list(await asyncio.gather(*requests))

    assert run(play()) == pytest.approx([16, 20])


def test_two_publications_in_one_request_leave_three_versions() -> None:
    async def play() -> list[object]:
        engine = SimulatedEngine(STEP, 8, V0, BLOCK)
        request = asyncio.create_task(engine.generate(9, after(0, None)))
        for version in (V1, V2):
            await asyncio.sleep(3)
            engine.pause()
            engine.resume(version)
        return list(await request)

    assert run(play()) == [(V0, 0, 3), (V1, 3, 6), (V2, 6, 9)]


def test_a_request_after_a_publication_has_one_version_and_reads_its_prompt_again() -> None:
    async def play() -> tuple[float, list[object]]:
        engine, loop = SimulatedEngine(EngineRates(0.0, 0.0, 1.0), 8, V0, BLOCK), asyncio.get_running_loop()
        await engine.generate(1, after(32, "a"))
        engine.pause()
        engine.resume(V1)
        began = loop.time()
        spans = await engine.generate(1, after(32, "a"))
        return loop.time() - began, list(spans)

    seconds, spans = run(play())
    assert seconds == pytest.approx(32)
    assert spans == [(V1, 0, 1)]


def test_an_engine_is_busy_while_it_samples_and_neither_before_nor_when_paused() -> None:
    async def play() -> float:
        engine = SimulatedEngine(STEP, 8, V0, BLOCK)
        await asyncio.sleep(5)
        request = asyncio.create_task(engine.generate(4, after(0, None)))
        await asyncio.sleep(2)
        engine.pause()
        await asyncio.sleep(50)
        engine.resume(V1)
        await request
        await asyncio.sleep(5)
        return engine.busy_s()

    assert run(play()) == pytest.approx(4)
