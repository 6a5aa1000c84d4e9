"""The environment asks what its corpus can answer, judges as SQuAD does, and its own evidence holds."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from agentrl_search import SearchEnv, exact_match, f1, world
from agentrl_search.answers import given_answer, normalised
from agentrl_search.env import searching
from agentrl_tools import Document, Index, ServiceError
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.env import EnvDriver, Limits, Policy, Task, env_config, testing
from agentrl.errors import ConfigError, DataError


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    async with testing.no_leaks():
        yield


async def play(env: SearchEnv, task: Task, policy: Policy) -> dict[str, float | None]:
    """The value of each signal after an episode."""
    return testing.values(await testing.play_signals(env, task, policy))


async def check_evidence(env: SearchEnv, count: int) -> None:
    """On a sample of either split the oracle scores the maximum, and no canary anything."""
    for task in await testing.sample_tasks(env, count):
        assert await play(env, task, env.oracle(task)) == {"right": 1.0, "evidence": 1.0, "overlap": 1.0}, task
        for name, policy in env.canaries(task).items():
            values = await play(env, task, policy)
            assert values["right"] == values["evidence"] == 0.0, (name, task)


# --- evidence ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hops", [1, 2, 3])
async def test_the_oracle_scores_the_maximum_and_the_canaries_nothing(hops: int) -> None:
    await check_evidence(SearchEnv(hops=hops), 100)


async def test_a_search_without_an_answer_earns_its_evidence_at_most() -> None:
    env = SearchEnv()
    for task in await testing.sample_tasks(env, 20):
        policy = [searching(task.data.text), "<answer>It is in what I found.</answer>"]
        values = await play(env, task, policy)
        assert values["right"] == 0.0, task
        assert values["evidence"] in (0.0, 0.5, 1.0)


async def test_the_splits_share_no_question() -> None:
    for hops, size in ((1, 471), (2, 1015), (3, 2157)):
        driver = EnvDriver(SearchEnv(hops=hops))
        train, test = [
            {(await driver.task(split, index)).id for index in range(await driver.size(split) or 0)}
            for split in ("train", "test")
        ]
        assert not train & test
        assert len(world.questions(hops)) == size
        assert len(test) <= 256


def test_the_world_is_always_the_same_and_each_question_needs_its_documents() -> None:
    documents = {document.title: document.text for document in world.documents()}
    assert len(documents) == 143
    assert documents[next(iter(documents))].startswith(next(iter(documents)))
    for question in world.questions(2):
        first, second = question.titles
        assert second in documents[first]
        assert question.golds[0] in documents[second]
        assert first in question.text
        assert second not in question.text
    assert world.questions(2)[0].text == "What is the mayor of the birthplace of Pelvelfo Velpelfo?"


# --- the episode ------------------------------------------------------------------------------------------------


async def test_a_search_shows_documents_and_further_ones_than_allowed_are_refused() -> None:
    driver = EnvDriver(SearchEnv(searches=2, k=1, max_characters=50))
    task = await driver.task("test", 0)
    start = await driver.reset(task)
    assert [tool["name"] for tool in start.tools] == ["search"]
    result = await driver.step(searching(*task.data.titles, "a third"))
    said = [str(message["content"]) for message in result.messages]
    assert [text.startswith(f"[{title}]") for text, title in zip(said, task.data.titles, strict=False)] == [True, True]
    assert said[2] == "error: no searches are left"
    assert max(map(len, said)) <= 50 + 2 + max(map(len, task.data.titles)) + 1
    assert not result.done
    assert (await driver.step("I give up")).done
    await driver.close()


async def test_what_one_episode_found_is_not_anothers() -> None:
    driver, other = EnvDriver(SearchEnv()), EnvDriver(SearchEnv())
    task = await driver.task("test", 0)
    await driver.reset(task, member=0)
    await other.reset(task, member=1)
    await driver.step(searching(*task.data.titles))
    assert driver.ctx.state.shown >= set(task.data.titles)
    assert other.ctx.state.shown == set()
    await driver.close()
    await other.close()


@pytest.mark.parametrize("count", [1, 64, 1000])
async def test_many_episodes_at_once(count: int) -> None:
    await testing.check_concurrent(SearchEnv, count)


class Stuck:
    """A retriever that never answers."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def find(self, query: str, k: int) -> list[Document]:
        self.asked.set()
        await asyncio.Event().wait()
        return []


class Down(Stuck):
    async def find(self, query: str, k: int) -> list[Document]:
        raise ServiceError("search service down")


def stuck(retriever: Stuck, **limits: float) -> SearchEnv:
    class Env(SearchEnv):
        @property
        def retriever(self) -> Stuck:  # type: ignore[override]
            return retriever

    env = Env()
    env.limits = Limits(max_turns=8, **limits)  # type: ignore[arg-type]
    return env


async def test_a_search_that_hangs_is_told_to_the_model_in_time() -> None:
    driver = EnvDriver(stuck(Stuck(), tool_timeout_s=0.05))
    await driver.reset(await driver.task("train", 0))
    (message,) = (await driver.step(searching("x"))).messages
    assert message["content"] == "error: Env.search ran longer than 0.05 s"
    await driver.close()


async def test_a_service_that_is_down_ends_the_episode_and_is_no_zero() -> None:
    driver = EnvDriver(stuck(Down()))
    await driver.reset(await driver.task("train", 0))
    with pytest.raises(ServiceError) as caught:
        await driver.step(searching("x"))
    assert caught.value.fault == "infra"
    await driver.close()


async def distant(index: Index, query: str, k: int) -> list[Document]:
    """Finds the same, but not at once."""
    await asyncio.sleep(0)
    return index.rank(query, k)


async def test_an_episode_cancelled_wherever_it_waits_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Index, "find", distant)
    cuts = [cut async for cut in testing.cancel_everywhere(SearchEnv)]
    assert testing.model_turns(cuts) == [1, 2, 3, 4]  # the reset, searches, an answer, the signals
    loading = {(0, "SearchEnv.library"), (0, "SearchEnv.retriever"), (0, "EnvDriver.task")}
    assert testing.waits(cuts) >= loading | {(1, "distant")}


async def test_a_search_that_hangs_is_cancelled_with_its_episode() -> None:
    retriever = Stuck()
    env = stuck(retriever)
    episode = asyncio.create_task(play(env, await EnvDriver(env).task("train", 0), [searching("x"), "done"]))
    await retriever.asked.wait()
    episode.cancel()
    with pytest.raises(asyncio.CancelledError):
        await episode


async def test_interleaved_twins_see_the_same() -> None:
    first, *others = await testing.check_twins(SearchEnv)
    assert others == [first] * 3  # the questions are a list: the seed of a run orders them elsewhere


def test_gymnasium_accepts_it() -> None:
    assert "search" in {entry.name for entry in entry_points(group="agentrl.envs")}
    check_env(gymnasium.make("agentrl/search-v0").unwrapped, skip_render_check=True)


def test_unknown_keys_and_values_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"env\.hops"):
        env_config(SearchEnv, {"hop": 1})
    with pytest.raises(ConfigError, match="hops"):
        env_config(SearchEnv, {"hops": 4})
    with pytest.raises(ConfigError, match="results"):
        env_config(SearchEnv, {"service": {"url": "http://127.0.0.1"}})
    assert all(field.description for field in SearchEnv.Config.model_fields.values())


def test_the_readme_runs() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    for snippet in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(snippet, "README.md", "exec"), {})  # noqa: S102


# --- the judgement ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "golds", "exact", "overlap"),
    [
        ("Blue River", ["the blue river"], 1, 1),
        ("the blue-river!", ["Blueriver"], 1, 1),
        ("Blue", ["Blue River"], 0, 2 / 3),
        ("river river", ["Blue River"], 0, 0.5),
        ("1923", ["1922", "1923"], 1, 1),
        ("", ["x"], 0, 0),
        ("yes", ["yes"], 1, 1),
        ("yes it is", ["yes"], 0, 0),
        ("no", ["no man's land"], 0, 0),
        ("an answer", ["theanswer"], 0, 0),
    ],
)
def test_exact_match_and_f1(answer: str, golds: list[str], exact: float, overlap: float) -> None:
    assert exact_match(answer, golds) == exact
    assert f1(answer, golds) == pytest.approx(overlap)


@settings(deadline=None)
@given(st.text(), st.lists(st.text(), max_size=3))
def test_no_text_breaks_the_judgement(answer: str, golds: list[str]) -> None:
    assert 0.0 <= exact_match(answer, golds) <= 1.0
    assert 0.0 <= f1(answer, golds) <= 1.0 + 1e-9


def test_the_last_marked_answer_counts() -> None:
    assert given_answer("<answer>a</answer> no, <ANSWER> b\n</ANSWER>") == " b\n"
    assert given_answer("just words") == "just words"
    assert given_answer("<answer>open") == "<answer>open"
    assert given_answer("<answer>x" * 20_000) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [("The a-b, aé!", "ab aé"), ("an A the", ""), ("the_x a1 the—x", "thex a1 —x"), ("THÉ ²", "thé ²")],
)
def test_articles_are_words_in_every_script(text: str, expected: str) -> None:
    assert normalised(text) == expected


async def test_the_score_may_be_f1() -> None:
    task = await EnvDriver(SearchEnv()).task("test", 0)
    said = f"<answer>{task.data.golds[0]} or so</answer>"
    assert (await play(SearchEnv(), task, [said]))["right"] == 0.0
    assert 0.4 < ((await play(SearchEnv(score="f1"), task, [said]))["right"] or 0) < 1


# --- HotpotQA's files -------------------------------------------------------------------------------------------

PARAGRAPHS = [["Graz", ["Graz lies on the Mur.", " It is old."]], ["Mur", ["The Mur flows into the Drava."]]]
FACTS = [["Graz", 0], ["Mur", 0], ["Graz", 1]]
ROW = {"_id": "1", "question": "Into which river flows the river of Graz?", "answer": "Drava"}
FORMS = [
    {"context": PARAGRAPHS, "supporting_facts": FACTS},
    {
        "context": {"title": ["Graz", "Mur"], "sentences": [p[1] for p in PARAGRAPHS]},
        "supporting_facts": {"title": ["Graz", "Mur"], "sent_id": [0, 0]},
    },
    {
        "context": [{"title": title, "sentences": sentences} for title, sentences in PARAGRAPHS],
        "supporting_titles": ["Graz", "Mur"],
    },
]


@pytest.mark.parametrize("form", FORMS)
async def test_every_form_of_hotpotqa_is_understood(form: dict[str, Any], tmp_path: Path) -> None:
    rows = [ROW | form | {"_id": str(n), "question": f"{ROW['question']} {n}"} for n in range(20)]
    lines, whole = tmp_path / "hotpot.jsonl", tmp_path / "hotpot.json"
    lines.write_text("\n".join(map(json.dumps, rows)))
    whole.write_text(json.dumps(rows))
    for path in (lines, whole):
        env = SearchEnv(data=path)
        tasks = await testing.sample_tasks(env, 20)
        assert len(tasks) == 20
        values = await play(env, tasks[0], env.oracle(tasks[0]))
        assert values == {"right": 1.0, "evidence": 1.0, "overlap": 1.0}


async def test_the_evidence_holds_for_every_row_of_hotpotqas_own() -> None:
    env = SearchEnv(data=testing.data_file("qa/hotpotqa_distractor_100.jsonl"))
    assert len(await testing.sample_tasks(env, 100)) == 100
    await check_evidence(env, 100)


async def test_a_corpus_and_several_golds_may_be_given(tmp_path: Path) -> None:
    data, corpus = tmp_path / "q.jsonl", tmp_path / "c.jsonl"
    rows = [{"question": f"Which river is it, of {n}?", "golden_answers": ["the Mur", "Mura"]} for n in range(20)]
    data.write_text("\n".join(map(json.dumps, rows)))
    corpus.write_text(json.dumps({"title": "Mur", "contents": "A river."}))
    env = SearchEnv(data=data, corpus=corpus)
    driver = EnvDriver(env)
    task = await driver.task("train", 0)
    assert (await play(env, task, ["<answer>mura</answer>"]))["right"] == 1.0
    await driver.reset(task)
    (message,) = (await driver.step(searching("river"))).messages
    assert message["content"] == "[Mur] A river."
    await driver.close()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{oops", "q.jsonl:1: not a line of JSON"),
        ("[]", "q.jsonl:1: must be an object with a question"),
        ('{"question": "?", "answer": ""}', "q.jsonl:1: has no answer"),
        ('{"question": "?", "answer": "x", "context": [["a"]]}', "q.jsonl:1: the context is not in HotpotQA's format"),
        ("", "contains no rows"),
    ],
)
async def test_faults_of_a_file_name_their_place(line: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(line)
    with pytest.raises(DataError, match=re.escape(said)):
        await EnvDriver(SearchEnv(data=path)).size("train")
    with pytest.raises(DataError, match=re.escape(said)):
        SearchEnv(data=path).preflight()
    with pytest.raises(DataError, match="no such file"):
        await EnvDriver(SearchEnv(data=tmp_path / "none.jsonl")).size("train")


def test_files_that_are_not_there_are_refused_before_anything_starts(tmp_path: Path) -> None:
    assert SearchEnv().preflight() == ""
    with pytest.raises(DataError, match=r"none\.jsonl: no such file"):
        SearchEnv(data=tmp_path / "none.jsonl").preflight()
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl"):
        SearchEnv(corpus=tmp_path / "none.jsonl").preflight()


@pytest.mark.parametrize("template", ["Answer!", ""])
def test_a_template_without_the_question_is_refused(template: str) -> None:
    with pytest.raises(ConfigError, match=r"env\.template"):
        env_config(SearchEnv, {"template": template})
