"""Rewards become signals; a failure is an invalid signal, never a 0."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.env import Context, EnvDriver, Episode, Limits, Signal, StopReason, Task, reward
from agentrl.env.rewards import filled
from agentrl.records.store import decode, encode
from tests.unit.env.worlds import Echo, Talk
from tests.unit.records.synthetic import trajectory


async def finish(driver: EnvDriver, stop_reason: StopReason = StopReason.ENV_DONE) -> tuple[Signal, ...]:
    await driver.reset(Task("t", 3))
    await driver.step("3")
    signals = await driver.finish(stop_reason)
    await driver.close()
    return signals


class Broken(Echo):
    @reward(weight=0.25)
    def raises(self, ctx: Context) -> float:
        return 1 / 0

    @reward
    async def hangs(self, ctx: Context) -> float:
        await asyncio.Event().wait()
        return 1.0

    @reward
    def forgets(self, ctx: Context) -> None: ...

    @reward
    def not_a_number(self, ctx: Context) -> float:
        return float("nan")

    @reward
    def exits(self, ctx: Context) -> float:
        raise SystemExit(1)

    @reward
    async def cancels_itself(self, ctx: Context) -> float:
        raise asyncio.CancelledError

    limits = Limits(score_timeout_s=0.05)


async def test_a_reward_that_fails_is_invalid_with_its_reason() -> None:
    right, *broken = await finish(EnvDriver(Broken()))
    assert (right.name, right.value, right.valid) == ("right", 1.0, True)
    assert [(s.valid, s.value) for s in broken] == [(False, None)] * 6
    reasons = {s.name: s.reason for s in broken}
    assert "ZeroDivisionError" in reasons["raises"]
    assert "test_rewards.py:" in reasons["raises"]
    assert "longer than 0.05 s" in reasons["hangs"]
    assert "returned None" in reasons["forgets"]
    assert "nan" in reasons["not_a_number"]
    assert "SystemExit" in reasons["exits"]
    assert "cancelled itself" in reasons["cancels_itself"]
    assert broken[0].weight == 0.25


async def test_a_reward_too_large_for_float32_is_invalid() -> None:
    class Tower(Echo):
        @reward(weight=2.0)
        def tall(self, ctx: Context) -> float:
            return 6e8

        @reward(weight=0.5)
        def fits(self, ctx: Context) -> float:
            return 6e8

    signals = {signal.name: signal for signal in await finish(EnvDriver(Tower()))}
    assert not signals["tall"].valid
    assert "a reward is at most 1e+09" in signals["tall"].reason
    assert signals["fits"].value == 6e8


async def test_a_signal_keeps_its_evidence_and_gets_the_method_s_name_and_weight() -> None:
    class Careful(Echo):
        @reward(weight=3.0)
        def right(self, ctx: Context) -> Signal:
            return Signal("x", 0.5, evidence={"seen": ctx.text})

    (signal,) = await finish(EnvDriver(Careful()))
    assert signal == Signal("right", 0.5, 3.0, evidence={"seen": "3"}, verifier="Careful.right")


async def test_score_may_return_a_number_a_signal_or_several() -> None:
    class Scored(Echo):
        result: object = 0.5

        def score(self, ctx: Context) -> object:
            return self.result

    assert [(s.name, s.value) for s in await finish(EnvDriver(Scored()))] == [("score", 0.5)]
    Scored.result = [Signal("a", 1.0, weight=2.0), Signal.invalid("b", "no gold")]
    a, b = await finish(EnvDriver(Scored()))
    assert (a.weight, a.verifier, b.valid, b.reason) == (2.0, "Scored.score", False, "no gold")


async def test_endings_that_are_not_scored_give_no_signals() -> None:
    for reason in (StopReason.CANCELLED, StopReason.ENV_ERROR, StopReason.DEADLINE):
        assert await finish(EnvDriver(Echo()), reason) == ()
    for reason in (StopReason.MAX_TURNS, StopReason.MAX_TOKENS, StopReason.CONTEXT_OVERFLOW):
        assert len(await finish(EnvDriver(Echo()), reason)) == 1


async def test_a_deadline_is_scored_if_time_is_part_of_the_task() -> None:
    class Timed(Echo):
        limits = Limits(is_timed=True)

    assert len(await finish(EnvDriver(Timed()), StopReason.DEADLINE)) == 1


async def test_turn_signals_name_their_turn_and_come_first() -> None:
    driver = EnvDriver(Talk())
    await driver.reset(await driver.task("train", 0))
    for turn in range(4):
        result = await driver.step("x" * 9)
        assert [(s.name, s.turn, s.value) for s in result.signals] == [("brief", turn, 0.0)]
    signals = await driver.finish(StopReason.ENV_DONE)
    assert [s.name for s in signals] == ["brief"] * 4 + ["whole"]


def episodes(*lengths: int) -> list[Episode]:
    conversations = [tuple({"role": "assistant", "content": str(n)} for n in range(length)) for length in lengths]
    return [Episode(Task("t"), i, messages, (), StopReason.ENV_DONE) for i, messages in enumerate(conversations)]  # type: ignore[arg-type]


async def test_group_rewards_see_the_finished_episodes() -> None:
    assert EnvDriver(Talk()).has_group_rewards
    assert not EnvDriver(Echo()).has_group_rewards
    rows = await EnvDriver(Talk()).score_group(episodes(1, 3, 3))
    assert [[(s.name, s.value, s.weight, s.scope) for s in row] for row in rows] == [
        [("best", 0.0, 2.0, "group")],
        [("best", 1.0, 2.0, "group")],
        [("best", 1.0, 2.0, "group")],
    ]


@pytest.mark.parametrize("result", [[1.0], None, 1 / 1])
async def test_a_group_reward_of_the_wrong_length_is_invalid_for_all(result: object) -> None:
    class Odd(Echo):
        @reward(scope="group")
        def compare(self, episodes: list[Episode]) -> object:
            return result

    rows = await EnvDriver(Odd()).score_group(episodes(1, 2))
    assert [row[0].valid for row in rows] == [False, False]


async def test_a_group_reward_may_not_exist_in_a_configuration() -> None:
    class Sometimes(Echo):
        @reward(scope="group")
        def compare(self, episodes: list[Episode]) -> object:
            return NotImplemented

        @reward(scope="group")
        def other(self, episodes: list[Episode]) -> list[float]:
            return [1.0, 2.0]

    rows = await EnvDriver(Sometimes()).score_group(episodes(1, 2))
    assert [[(signal.name, signal.value) for signal in row] for row in rows] == [[("other", 1.0)], [("other", 2.0)]]


async def test_a_group_reward_that_raises_is_invalid_for_all() -> None:
    class Raises(Echo):
        @reward(scope="group")
        def compare(self, episodes: list[Episode]) -> list[float]:
            raise KeyError("x")

    rows = await EnvDriver(Raises()).score_group(episodes(1, 2))
    assert ["KeyError" in row[0].reason for row in rows] == [True, True]


async def test_a_reward_that_is_not_awaited_is_invalid_and_says_so(recwarn: pytest.WarningsRecorder) -> None:
    class Judged(Echo):
        async def judge(self) -> float:
            return 1.0

        @reward
        async def number(self, ctx: Context) -> object:
            return self.judge()

        @reward
        async def signal(self, ctx: Context) -> Signal:
            return Signal("signal", self.judge())  # type: ignore[arg-type]

        @reward(scope="group")
        def group(self, episodes: Sequence[Episode]) -> object:
            return [self.judge() for _ in episodes]

    driver = EnvDriver(Judged())
    _, *signals = await finish(driver)
    signals += [row[0] for row in await driver.score_group(episodes(1))]
    assert [one.valid for one in signals] == [False] * 3
    assert {one.reason.partition(" of ")[0] for one in signals} == {"returned a coroutine"}
    assert signals[0].reason.endswith("Judged.judge, which is not awaited; write await")
    gc.collect()
    assert not recwarn.list


async def test_a_number_that_cannot_be_shown_is_an_invalid_reward() -> None:
    class Huge(Echo):
        @reward
        def number(self, ctx: Context) -> float:
            return 10**5000

        @reward
        def numbers(self, ctx: Context) -> object:
            return [10**5000]

    right, *huge = await finish(EnvDriver(Huge()))
    assert right.value == 1.0
    assert [(one.value, one.valid) for one in huge] == [(None, False)] * 2
    assert "returned <int>, which is not a single number" in huge[0].reason
    weighted = filled(Signal("right", None), Signal("right", 1.0, 10**5000), [""], keep=True)
    assert (weighted.valid, weighted.reason) == (False, "Signal.weight is <int>; give a finite number")


class Name(str):
    """Text of a class of its own."""


TEXTS = st.sampled_from(["x", "\ud83d", Name("y"), np.str_("z"), 3, None])
NUMBERS = st.sampled_from([0.5, 1, np.float64(0.5), np.float32(0.5), np.int64(2), True, np.True_, "1", None, 10**400])
FLAGS = st.sampled_from([True, np.True_, False, np.False_, 1, None])
EVIDENCE = st.recursive(NUMBERS | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=5)


@given(
    st.builds(
        Signal,
        TEXTS, NUMBERS, NUMBERS,
        scope=st.sampled_from(["turn", "episode", "step", None]),
        valid=FLAGS, reason=TEXTS, evidence=EVIDENCE, verifier=TEXTS, turn=NUMBERS,
    ),
    st.booleans(),
)  # fmt: skip
def test_a_signal_of_an_author_can_always_be_stored_and_read(signal: Signal, keep: bool) -> None:
    taken = filled(Signal("right", None, verifier="Echo.right"), signal, [""], keep)
    (stored,) = decode(encode(replace(trajectory(0, 0), signals=(taken,)))).signals
    assert (stored.value, stored.weight, stored.valid) == (taken.value, taken.weight, taken.valid)
    assert stored.valid == (stored.value is not None)


async def test_numbers_of_numpy_are_plain_numbers_and_other_types_are_explained() -> None:
    class Scored(Echo):
        result: object = Signal("a", 1.0, np.float32(0.5), valid=np.bool_(True), evidence={"err": np.mean([1, 2])})  # type: ignore[arg-type]

        def score(self, ctx: Context) -> object:
            return self.result

    (signal,) = await finish(EnvDriver(Scored()))
    (stored,) = decode(encode(replace(trajectory(0, 0), signals=(signal,)))).signals
    assert stored == Signal("a", 1.0, 0.5, evidence={"err": 1.5}, verifier="Scored.score")
    Scored.result = Signal(3, 1.0, "2", scope="step", valid=1)  # type: ignore[arg-type]
    (wrong,) = await finish(EnvDriver(Scored()))
    assert wrong.reason == (
        "Signal.name is 3; give text; Signal.weight is '2'; give a finite number; "
        "Signal.scope is 'step'; give 'turn' or 'episode'; Signal.valid is 1; give True or False"
    )
    Scored.result = Signal("a", 1.0, scope="group")
    (other,) = await finish(EnvDriver(Scored()))
    assert other.reason == "Signal.scope is 'group'; give 'turn' or 'episode'"


async def test_group_rewards_read_evidence_as_another_process_does() -> None:
    class Proved(Echo):
        @reward(scope="group")
        def all(self, episodes: list[Episode]) -> list[float]:
            seen.extend(signal.evidence for episode in episodes for signal in episode.signals)
            return [0.0] * len(episodes)

    seen: list[object] = []
    signals = tuple(Signal("a", 1.0, evidence=one) for one in ((1, 2), {3: b"x"}, np.float32(0.5), None))
    await EnvDriver(Proved()).score_group([Episode(Task("t", 3), 0, (), signals, StopReason.ENV_DONE)])
    assert seen == [[1, 2], {"3": "b'x'"}, 0.5, None]
