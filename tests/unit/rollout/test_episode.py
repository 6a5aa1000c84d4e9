"""One episode: law 1 for every template, law 5 for every failure, law 8 for the seeds."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from typing import Any

import pytest

from agentrl.engine.scripted import Delay, Die, Hang, Raise, Sampled, ScriptedEngine
from agentrl.env.context import Context
from agentrl.errors import EngineError
from agentrl.rollout.episode import EpisodeRunner
from agentrl.types import Completion, StopReason, Trajectory, Version, WeightManifest, text_of
from tests.unit.rollout import templates
from tests.unit.rollout.cases import HASTE_S, Chat, Hasty, Listening, Timed, check_law_1, request, stage
from tests.unit.rollout.templates import encode, qwen3_tokenizer, tokenizer

TEMPLATES = {
    "tiny": tokenizer(),
    "smol": tokenizer(templates.SMOL),
    "tools": tokenizer(templates.TOOLS),
    "strips": tokenizer(templates.STRIPS),
    "counts": tokenizer(templates.COUNTS),
    "qwen3": qwen3_tokenizer(),
}
ANY = (Sampled(),)
THINKING = "<think>\nhm\n</think>\n\nfour"


async def engine(script: Any = ANY, made: Any = None, **options: Any) -> ScriptedEngine:
    made = made or tokenizer()
    return await ScriptedEngine.ready(script, encode=lambda text: encode(made, text), vocab_size=len(made), **options)


async def play(script: Any = ANY, env: Any = Chat, order_: Any = None, **options: Any) -> Trajectory:
    return await EpisodeRunner(order_ or request(), stage(await engine(script), env, **options)).run()


# --- law 1 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("script", [[Sampled()], [THINKING], ["four", THINKING, "five"]], ids=["any", "think", "mixed"])
async def test_tokens_trained_on_are_the_tokens_sampled(made: Any, script: Any) -> None:
    scripted = await engine(script, made)
    heard = Listening(scripted)
    trajectory = await EpisodeRunner(request(max_tokens=40), stage(heard, made=made)).run()
    assert len(heard.calls) == trajectory.turns >= 3
    check_law_1(trajectory, heard.calls)
    for sequence in trajectory.sequences:
        scores = [0.0, *await scripted.score(tuple(sequence.ids), 5.0)]
        for mask, said, scored in zip(sequence.mask, sequence.logprobs, scores, strict=True):
            assert said == (pytest.approx(scored) if mask else 0.0)


@pytest.mark.parametrize(
    ("made", "script", "branches"),
    [("tiny", THINKING, 1), ("strips", THINKING, 3), ("strips", "4", 1), ("counts", "4", 3), ("qwen3", "4", 3)],
)
async def test_a_rewritten_history_begins_a_new_sequence_and_trains_nothing_twice(
    made: str, script: str, branches: int
) -> None:
    heard = Listening(await engine([script], TEMPLATES[made]))
    trajectory = await EpisodeRunner(request(max_tokens=40), stage(heard, made=TEMPLATES[made])).run()
    assert len(trajectory.sequences) == branches
    assert trajectory.action_tokens == sum(len(c.ids) for _, _, c in heard.calls)


async def test_a_tool_call_and_its_result_stay_one_sequence() -> None:
    call = '<tool_call>{"name": "double", "arguments": {"number": 21}}</tool_call>'
    heard = Listening(await engine([call, "42"]))
    trajectory = await EpisodeRunner(request(max_tokens=200), stage(heard, turns=2)).run()
    check_law_1(trajectory, heard.calls)
    assert len(trajectory.sequences) == 1
    assert [text_of(m) for m in trajectory.messages if m["role"] == "tool"] == ["42"]
    assert trajectory.stop_reason is StopReason.ENV_DONE


async def test_an_update_in_mid_generation_is_on_the_record() -> None:
    tokens, sampled = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def pace() -> None:
        sampled.release()
        await tokens.acquire()

    scripted = await engine(["fourfour"], pace=pace)
    heard = Listening(scripted)
    running = asyncio.ensure_future(EpisodeRunner(request(), stage(heard, turns=1)).run())
    for _ in range(3):
        tokens.release()
        await sampled.acquire()
    await scripted.pause(1.0)
    await scripted.start_update(1.0)
    await scripted.finish_update(WeightManifest(Version(0, 1), ()), 1.0)
    await scripted.resume(1.0)
    for _ in range(20):
        tokens.release()
    trajectory = await running
    check_law_1(trajectory, heard.calls)
    versions = [v for v in trajectory.sequences[0].versions if v is not None]
    assert set(versions) == {Version(0, 0), Version(0, 1)}
    assert versions == sorted(versions)
    assert trajectory.oldest_version == Version(0, 0)


# --- law 8 ----------------------------------------------------------------------------------------------------


def said(trajectory: Trajectory) -> tuple[Any, ...]:
    return trajectory.sequences, trajectory.messages, trajectory.signals, trajectory.stop_reason


async def test_the_same_order_gives_the_same_trajectory_alone_or_among_others() -> None:
    shared = await engine()
    alone = await EpisodeRunner(request(3), stage(shared)).run()
    crowd = await asyncio.gather(*(EpisodeRunner(request(member), stage(shared)).run() for member in (7, 3, 5, 4)))
    assert said(crowd[1]) == said(alone)
    again = await EpisodeRunner(request(3, attempt=1), stage(await engine())).run()
    assert said(again) == said(alone)


async def test_members_tasks_turns_and_seeds_draw_differently() -> None:
    heard = Listening(await engine())
    variants = [request(0), request(1), request(task_index=8), request(seed=12), request(split="test")]
    await asyncio.gather(*(EpisodeRunner(o, stage(heard)).run() for o in variants))
    seeds = [sampling.seed for _, sampling, _ in heard.calls]
    assert len(set(seeds)) == len(seeds) == 15
    assert len({completion.ids for _, _, completion in heard.calls}) == 15


# --- how episodes end -----------------------------------------------------------------------------------------


async def test_the_env_ends_it() -> None:
    trajectory = await play(["four"])
    assert (trajectory.stop_reason, trajectory.turns, trajectory.reward) == (StopReason.ENV_DONE, 3, 4.0)
    assert trajectory.is_valid
    assert not trajectory.error


@pytest.mark.parametrize(
    ("changes", "options", "expected", "turns"),
    [
        ({"max_turns": 2}, {}, StopReason.MAX_TURNS, 2),
        ({"max_tokens": 2}, {"turns": 1}, StopReason.MAX_TOKENS, 1),
        ({"max_tokens": 2}, {"turns": 3}, StopReason.MAX_TOKENS, 3),
        ({"max_tokens": 2, "max_turns": 2}, {}, StopReason.MAX_TOKENS, 2),
        ({}, {"max_context": 420}, StopReason.CONTEXT_OVERFLOW, 1),
    ],
)
async def test_a_cut_episode_says_by_what_and_is_scored(
    changes: dict[str, Any], options: dict[str, Any], expected: StopReason, turns: int
) -> None:
    trajectory = await play(["four"], order_=request(**changes), **options)
    assert (trajectory.stop_reason, trajectory.turns) == (expected, turns)
    assert trajectory.is_valid
    assert not trajectory.stop_reason.is_terminal


class Judged(Chat):
    """Whose judge expects an answer, as most do."""

    async def score(self, ctx: Context) -> float:
        return float(len(ctx.turns[-1].text))


async def test_a_prompt_that_leaves_no_room_to_answer_is_no_fault_and_no_sample() -> None:
    heard = Listening(await engine(["four"]))
    await EpisodeRunner(request(), stage(heard)).run()
    room = len(heard.calls[0][0].ids)
    full = await EpisodeRunner(request(), stage(heard, Judged, max_context=room)).run()
    assert (full.stop_reason, full.turns, full.action_tokens) == (StopReason.CONTEXT_OVERFLOW, 0, 0)
    assert full.is_unanswered
    assert not full.is_trainable
    assert not full.signals, "silence that nobody could break is not judged"
    assert full.error == f"the prompt has {room} tokens and model.max_context is {room}: no room is left for an answer"
    fits = await EpisodeRunner(request(max_turns=1), stage(heard, Judged, max_context=room + 1)).run()
    assert (fits.is_unanswered, fits.is_trainable, fits.action_tokens) == (False, True, 1)


async def test_an_episode_in_which_no_token_was_sampled_is_unanswered_however_it_ended() -> None:
    class Mute(Listening):
        async def generate(self, *request: Any) -> Completion:
            return Completion((), (), (), "stop")

    silent = await EpisodeRunner(request(), stage(Mute(await engine()))).run()
    assert (silent.stop_reason, silent.turns, silent.is_valid) == (StopReason.ENV_DONE, 3, True)
    late = await play([Hang()], Timed, request(episode_timeout_s=HASTE_S))
    assert (late.stop_reason, late.turns, late.is_valid) == (StopReason.DEADLINE, 0, True)
    for trajectory in (silent, late):
        assert trajectory.is_unanswered
        assert not trajectory.is_trainable
    failed = await play(["four"], fault="setup")
    assert not failed.is_unanswered, "a failure is invalid, whatever was sampled"


class Solved(Chat):
    """Which says itself what a success is."""

    async def success(self, ctx: Context) -> bool:
        assert [s.value for s in ctx.signals] == [4.0], "asked once the episode is scored"
        return ctx.text == "four"


async def test_an_evaluation_asks_the_environment_what_a_success_is_and_training_does_not() -> None:
    asked = await play(["four"], Solved, request(asks_success=True))
    assert asked.success is not None
    assert (asked.success.value, asked.success.verifier, asked.reward) == (1.0, "Solved.success", 4.0)
    for trajectory in (
        await play(["four"], Solved, request()),
        await play(["four"], Chat, request(asks_success=True)),
        await play(["four"], Solved, request(asks_success=True), fault="score"),
        await play(["four"], Solved, request(asks_success=True), fault="respond"),
    ):
        assert trajectory.success is None


async def test_an_answer_cut_by_the_context_is_an_overflow() -> None:
    heard = Listening(await engine(["four"]))
    await EpisodeRunner(request(), stage(heard, turns=1)).run()
    room = len(heard.calls[0][0].ids) + 2
    trajectory = await EpisodeRunner(request(), stage(heard, turns=1, max_context=room)).run()
    assert (trajectory.stop_reason, trajectory.action_tokens) == (StopReason.CONTEXT_OVERFLOW, 2)


@pytest.mark.parametrize("place", ["setup", "respond", "score"])
@pytest.mark.parametrize("how", ["raise", "infra", "hang", "cancel"])
async def test_a_failing_environment_is_never_worth_0_and_never_hangs(place: str, how: str) -> None:
    Chat.torn_down.clear()
    trajectory = await play(["four"], Hasty if how == "hang" else Chat, fault=place, how=how)
    wrong = StopReason.VERIFIER_ERROR if place == "score" else StopReason.ENV_ERROR
    infra = wrong if place == "score" else StopReason.INFRA_ERROR
    assert trajectory.stop_reason is (infra if how == "infra" else wrong)
    assert {"setup": "setup", "respond": "step", "score": "score"}[place] in trajectory.error
    assert not trajectory.is_valid
    assert trajectory.reward == 0.0
    assert Chat.torn_down == [0]


async def test_a_failing_tool_is_told_to_the_model_unless_the_service_is_down() -> None:
    call = '<tool_call>{"name": "double", "arguments": {"number": 21}}</tool_call>'
    told = await play([call, "four"], order_=request(max_tokens=200), turns=2, fault="tool")
    assert told.is_valid
    assert "error" in text_of(told.messages[2])
    down = await play([call, "four"], order_=request(max_tokens=200), turns=2, fault="tool", how="infra")
    assert down.stop_reason is StopReason.INFRA_ERROR


async def test_a_failing_teardown_keeps_the_score_and_is_told() -> None:
    trajectory = await play(["four"], fault="teardown")
    assert trajectory.is_valid
    assert "teardown" in trajectory.error


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Raise(EngineError("bad logits")), StopReason.MODEL_ERROR),
        (Raise(ValueError("a bug")), StopReason.MODEL_ERROR),
        (Raise(TimeoutError("its own")), StopReason.MODEL_ERROR),
        (Die(), StopReason.INFRA_ERROR),
        (Hang(), StopReason.INFRA_ERROR),
    ],
    ids=["refused", "bug", "timeout", "dead", "hangs"],
)
async def test_a_failing_engine_is_never_worth_0_and_never_hangs(reply: Any, expected: StopReason) -> None:
    trajectory = await play(["four", reply], order_=request(turn_timeout_s=HASTE_S))
    assert trajectory.stop_reason is expected
    assert not trajectory.is_valid
    assert not trajectory.signals
    assert trajectory.turns == 1
    assert "generate" in trajectory.error


async def test_an_aborted_request_is_no_answer() -> None:
    class Aborting(Listening):
        async def generate(self, *request: Any) -> Completion:
            return replace(await super().generate(*request), finish_reason="abort")

    trajectory = await EpisodeRunner(request(), stage(Aborting(await engine(["four"])))).run()
    assert (trajectory.stop_reason, trajectory.turns) == (StopReason.MODEL_ERROR, 0)
    assert not trajectory.sequences


async def test_an_engine_that_cancels_itself_ends_its_own_episode_only() -> None:
    async def cancel() -> None:
        raise asyncio.CancelledError

    trajectory = await play(["four", Delay(cancel, "four")])
    assert (trajectory.stop_reason, trajectory.turns) == (StopReason.CANCELLED, 1)
    assert not trajectory.is_valid


async def test_an_unrenderable_message_is_a_model_error() -> None:
    made = copy.deepcopy(tokenizer())
    trajectory = await play(["four"], made=made)
    assert trajectory.is_valid
    broken = stage(await engine(["four"]), made=made)
    made.chat_template = "{{ raise_exception('roles must alternate') }}"
    trajectory = await EpisodeRunner(request(), broken).run()
    assert trajectory.stop_reason is StopReason.MODEL_ERROR
    assert "roles must alternate" in trajectory.error


@pytest.mark.parametrize(("env", "is_valid"), [(Chat, False), (Timed, True)])
async def test_the_deadline_cuts_an_episode_and_is_scored_only_where_time_is_part_of_the_task(
    env: Any, is_valid: bool
) -> None:
    trajectory = await play(["four", Hang()], env, request(episode_timeout_s=HASTE_S))
    assert (trajectory.stop_reason, trajectory.turns) == (StopReason.DEADLINE, 1)
    assert trajectory.is_valid is is_valid
    assert str(HASTE_S) in trajectory.error


async def test_an_episode_that_never_began_has_no_score_even_where_time_is_part_of_the_task() -> None:
    trajectory = await play(["four"], Timed, request(episode_timeout_s=HASTE_S), fault="setup", how="hang")
    assert trajectory.stop_reason is StopReason.DEADLINE
    assert not trajectory.signals


# --- cancellation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["setup", "generate", "respond", "score", "teardown"])
async def test_a_cancelled_episode_leaves_no_task_and_is_torn_down(place: str) -> None:
    Chat.torn_down.clear()
    reached = Chat.reached = asyncio.Event()
    before = asyncio.all_tasks()

    async def arrive() -> None:
        reached.set()
        await asyncio.Event().wait()

    script = [Delay(arrive, "four")] if place == "generate" else ["four"]
    running = asyncio.ensure_future(play(script, fault=place, how="hang"))
    await asyncio.wait_for(reached.wait(), 5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert Chat.torn_down == [0]
    assert asyncio.all_tasks() == before
    Chat.reached = None


# --- what is recorded -----------------------------------------------------------------------------------------


async def test_timings_say_where_the_time_went() -> None:
    slow = Delay(lambda: asyncio.sleep(HASTE_S), "four")
    timings = (await play([slow], Hasty, turns=1, fault="teardown", how="hang")).timings
    assert timings.engine_s > 0.9 * HASTE_S
    assert timings.env_s > 0.9 * HASTE_S
    assert timings.score_s > 0
    assert timings.total_s >= timings.engine_s + timings.env_s + timings.score_s


async def test_all_is_kept_in_order() -> None:
    trajectory = await play(["four"], turns=2)
    assert [m["role"] for m in trajectory.messages] == ["user", "assistant", "user", "assistant"]
    assert (trajectory.task_id, trajectory.task_index, trajectory.sample.member) == ("train-7", 7, 0)
    assert [s.turn for s in trajectory.sequences[0].segments] == [0, 0, 1, 1]
