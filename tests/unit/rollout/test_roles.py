"""What a role says is never trained, whoever plays it and however it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import httpx
import pytest

from agentrl.config.schema import RoleKeys
from agentrl.endpoint import Answer, Ask, Endpoint
from agentrl.engine.scripted import Raise, ScriptedEngine
from agentrl.env import (
    AgentEnv,
    Context,
    Env,
    EnvDriver,
    Limits,
    Message,
    Model,
    Reply,
    Signal,
    Task,
    Turn,
    reward,
    role,
)
from agentrl.errors import DeadlineError, EngineError, RoleError
from agentrl.roles import Role, RoleLimits, RoleReply
from agentrl.roles.remote import Players
from agentrl.roles.spec import RoleSpec
from agentrl.rollout import byte_renderer
from agentrl.rollout.byte_renderer import ByteRenderer
from agentrl.rollout.engine_player import EnginePlayer, SampledModel
from agentrl.rollout.episode import EpisodeRunner, EpisodeRuntime
from agentrl.rollout.recorder import Recorder
from agentrl.rollout.session import Budget, Session
from agentrl.serving import RequestError
from agentrl.types import Completion, RoleUse, StopReason, Trajectory
from tests.unit.reward_models.test_client import answering
from tests.unit.roles.test_remote import USED, said
from tests.unit.rollout.cases import Listening, check_law_1, request

HELLO = Message(role="user", content="Hello?")
PATIENT: dict[str, Any] = {"max_tokens": 200, "episode_timeout_s": 100.0, "turn_timeout_s": 50.0}
"""The first endpoint imports the client of OpenAI, which takes long on a busy machine."""


class Talk(Env):
    """The policy talks to an opponent, and a judge reads it."""

    blocking = False

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}-{n}", n) for n in range(10)]

    @role
    def opponent(self, messages: list[Message]) -> str:
        raise AssertionError("a model plays this role")

    @role
    def judge(self, messages: list[Message]) -> str:
        raise AssertionError("a model plays this role")

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content=await self.opponent.ask("Begin."))]

    async def respond(self, turn: Turn, ctx: Context) -> Reply:
        return Reply.end()

    @reward
    async def good(self, ctx: Context) -> Signal:
        return await self.judge.score("Is it good?", answer=ctx.text)


class Asking(AgentEnv):
    """An agent that asks the policy and the judge over HTTP."""

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}-{n}", n) for n in range(10)]

    @role
    def judge(self, messages: list[Message]) -> str:
        raise AssertionError("a model plays this role")

    async def play(self, task: Task, ctx: Context, model: Model) -> list[tuple[int, Any]]:
        answers = []
        async with httpx.AsyncClient(timeout=100, headers={"authorization": f"Bearer {model.api_key}"}) as http:
            for name in ("policy", "judge", "other"):
                body = {"model": name, "messages": [{"role": "user", "content": f"Hello {name}"}], "max_tokens": 9}
                response = await http.post(f"{model.base_url}/chat/completions", json=body)
                answers.append((response.status_code, response.json()))
        return answers

    @reward
    def good(self, ctx: Context) -> Signal:
        return Signal("good", 1.0, evidence=ctx.result)


async def run(env: type[Env], script: Any, specs: list[RoleSpec], **changes: Any) -> tuple[Trajectory, Listening]:
    engine = await ScriptedEngine.ready(
        script, encode=byte_renderer.encode, vocab_size=byte_renderer.VOCAB_SIZE, max_model_len=10_000
    )
    heard, renderer, players, endpoint = Listening(engine), ByteRenderer(), Players(), Endpoint(10_000)
    model = SampledModel(renderer, heard, 10_000)
    castings = {
        spec.name: spec.played_by(players.of(spec) if spec.keys.url else EnginePlayer(spec, model)) for spec in specs
    }
    make: Callable[[int], EnvDriver] = lambda turns: EnvDriver(env(), turns, castings)  # noqa: E731
    runtime = EpisodeRuntime(make, renderer, heard, 10_000, endpoint)
    try:
        return await EpisodeRunner(request(**PATIENT | changes), runtime).run(), heard
    finally:
        await endpoint.close()
        await players.aclose()


def spec(name: str, **keys: Any) -> RoleSpec:
    return RoleSpec(name, RoleKeys(**{"model": "policy", "timeout_s": 60.0, **keys}))


def verdicts(prompt: tuple[int, ...], number: int) -> str:
    """The policy's texts: the opponent begins, the policy answers, and the judge gives 7."""
    text = bytes(token for token in prompt if token < 256).decode(errors="replace")
    if "Begin." in text:
        return "Tell me."
    form = [line for line in text.splitlines() if line.startswith("Score ")]
    return f"{form[-1].split(':')[0]}: 7" if form else "I do."


async def test_the_policy_plays_roles_without_being_trained_on_them() -> None:
    trajectory, heard = await run(Talk, verdicts, [spec("opponent", temperature=0.7), spec("judge")])
    assert (trajectory.error, trajectory.reward, trajectory.turns) == ("", 7.0, 1)
    opponent, policy, judge = heard.calls
    check_law_1(trajectory, [policy])
    assert [call[1].temperature for call in heard.calls] == [0.7, 1.0, 0.0]
    assert trajectory.action_tokens == len(policy[2].ids)
    assert trajectory.roles == {
        "opponent": RoleUse(1, 0, 0, len(opponent[0].ids), len(opponent[2].ids)),
        "judge": RoleUse(1, 0, 0, len(judge[0].ids), len(judge[2].ids)),
    }


async def test_an_engine_that_fails_as_a_judge_leaves_no_reward() -> None:
    def failing(prompt: tuple[int, ...], number: int) -> Any:
        return Raise(EngineError("broken")) if number == 2 else verdicts(prompt, number)

    trajectory, _ = await run(Talk, failing, [spec("opponent"), spec("judge")])
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.VERIFIER_ERROR, False)
    assert trajectory.signals[0].value is None
    assert "broken" in trajectory.signals[0].reason


async def test_an_aborted_completion_is_no_reply_of_a_role() -> None:
    class Aborting:
        async def generate(self, *asked: Any) -> Completion:
            return Completion((65, 66), (0.0, 0.0), (), "abort")

    player = EnginePlayer(spec("opponent"), SampledModel(ByteRenderer(), Aborting(), 10_000))
    with pytest.raises(EngineError, match="aborted"):
        await player.answer(Ask((HELLO,)), 0)


async def test_a_deadline_of_an_engine_is_a_failure_of_the_role() -> None:
    class Late:
        async def generate(self, *asked: Any) -> Completion:
            raise DeadlineError("generate: no answer after 300 s, 0 of 1 engines alive")

    player = EnginePlayer(spec("opponent"), SampledModel(ByteRenderer(), Late(), 10_000))
    with pytest.raises(RoleError, match=r"no answer after 300 s.*raise roles.opponent.timeout_s"):
        await player.answer(Ask((HELLO,)), 0)


@pytest.mark.parametrize("answer", [(500, b"down"), said("Score: 10"), said("")])
async def test_an_endpoint_that_fails_as_a_judge_leaves_no_reward(answer: tuple[int, bytes]) -> None:
    async with answering(answer) as (url, _):
        judge = spec("judge", url=url, model="m")
        trajectory, _ = await run(Talk, verdicts, [spec("opponent"), judge])
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.VERIFIER_ERROR, False)
    assert (trajectory.signals[0].valid, trajectory.signals[0].value) == (False, None)


async def test_an_opponent_that_is_gone_is_a_failure_of_the_infrastructure() -> None:
    async with answering((404, b"no such model")) as (url, _):
        opponent = spec("opponent", url=url, model="m")
        trajectory, heard = await run(Talk, verdicts, [opponent, spec("judge")])
    assert (trajectory.stop_reason, trajectory.turns) == (StopReason.INFRA_ERROR, 0)
    assert "the role opponent" in trajectory.error
    assert heard.calls == []


async def test_a_prompt_without_room_is_told() -> None:
    class Long(Talk):
        async def setup(self, task: Task, ctx: Context) -> list[Message]:
            return [Message(role="user", content=await self.opponent.ask("x" * 20_000))]

    trajectory, _ = await run(Long, verdicts, [spec("opponent"), spec("judge")])
    assert trajectory.stop_reason is StopReason.INFRA_ERROR
    assert "no room is left for a reply" in trajectory.error


async def test_the_endpoint_of_an_agent_relays_to_roles_and_records_nothing_of_it() -> None:
    async with answering(said("I judge.", usage=USED)) as (url, asked):
        trajectory, heard = await run(Asking, ["Hi."], [spec("judge", url=url, model="big")])
    policy, judge, other = trajectory.signals[0].evidence
    assert (trajectory.error, policy[0], judge[0], other[0]) == ("", 200, 200, 404)
    assert judge[1]["choices"][0]["message"]["content"] == "I judge."
    assert judge[1]["model"] == "judge"
    assert judge[1]["usage"] == USED
    assert "the roles of the environment are 'judge'" in other[1]["error"]["message"]
    assert (len(asked), len(heard.calls), trajectory.turns, len(trajectory.sequences)) == (1, 1, 1, 1)
    check_law_1(trajectory, heard.calls)
    assert trajectory.roles == {"judge": RoleUse(1, 0, 0, 30, 4)}


async def test_an_agent_that_a_role_fails_is_not_to_blame() -> None:
    class Strict(Asking):
        async def play(self, task: Task, ctx: Context, model: Model) -> Any:
            answers = await super().play(task, ctx, model)
            if answers[1][0] != 200:
                raise ValueError(answers[1][1])
            return answers

    async with answering((400, b"no")) as (url, _):
        judge = spec("judge", url=url, model="big")
        trajectory, _ = await run(Strict, ["Hi."], [judge])
        lenient, _ = await run(Asking, ["Hi."], [judge])
    assert trajectory.stop_reason is StopReason.INFRA_ERROR
    assert "the role judge" in trajectory.error
    assert (lenient.stop_reason, lenient.signals[0].evidence[1][0]) == (StopReason.AGENT_DONE, 502)


async def test_an_engine_that_fails_as_the_role_of_an_agent_ends_the_episode_and_answers_the_call() -> None:
    calls = []

    class Judging(Asking):
        async def play(self, task: Task, ctx: Context, model: Model) -> Any:
            calls.append(asyncio.ensure_future(to_judge(model)))
            await asyncio.Event().wait()

    trajectory, _ = await run(Judging, [Raise(EngineError("broken"))], [spec("judge")])
    assert trajectory.stop_reason is StopReason.MODEL_ERROR
    assert "broken" in trajectory.error
    with pytest.raises(RequestError, match="broken") as refusal:
        await calls[0]
    assert refusal.value.status == HTTPStatus.INTERNAL_SERVER_ERROR


async def test_a_role_that_failed_an_agent_is_to_blame_until_another_call_succeeds_or_meets_a_limit() -> None:
    class Surviving(Asking):
        limits = Limits(max_turns=1)
        calls = 0

        async def play(self, task: Task, ctx: Context, model: Model) -> Any:
            with pytest.raises(RequestError, match="the role judge"):
                await to_judge(model)
            for _ in range(self.calls):
                await model.ask("Go on.")
            raise ValueError("the agent's own fault")

    endings = []
    async with answering((400, b"no")) as (url, _):
        for Surviving.calls in (0, 1, 2):
            trajectory, _ = await run(Surviving, ["Hi."], [spec("judge", url=url, model="big")], max_turns=1)
            endings.append(trajectory.stop_reason)
    assert endings == [StopReason.INFRA_ERROR, StopReason.ENV_ERROR, StopReason.MAX_TURNS]


async def to_judge(model: Model) -> None:
    """Call the role as a request over HTTP does."""
    assert model._session is not None
    await model._session.answer(Ask((HELLO,), role="judge"))


async def test_every_call_to_a_role_ends_with_its_episode() -> None:
    under_way = asyncio.Event()
    ended: list[int] = []
    callers: list[asyncio.Future[Answer]] = []

    class Slow:
        async def answer(self, ask: Ask, seed: int) -> RoleReply:
            if judge.use.calls == 3:
                under_way.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(seed)
            raise AssertionError

    judge = Role("judge", Slow(), RoleLimits(), "seed")

    async def unused(*_: Any) -> Any:
        raise AssertionError("only a role is called")

    session = Session(ByteRenderer(), Recorder(), Budget(8, 100, 1000), unused, unused, {"judge": judge})

    async def play() -> None:
        asks = [session.answer(Ask((HELLO,), role="judge")) for _ in range(3)]
        callers.extend(asyncio.ensure_future(ask) for ask in asks)
        await under_way.wait()

    await session.accompany(play())
    assert len(ended) == 3
    await asyncio.gather(*callers, return_exceptions=True)


async def test_an_agent_may_ask_the_policy_without_http_and_for_each_seat() -> None:
    class Seats(Asking):
        async def play(self, task: Task, ctx: Context, model: Model) -> Any:
            white = await model.ask("Your move.", "white")
            black = await model.ask([Message(role="user", content=f"White said {white}")], agent="black")
            return [white, black]

    trajectory, heard = await run(Seats, ["e4", "e5"], [])
    assert trajectory.signals[0].evidence == ["e4", "e5"]
    agents = [segment.agent for segment in trajectory.segments if segment.is_action]
    assert (agents, trajectory.turns) == (["white", "black"], 2)
    check_law_1(trajectory, heard.calls)
