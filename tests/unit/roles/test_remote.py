"""The endpoint of a role is asked once for equal requests, within its limits, and its failures are told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from agentrl.config.schema import RoleKeys
from agentrl.endpoint import Ask
from agentrl.errors import ConfigError, RoleError, RunError
from agentrl.roles import Role, RoleLimits, RoleReply, replies
from agentrl.roles.remote import Players, RemotePlayer
from agentrl.roles.replies import Replies, ReplyFiles
from agentrl.roles.spec import RoleSpec, specs_of
from agentrl.types import FunctionCall, Message, ToolCall, ToolSpec, text_of
from tests.unit.reward_models.test_client import answering, silent

HELLO = Ask((Message(role="user", content="Hello?"),))
ADD = ToolSpec(name="add", description="Add.", parameters={"type": "object", "properties": {}})


def said(text: str | None, finish: str = "stop", usage: Any = None, **more: Any) -> tuple[int, bytes]:
    choice = {"message": {"role": "assistant", "content": text, **more}, "finish_reason": finish}
    return 200, json.dumps({"choices": [choice], "usage": usage}).encode()


USED = {"prompt_tokens": 30, "completion_tokens": 4, "total_tokens": 34}


@asynccontextmanager
async def endpoint(
    *answers: tuple[int, bytes] | None, files: ReplyFiles | None = None, worker: int = 0, **keys: Any
) -> AsyncIterator[tuple[RemotePlayer, list[bytes]]]:
    async with answering(*answers) as (url, asked):
        players = Players(files, worker)
        given: dict[str, Any] = {"url": f"{url}/v1", "model": "qwen", "timeout_s": 60.0, **keys}
        spec = RoleSpec("judge", RoleKeys(**given), "secret")
        try:
            yield players.of(spec), asked
        finally:
            await players.aclose()


async def asked_and_kept(player: RemotePlayer, ask: Ask, seed: int) -> RoleReply:
    """Return the reply to a question, which can be used."""
    reply = await player.answer(ask, seed)
    if reply.key:
        await player.keep(reply)
    return reply


def at(player: RemotePlayer) -> str:
    """Return the url of a player, for another one at the same address."""
    return player._poster.url


async def test_the_request_is_a_chat_completion_and_the_reply_its_message() -> None:
    call = ToolCall(id="1", type="function", function=FunctionCall(name="add", arguments={"a": 1}))
    messages = (
        Message(role="system", content="Be brief."),
        Message(role="assistant", content="", tool_calls=[call], reasoning_content="hm"),
        Message(role="tool", content="2", tool_call_id="1", name="add"),
    )
    async with endpoint(said("Two.", usage=USED)) as (player, asked):
        reply = await asked_and_kept(player, Ask(messages, (ADD,), max_tokens=99, stop=("\n",)), 7)
    assert reply == RoleReply(Message(role="assistant", content="Two."), 30, 4, key=reply.key)
    assert json.loads(asked[0]) == {
        "model": "qwen",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
                ],
            },
            {"role": "tool", "content": "2", "tool_call_id": "1"},
        ],
        "temperature": 0.0,
        "max_tokens": 99,
        "stop": ["\n"],
        "tools": [{"type": "function", "function": ADD}],
    }


async def test_equal_requests_are_made_once_at_the_same_time_and_later() -> None:
    async with endpoint(said("yes", usage=USED), said("no")) as (player, asked):
        first = await asyncio.gather(*(asked_and_kept(player, HELLO, seed) for seed in range(8)))
        later = await asked_and_kept(player, HELLO, 9)
    assert len(asked) == 1
    assert [text_of(reply.message) for reply in (*first, later)] == ["yes"] * 9
    assert sorted(reply.is_cached for reply in (*first, later)) == [False] + [True] * 8


async def test_above_temperature_0_each_seed_is_another_request() -> None:
    async with endpoint(said("one"), said("two"), temperature=1.0) as (player, asked):
        replies = [text_of((await asked_and_kept(player, HELLO, seed)).message) for seed in (1, 2, 1)]
    assert replies == ["one", "two", "one"]
    assert [json.loads(body)["seed"] for body in asked] == [1, 2]


async def test_replies_outlive_the_process(tmp_path: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    files = ReplyFiles.begun(tmp_path / "roles", 1)
    async with endpoint(said(None, "length", USED, tool_calls=[call]), files=files) as (player, _):
        reply, url = await asked_and_kept(player, HELLO, 0), at(player)
    assert (reply.is_cut, reply.message["tool_calls"][0]["function"]["arguments"]) == (True, {"a": 1})
    files = ReplyFiles.begun(tmp_path / "roles", 1)
    async with endpoint(files=files, url=url, timeout_s=0.3) as (player, _):  # nobody is there any more
        again = await asked_and_kept(player, HELLO, 0)
    assert (again.message, again.is_cut, again.is_cached) == (reply.message, True, True)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("limits", "says"), [
    (RoleLimits(retries=2), "gave 3 replies that cannot be used"),
    (RoleLimits(max_calls=3, retries=5), "was asked 3 times in one episode, which is the limit"),
])  # fmt: skip
async def test_replies_that_could_not_be_used_are_asked_for_again(
    limits: RoleLimits, says: str, temperature: float, tmp_path: Path
) -> None:
    bad = [said("", usage=USED), said("no number", usage=USED), said("", "length", USED)]
    async with answering(*bad, *bad, *bad[:2], said("7", usage=USED)) as (url, asked):

        async def number() -> int:
            files = ReplyFiles.begun(tmp_path, 1)
            async with endpoint(url=url, files=files, temperature=temperature) as (player, _):
                return await Role("judge", player, limits, "0/train/0/0").ask("How good?", int)

        for start in (1, 2):
            with pytest.raises(RoleError, match=says):
                await number()
            assert len(asked) == 3 * start
        assert (await number(), len(asked)) == (7, 9)
        assert (await number(), len(asked)) == (7, 9), "what led to a usable reply is kept"


async def test_a_reply_that_has_come_answers_no_later_request() -> None:
    async def twice(player: RemotePlayer) -> list[str]:
        return [text_of((await player.answer(HELLO, 0)).message) for _ in range(2)]

    async with endpoint(said("one"), said("two")) as (player, asked):
        assert await asyncio.gather(twice(player), twice(player)) == [["one", "two"]] * 2
    assert len(asked) == 2


async def test_of_two_usable_replies_to_one_request_the_first_is_kept() -> None:
    async with endpoint(said("7", usage=USED), said("3", usage=USED)) as (player, _):
        first, second = await player.answer(HELLO, 0), await player.answer(HELLO, 0)
        for reply in (first, second):
            await player.keep(reply)
        third = await player.answer(HELLO, 0)
    assert [text_of(reply.message) for reply in (first, second, third)] == ["7", "3", "7"]
    assert (third.is_cached, third.key) == (True, "")


async def test_a_run_spends_no_more_tokens_than_it_may_on_either_side_of_a_resume(tmp_path: Path) -> None:
    async with answering(said("yes", usage=USED)) as (url, asked):
        limits: Any = {"url": url, "token_budget": 40, "temperature": 1.0}
        async with endpoint(**limits, files=ReplyFiles.begun(tmp_path, 1)) as (player, _):
            await asked_and_kept(player, HELLO, 1)
        async with endpoint(**limits, files=ReplyFiles.begun(tmp_path, 1)) as (player, _):
            await asked_and_kept(player, HELLO, 2)
            with pytest.raises(RoleError, match=r"used the tokens .* raise roles.judge.token_budget \(40\) and resume"):
                await asked_and_kept(player, HELLO, 3)
            assert (await asked_and_kept(player, HELLO, 1)).is_cached
    assert len(asked) == 2


async def test_two_endpoints_with_one_model_name_share_neither_replies_nor_the_budget() -> None:
    async with answering(said("yes", usage=USED)) as (one, asked), answering(said("no", usage=USED)) as (two, _):
        players = Players()
        limits: Any = {"model": "m", "token_budget": 34}
        spec = [RoleSpec("judge", RoleKeys(url=url, **limits)) for url in (one, two)]
        replies = [text_of((await asked_and_kept(players.of(each), HELLO, 0)).message) for each in (*spec, *spec)]
        other = RoleSpec("user", RoleKeys(url=one, model="m", timeout_s=60.0))
        assert (await asked_and_kept(players.of(other), HELLO, 0)).is_cached
        larger = RoleSpec("judge", RoleKeys(url=one, model="large"))
        assert not (await asked_and_kept(players.of(larger), HELLO, 0)).is_cached
        await players.aclose()
    assert replies == ["yes", "no", "yes", "no"]
    assert [json.loads(body)["model"] for body in asked] == ["m", "large"]


async def test_roles_of_one_endpoint_count_its_tokens_together() -> None:
    async with answering(said("yes", usage=USED)) as (url, _):
        players = Players()
        user = players.of(RoleSpec("user", RoleKeys(url=f"{url}/v1/", model="m")))
        judge = players.of(RoleSpec("judge", RoleKeys(url=f"{url}/v1", model="m", token_budget=34)))
        await user.answer(HELLO, 0)
        with pytest.raises(RoleError, match=r"may spend on m at http://.*roles.judge.token_budget \(34\)"):
            await judge.answer(Ask((Message(role="user", content="And?"),)), 0)
        await players.aclose()


async def test_requests_that_wait_for_a_connection_see_the_budget_that_others_used() -> None:
    async with endpoint(said("yes", usage=USED), token_budget=40, temperature=1.0, concurrency=2) as (player, asked):
        replies = await asyncio.gather(
            *(asked_and_kept(player, HELLO, seed) for seed in range(9)), return_exceptions=True
        )
    answered = [reply for reply in replies if isinstance(reply, RoleReply)]
    assert len(answered) == len(asked)
    assert 2 <= len(answered) <= 3  # 34 tokens each: the second is within the budget; one beside it was under way
    assert sum("token_budget" in str(reply) for reply in replies) == 9 - len(answered)


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": -30, "completion_tokens": 10**30}])
async def test_a_server_that_does_not_count_tokens_is_estimated(usage: Any) -> None:
    async with endpoint(said("12345678", usage=usage)) as (player, _):
        reply = await asked_and_kept(player, Ask((Message(role="user", content="x" * 40),)), 0)
    assert (reply.prompt_tokens, reply.completion_tokens) == (10, 2)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((401, b"no such key"), "status 401: no such key"),
        ((200, b"<html>"), "not JSON"),
        (said("I would", "content_filter"), "withheld its answer"),
        ((200, b"{}"), "answered without choices"),
        ((200, b'{"error": {"message": "no quota is left"}}'), "answered without choices.*no quota is left"),
        ((200, b"[]"), "answered without choices"),
        ((200, b'{"choices": [{"message": null}]}'), "answered without choices"),
        ((200, b'{"choices": [{"message": {"content": [{"type": "image"}]}}]}'), "a part of type 'image', which is no"),
        ((200, b'{"choices": [{"message": {"content": [{"type": {}}, 5]}}]}'), "a part of type {}, which is no text"),
        ((200, b'{"choices": [{"message": {"content": 5}}]}'), "a part of type 'int', which is no text"),
    ],
)
async def test_an_answer_without_a_reply_is_an_error_and_is_not_kept(answer: tuple[int, bytes], reason: str) -> None:
    async with endpoint(answer, said("yes")) as (player, _):
        with pytest.raises(RoleError, match=f"the role judge: .*{reason}"):
            await asked_and_kept(player, HELLO, 0)
        assert text_of((await asked_and_kept(player, HELLO, 0)).message) == "yes"


@pytest.mark.parametrize("answer", [(401, b"no key a-secret"), (200, b'{"error": "a-secret"}')])
async def test_an_endpoint_that_repeats_the_key_does_not_have_it_shown(answer: tuple[int, bytes]) -> None:
    async with answering(answer) as (url, _):
        players = Players()
        with pytest.raises(RoleError, match=r"\[token\]") as failure:
            await players.of(RoleSpec("judge", RoleKeys(url=url, model="m"), "a-secret")).answer(HELLO, 0)
        await players.aclose()
    assert "a-secret" not in str(failure.value)


def test_the_key_of_a_role_is_stripped_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    roles = {"judge": RoleKeys(url="http://127.0.0.1:9", model="m", api_key_env="KEY")}
    monkeypatch.setenv("KEY", "a-secret\n")
    assert specs_of(roles)["judge"].api_key == "a-secret"
    monkeypatch.setenv("KEY", "a\nsecret")
    with pytest.raises(
        ConfigError, match=r"^the environment variable KEY must be a token of printable ASCII"
    ) as refusal:
        specs_of(roles)
    assert "secret" not in str(refusal.value)


async def test_what_json_cannot_hold_is_an_error_of_the_role() -> None:
    async with endpoint(said("yes")) as (player, asked):
        with pytest.raises(RoleError, match="the role judge: what it is asked cannot be written as JSON"):
            await asked_and_kept(player, Ask((Message(role="user", content="\ud800"),)), 0)
        assert text_of((await asked_and_kept(player, HELLO, 0)).message) == "yes"
    assert len(asked) == 1


async def test_arguments_that_json_can_write_and_no_file_can_stay_text() -> None:
    function = {"name": "add", "arguments": '{"a": "\\ud800"}'}
    async with endpoint(said(None, tool_calls=[{"id": "1", "type": "function", "function": function}])) as (player, _):
        reply = await asked_and_kept(player, HELLO, 0)
        assert reply.message["tool_calls"][0]["function"] == function
        assert (await asked_and_kept(player, HELLO, 0)).is_cached


async def test_a_tool_with_a_number_that_json_lacks_is_an_error_of_the_role() -> None:
    odd = ToolSpec(name="add", description="Add.", parameters={"default": float("nan")})
    async with endpoint(said("never")) as (player, asked):
        with pytest.raises(RoleError, match=r"the role judge: .*not JSON compliant"):
            await asked_and_kept(player, Ask(HELLO.messages, (odd,)), 0)
    assert not asked


@pytest.mark.parametrize("status", [425, 429, 503, 520, 524, 529])
async def test_an_endpoint_that_is_away_for_a_moment_is_asked_again(status: int) -> None:
    async with endpoint(None, (status, b""), said("yes")) as (player, asked):
        assert text_of((await asked_and_kept(player, HELLO, 0)).message) == "yes"
    assert len(asked) == 3


@pytest.mark.parametrize("kind", ["thinking", "redacted_thinking", "reasoning"])
async def test_the_thoughts_of_a_model_are_no_part_of_its_reply(kind: str) -> None:
    parts = [{"type": kind, "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"}]
    choice = {"message": {"role": "assistant", "content": parts}}
    async with endpoint((200, json.dumps({"choices": [choice]}).encode())) as (player, _):
        assert (await asked_and_kept(player, HELLO, 0)).message == Message(role="assistant", content="yes")


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        (said("I would", "content_filter", USED), 34),
        (said("I would", "content_filter"), 1),
        ((200, json.dumps({"error": "x", "usage": USED}).encode()), 34),
        ((200, b'{"error": "x"}'), 0),
    ],
)
async def test_the_tokens_of_an_answer_that_is_no_reply_are_used(answer: tuple[int, bytes], tokens: int) -> None:
    async with endpoint(answer) as (player, _):
        with pytest.raises(RoleError, match=r"withheld|without choices"):
            await asked_and_kept(player, HELLO, 0)
        assert player._replies.used(player._endpoint) == tokens


async def test_a_silent_endpoint_fails_at_the_deadline_and_so_does_the_wait_for_it() -> None:
    async with silent() as (url, _):
        players = Players()
        player = players.of(RoleSpec("judge", RoleKeys(url=url, model="m", timeout_s=0.3, concurrency=1)))
        with pytest.raises(RoleError, match=r"the role judge: .* gave no answer within 0.3 s"):
            await asked_and_kept(player, HELLO, 0)
        await player._slots.acquire()
        with pytest.raises(RoleError, match=r"had no connection free within 0.3 s: raise roles.judge.concurrency"):
            await asked_and_kept(player, HELLO, 0)
        await players.aclose()


async def test_a_request_ends_when_nobody_waits_for_it_any_more() -> None:
    async with silent() as (url, heard):
        players = Players()
        player = players.of(RoleSpec("judge", RoleKeys(url=url, model="m")))
        before = asyncio.all_tasks()
        waiting = [asyncio.create_task(asked_and_kept(player, HELLO, 0)) for _ in range(2)]
        await heard.get()
        waiting[0].cancel()
        await asyncio.wait({waiting[0]})
        [asking] = player._asking.values()
        assert not asking.task.done()
        waiting[1].cancel()
        await asyncio.wait({*waiting, asking.task})
        assert asking.task.cancelled()
        assert player._asking == {}
        await players.aclose()
        assert {task for task in asyncio.all_tasks() - before if "listen" not in repr(task)} == set()


async def spent(url: str, files: ReplyFiles, budget: int, order: Sequence[int]) -> list[RoleReply]:
    """The replies that workers of a run get, asked one after another in this order until the budget is used."""
    keys = RoleKeys(url=url, model="m", concurrency=8, token_budget=budget, temperature=1.0)
    all_players = [Players(files, worker) for worker in range(files.workers)]
    workers = [players.of(RoleSpec("judge", keys)) for players in all_players]
    assert {worker._slots._value for worker in workers} == {8 // files.workers}
    given = []
    with suppress(RoleError):
        for seed, worker in enumerate(order):
            given.append(await asked_and_kept(workers[worker], HELLO, seed))
    await asyncio.gather(*(players.aclose() for players in all_players))
    return given


@pytest.mark.parametrize("order", [[0] * 9, [0, 1, 2, 3] * 2, [3, 3, 1, 1, 1, 1]])
async def test_the_budget_is_one_of_all_workers_however_they_divide_the_calls(order: list[int], tmp_path: Path) -> None:
    async with answering(said("yes", usage=USED)) as (url, asked):
        assert len(await spent(url, ReplyFiles.begun(tmp_path, 4), 100, order)) == len(asked) == 3


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (2, 3)])
async def test_a_resume_with_another_number_of_workers_has_the_replies_and_the_rest_of_the_budget(
    before: int, after: int, tmp_path: Path
) -> None:
    async with answering(said("yes", usage=USED)) as (url, asked):
        assert len(await spent(url, ReplyFiles.begun(tmp_path, before), 68, [0, before - 1, 0])) == 2
        again = await spent(url, ReplyFiles.begun(tmp_path, after), 102, [after - 1, 0, after - 1, 0])
    assert [reply.is_cached for reply in again] == [True, True, False]
    assert len(asked) == 3


async def test_a_worker_that_is_started_again_in_the_same_run_has_what_it_had(tmp_path: Path) -> None:
    files = ReplyFiles.begun(tmp_path, 2)
    async with answering(said("yes", usage=USED)) as (url, _):
        assert len(await spent(url, files, 34, [1, 1])) == 1
        assert [reply.is_cached for reply in await spent(url, files, 34, [1])] == [True]
        (tmp_path / "1-1.used").unlink()  # the process ended before it was written
        assert [reply.is_cached for reply in await spent(url, files, 34, [1, 0])] == [True]


async def test_replies_of_a_process_that_was_killed_are_found(tmp_path: Path) -> None:
    async with answering(said("yes", usage=USED)) as (url, _):
        async with endpoint(url=url, files=ReplyFiles.begun(tmp_path / "run", 1)) as (player, _):
            await asked_and_kept(player, HELLO, 0)
            copytree(tmp_path / "run", tmp_path / "killed")
        files = ReplyFiles.begun(tmp_path / "killed", 1)
        async with endpoint(url=url, files=files) as (player, _):
            assert (await asked_and_kept(player, HELLO, 0)).is_cached
    assert list(files.spent.values()) == [34]


async def test_files_of_earlier_versions_are_those_of_an_earlier_start(tmp_path: Path) -> None:
    async with answering(said("yes", usage=USED)) as (url, _):
        await spent(url, ReplyFiles.begun(tmp_path, 1), 34, [0])
        (tmp_path / "1-0.sqlite").rename(tmp_path / "7.sqlite")
        files = ReplyFiles.begun(tmp_path, 1)
        assert (files.of(0), list(files.spent.values())) == (tmp_path / "8-0.sqlite", [34])
        assert [reply.is_cached for reply in await spent(url, files, 34, [0, 0])] == [True]


def test_a_file_that_cannot_be_read_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "1-0.sqlite").write_bytes(b"garbage" * 1000)
    with pytest.raises(
        RunError, match=r"cannot open .*/1-0\.sqlite, .*: file is not a database; move it away and resum"
    ):
        ReplyFiles.begun(tmp_path, 1)
    with pytest.raises(RunError, match=r"cannot open .*/1-0\.sqlite"):
        Replies(ReplyFiles(tmp_path))
    with pytest.raises(RunError, match=r"cannot open .*/x/1-0\.sqlite"):
        Replies(ReplyFiles(tmp_path / "1-0.sqlite" / "x"))


def test_a_file_that_another_process_has_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "LOCK_S", 0.1)
    files = ReplyFiles(tmp_path)
    held = Replies(files)
    with pytest.raises(RunError, match=r"cannot open .*/1-0\.sqlite, .* locked; another process has it"):
        Replies(files)
    held.close()
    Replies(files).close()


def test_the_key_of_an_endpoint_is_not_shown() -> None:
    assert "secret" not in repr(RoleSpec("judge", RoleKeys(model="policy"), "secret"))
