"""A judge's answer is parsed into a signal; an answer without a score makes it invalid."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agentrl.config.schema import RewardModelKeys
from agentrl.env import fenced
from agentrl.errors import ConfigError, VerifierError
from agentrl.reward_models import Judge, Query, RewardModel, score_turns
from agentrl.reward_models.judge import EngineJudge, Verdicts
from agentrl.reward_models.keys import client_of
from agentrl.reward_models.turns import score_turns_of
from agentrl.roles import RoleReply
from agentrl.types import Exchange, Message, Signal
from tests.unit.algorithms.cases import trajectory
from tests.unit.reward_models.lengths import serving
from tests.unit.reward_models.test_client import TURNS, answering


def said(text: object, finish: str = "stop") -> tuple[int, bytes]:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": finish}
    return 200, json.dumps({"choices": [choice]}).encode()


async def judged(*answers: tuple[int, bytes] | None, **options: object) -> Signal:
    async with answering(*answers) as (url, _):
        judge = Judge(f"{url}/v1", "qwen", timeout_s=20.0, **options)  # type: ignore[arg-type]
        signal = await judge.score(TURNS)
        await judge.aclose()
    return signal


async def test_the_last_score_in_the_answer_counts_and_the_answer_is_the_evidence() -> None:
    signal = await judged(said("At first Score: 2. No.\nScore: 7.5"), name="honest", weight=0.1)
    assert (signal.name, signal.value, signal.weight, signal.valid) == ("honest", 7.5, 0.1, True)
    assert signal.evidence == {"answer": "At first Score: 2. No.\nScore: 7.5"}
    assert signal.verifier.startswith("qwen at http://")


@pytest.mark.parametrize(
    "ending",
    [
        *("Score: 8", "**Score: 8**", "**Score:** 8", "Score: **8**", "`Score: 8`", "score: 8", "SCORE: `8`."),
        *("Score: 8/10.", "Score:  8 / 10 \n"),
    ],
)
async def test_a_score_may_be_written_as_models_write_it(ending: str) -> None:
    assert (await judged(said(f"Good.\n{ending}"))).value == 8.0


async def test_a_judge_reads_the_conversation_with_its_calls() -> None:
    call = {"function": {"name": "add", "arguments": {"a": 1}}}
    messages = [Message(role="user", content="{braces}"), Message(role="assistant", content="", tool_calls=[call])]
    async with answering(said("Score: 1")) as (url, asked):
        judge = Judge(url, "qwen", prompt="Judge:\n{conversation}\nEnd.")
        await judge.score(messages)
        await judge.score(Query("as text"))
        await judge.aclose()
    [first, second] = map(json.loads, asked)
    conversation = "[user]\n{braces}\n\n[assistant]\n(calls add with {'a': 1})"
    assert first["messages"][0]["content"] == f"Judge:\n{fenced(conversation=conversation)}\nEnd."
    assert second["messages"][0]["content"] == f"Judge:\n{fenced(conversation='as text')}\nEnd."
    assert (first["model"], first["temperature"], first["max_tokens"]) == ("qwen", 0, 1024)


async def test_the_keys_of_a_judge_reach_its_endpoint() -> None:
    async with answering(said("<grade>3</grade>")) as (url, asked):
        keys = RewardModelKeys(
            name="j", url=url, judge="qwen", max_tokens=16, pattern="<grade>(.*?)</grade>", bounds=(0, 4), weight=0.5
        )
        judge = client_of(keys, 20.0)
        signal = await judge.score(TURNS)
        await judge.aclose()
    assert (signal.name, signal.value, signal.weight) == ("j", 3.0, 0.5)
    assert json.loads(asked[0])["max_tokens"] == 16


async def test_a_pattern_and_bounds_of_ones_own_are_used() -> None:
    assert (await judged(said("<grade>-1</grade>"), pattern="<grade>(.*?)</grade>", bounds=(-1.0, 1.0))).value == -1.0
    refused = await judged(said("<grade>good</grade>"), pattern="<grade>(.*?)</grade>")
    assert "score 'good' is no number" in refused.reason


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (said("I like it."), "has no score: it ends with 'I like it.'"),
        (said('It only wrote "Score: 10" and begs.'), "has no score"),
        (said("Score: 1", "length"), "was cut (length): it ends with 'Score: 1'"),
        (said("Score: 7", "content_filter"), "was cut (content_filter)"),
        (said("Score: 11"), "the judge's score 11 is not within 0 and 10"),
        (said(None), "answered without choices"),
        ((200, b'{"choices": []}'), "answered without choices"),
        ((200, b"[]"), "answered without choices"),
        ((200, b"<html>"), "not JSON"),
        ((404, b"no such model"), "status 404: no such model"),
    ],
)
async def test_an_answer_without_a_score_is_invalid_and_never_0(answer: tuple[int, bytes], reason: str) -> None:
    signal = await judged(answer)
    assert (signal.valid, signal.value) == (False, None)
    assert reason in signal.reason


@pytest.mark.parametrize("text", ["\ud83d Score: 5", "x" * 50_000 + "Score: 5"])
async def test_any_text_is_read_and_the_evidence_is_bounded(text: str) -> None:
    async def ask(question: str) -> RoleReply:
        return RoleReply(Message(role="assistant", content=text))

    sampled = await EngineJudge(Verdicts(Signal("judge", None)), ask).score(TURNS)
    for signal in (await judged(said(text)), sampled):
        assert signal.value == 5.0
        assert signal.evidence["answer"] == text.replace("\ud83d", "?")[-20_000:]


async def test_a_judge_that_is_away_for_a_moment_is_asked_again() -> None:
    assert (await judged(None, (503, b""), said("Score: 3"))).value == 3.0


async def test_nan_is_not_within_any_bounds() -> None:
    assert not (await judged(said("<nan>"), pattern="<(nan)>")).valid


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"prompt": "Judge it."}, "its prompt has no {conversation}"),
        ({"pattern": "Score: (.*"}, "is no pattern of RE2"),
        ({"pattern": "Score: .*"}, "has 0 groups"),
        ({"bounds": (10.0, 0.0)}, "its bounds .10.0, 0.0. are not in order"),
        ({"bounds": (1.0, 1.0)}, "are not in order"),
    ],
)
def test_a_judge_that_can_never_score_is_refused(options: dict[str, object], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault.replace("{", r"\{")):
        Judge("http://127.0.0.1:1", "qwen", **options)  # type: ignore[arg-type]


async def test_each_turn_gets_the_score_of_the_conversation_up_to_it() -> None:
    async with serving() as client:
        model = RewardModel(str(client.base_url))
        signals = await score_turns(model, TURNS, 2)
        assert [(s.value, s.scope, s.turn) for s in signals] == [(3.0, "turn", 0), (5.0, "turn", 1)]
        assert [(s.value, s.turn) for s in await score_turns(model, TURNS, 1)] == [(5.0, 0)]
        assert await score_turns(model, TURNS, 0) == ()
        with pytest.raises(VerifierError, match="2 assistant messages for 3 turns"):
            await score_turns(model, TURNS, 3)
        await model.aclose()


async def test_the_turns_of_a_finished_episode_are_scored_by_what_the_policy_saw() -> None:
    """The second turn's history was rewritten: the first turn is not scored by what came later."""
    messages = [*TURNS[:2], Message(role="system", content="now"), *TURNS]
    where = (Exchange(0, 2), Exchange(2, len(messages)))
    episode = replace(trajectory(0, 0.0, lengths=(1, 1)), messages=tuple(messages), exchanges=where)
    async with serving() as client:
        model = RewardModel(str(client.base_url))
        scores = [signal.value for signal in await score_turns_of(model, episode)]
        assert scores == [(await model.score(part)).value for part in (messages[:2], messages[2:])]
        await model.aclose()


async def test_a_judge_scores_turns_too() -> None:
    async with answering(said("Score: 4")) as (url, asked):
        judge = Judge(url, "qwen")
        assert [(s.value, s.turn) for s in await score_turns(judge, TURNS, 2)] == [(4.0, 0), (4.0, 1)]
        await judge.aclose()
    assert len(asked) == 2
