"""A role is declared by a method, which plays it where no model does."""

from __future__ import annotations

import asyncio
from threading import Barrier
from typing import Any

import pytest

from agentrl.endpoint import Ask
from agentrl.env import (
    AgentEnv,
    Context,
    Env,
    EnvDriver,
    Episode,
    Limits,
    Message,
    Model,
    Reply,
    Signal,
    StopReason,
    Task,
    Turn,
    play,
    reward,
    role,
    text_of,
    verdict,
)
from agentrl.env.driver.threads import THREADS
from agentrl.env.roles import roles_of
from agentrl.env.testing import check_environment, rehearse
from agentrl.errors import ConfigError, EnvError, RoleError
from agentrl.roles import Player, Role, RoleLimits, RoleReply


class Support(Env):
    """Help a customer, who is simulated; a judge reads the end."""

    limits = Limits(max_turns=3)

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}-{n}", n) for n in range(4)]

    @role
    def user(self, messages: list[Message]) -> str:
        """Plays the customer."""
        return "bye" if len(messages) > 2 else f"and {len(messages)}?"

    @role
    async def judge(self, messages: list[Message]) -> Message:
        """Scores politeness."""
        polite = "please" in text_of(messages[0])
        return Message(role="assistant", content=f"I think so.\n{verdict(messages, 10 * polite)}")

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content=await self.user.ask("Begin."))]

    async def respond(self, turn: Turn, ctx: Context) -> Reply:
        said = await self.user.ask(ctx.messages)
        return Reply.end() if said == "bye" else Reply.say(said)

    @reward
    async def polite(self, ctx: Context) -> Signal:
        return await self.judge.score("Is it polite?", answer="\n".join(turn.text for turn in ctx.turns))

    def oracle(self, task: Task) -> list[str]:
        return ["please"]


def test_stand_ins_play_the_roles_where_no_model_does() -> None:
    polite, rude = play(Support(), ["hm", "yes, please"], ["no"])
    assert [text_of(message) for message in polite.messages] == ["and 1?", "hm", "and 2?", "yes, please"]
    assert (polite.stop_reason, rude.stop_reason) == (StopReason.ENV_DONE, StopReason.ENV_DONE)
    assert (polite.signals[0].name, polite.reward, rude.reward) == ("polite", 10.0, 0.0)
    assert polite.signals[0].evidence["reply"].startswith("I think so.")


def test_an_environment_with_roles_passes_the_checks() -> None:
    check_environment(Support)


def test_what_was_asked_is_counted_in_the_trajectory() -> None:
    trajectory = rehearse(Support(), ["please", "please"])
    assert trajectory.is_valid
    assert (trajectory.roles["user"].calls, trajectory.roles["judge"].calls) == (3, 1)


def test_a_judge_that_fails_makes_the_sample_invalid_and_never_0() -> None:
    class Broken(Support):
        @role
        def judge(self, messages: list[Message]) -> str:
            return "Score: 10"

    trajectory = rehearse(Broken(), ["please"] * 3)
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.VERIFIER_ERROR, False)
    [signal] = trajectory.signals
    assert (signal.value, signal.valid) == (None, False)
    assert "the role judge gave 3 replies that cannot be used" in signal.reason


def test_a_user_that_fails_is_no_fault_of_the_environment() -> None:
    class Broken(Support):
        @role
        def user(self, messages: list[Message]) -> str:
            raise RoleError("the line is dead")

    trajectory = rehearse(Broken(), ["please"])
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.INFRA_ERROR, False)


def test_a_reward_of_groups_may_ask() -> None:
    class Ranked(Support):
        @reward(scope="group")
        async def best(self, episodes: list[Episode]) -> list[float]:
            answers = {f"answer_{n}": str(episode.messages) for n, episode in enumerate(episodes)}
            score = await self.judge.score("Is one of them polite?", **answers)
            return [score.value or 0.0] * len(episodes)

    first, second = play(Ranked(), ["please"], ["no"])
    assert [(s.name, s.value) for s in (first.signals[-1], second.signals[-1])] == [("best", 10.0)] * 2


def test_an_agent_asks_a_role_by_the_name_of_its_model() -> None:
    class Debate(AgentEnv):
        def tasks(self, split: str) -> list[Task]:
            return [Task(split, 0)]

        @role
        def opponent(self, messages: list[Message]) -> str:
            return f"{text_of(messages[-1])}? No."

        async def play(self, task: Task, ctx: Context, model: Model) -> str | None:
            messages = [{"role": "user", "content": "Say something."}]
            for name in (model.name, "opponent"):
                answer = await model.client.chat.completions.create(model=name, messages=messages)  # type: ignore[arg-type]
                messages.append({"role": "user", "content": answer.choices[0].message.content or ""})
            return messages[-1]["content"]

        @reward
        def said(self, ctx: Context) -> float:
            return float(ctx.result == "Yes? No." and len(ctx.turns) == 1)

    assert play(Debate(), ["Yes"])[0].reward == 1.0
    trajectory = rehearse(Debate(), ["Yes"])
    assert (trajectory.reward, trajectory.turns, len(trajectory.sequences)) == (1.0, 1, 1)
    assert trajectory.roles["opponent"].calls == 1


async def test_a_stand_in_that_returns_no_message_is_named() -> None:
    class Wrong(Support):
        @role
        def user(self, messages: list[Message]) -> str:
            return 7  # type: ignore[return-value]

    driver = EnvDriver(Wrong())
    with pytest.raises(EnvError, match=r"Wrong.user returned 7; a stand-in returns text"):
        await driver.reset(await driver.task("train", 0))
    await driver.close()


def test_a_role_cannot_be_asked_outside_an_episode() -> None:
    with pytest.raises(EnvError, match=r"@role Support.judge is not available yet"):
        asyncio.run(Support().judge.ask("?"))


def test_roles_are_found_in_the_order_of_their_definition() -> None:
    assert list(roles_of(Support)) == ["user", "judge"]
    assert roles_of(Support)["judge"].__doc__ == "Scores politeness."


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("@role\n    def judge(self): return ''", "@role judge is called as judge.messages."),
        ("@role\n    def judge(self, messages): yield ''", "@role judge yields"),
        ("@role\n    def score(self, messages): return ''", "@role score is reserved by agentrl"),
        ("@role\n    def policy(self, messages): return ''", "this is the name of the trained model"),
        ("judge = role(3)", "@role on 3: it marks a plain method"),
    ],
)
def test_a_role_that_could_not_be_played_is_refused(body: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        exec(f"class Mine(Support):\n    {body}", {"__name__": "mine", "Support": Support, "role": role})  # noqa: S102


async def test_calls_of_a_role_have_ids_of_their_own() -> None:
    together = asyncio.Barrier(2)

    class Caller(Player):
        async def answer(self, ask: Ask, seed: int) -> RoleReply:
            await together.wait()
            function: Any = {"name": "add", "arguments": "{}"}
            calls: list[Any] = [{"function": function}, {"id": "mine", "function": function}]
            return RoleReply(Message(role="assistant", content="", tool_calls=calls))

    judge = Role("judge", Caller(), RoleLimits(), "seed")
    replies = await asyncio.gather(*(judge.answer(Ask(())) for _ in range(2)))
    (one, mine), (other, again) = ([call["id"] for call in reply.message["tool_calls"]] for reply in replies)
    assert (mine, again, one == other, len(one)) == ("mine", "mine", False, 9)


def test_an_attribute_may_not_hide_a_role() -> None:
    env = Support()
    with pytest.raises(ConfigError, match=r"sets self.judge, which is a @role of the class"):
        env.judge = "me"  # type: ignore[misc, assignment]


async def test_plain_code_of_many_episodes_may_wait_for_plain_stand_ins() -> None:
    """Rewards that hold all threads of plain code ask a role, whose method needs a thread."""
    together = Barrier(THREADS.size)

    class Judged(Env):
        limits = Limits(score_timeout_s=5)

        def tasks(self, split: str) -> list[Task]:
            return [Task(f"{split}-{n}", n) for n in range(100)]

        async def setup(self, task: Task, ctx: Context) -> list[Message]:
            return [Message(role="user", content="hi")]

        @role
        def judge(self, messages: list[Message]) -> str:
            """Says how good it is."""
            return "0.5"

        @reward
        def good(self, ctx: Context) -> float:
            together.wait(30)
            return float(asyncio.run(self.judge.ask("?")))

    async def scored(number: int) -> tuple[Signal, ...]:
        driver = EnvDriver(Judged())
        await driver.reset(await driver.task("train", number))
        await driver.step("four")
        signals = await driver.finish(StopReason.ENV_DONE)
        await driver.close()
        return signals

    signals = await asyncio.gather(*(scored(number) for number in range(THREADS.size)))
    assert [signal.value for (signal,) in signals] == [0.5] * THREADS.size
