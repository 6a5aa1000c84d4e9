"""Every dataset of the library is an environment whose answers are right, whose tasks are the same everywhere, and in
which nothing that a model writes is executed."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: pip install 'reasoning-gym>=0.1.25'")

from agentrl_reasoning_gym.entries import UNSOLVED, generated, tasks_of
from agentrl_reasoning_gym.library import NAMES, Entry, dataset
from agentrl_reasoning_gym.sandboxed import SandboxedScorer
from agentrl_reasoning_gym.scoring import LONGEST, SYMBOLIC, Scorer, is_answer
from agentrl_reasoning_gym.session import check
from agentrl_sandbox import UnavailableError, describe

from agentrl.env import Env, StopReason, env_config, make_env, play, resolve, testing
from agentrl.errors import ConfigError, EnvError, UnknownNameError

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),  # of the library
]

HASHED = ("isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note", "word_ladder")
NO_ANSWERS = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
ANY_ANSWER = {"game_of_life_halting"}


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    testing.close_shared_sync()


@pytest.fixture
async def sandboxed(request: pytest.FixtureRequest) -> AsyncIterator[SandboxedScorer]:
    try:
        describe(packages=("reasoning-gym",))
    except UnavailableError as error:
        pytest.skip(f"no sandbox here: {error}")
    scorer = SandboxedScorer(request.param, {}, most=1)
    yield scorer
    await scorer.aclose()


def executing(file: Path) -> list[str]:
    """Answers that create a file if anything executes them, in the forms that the scorers expect."""
    touch = f"__import__('os').system('touch {file}')"
    return [touch, f"[{touch}]", f"x + {touch}", f"(lambda: {touch})()"]


def entries(name: str, count: int = 2) -> list[dict[str, Any]]:
    made = dataset(name, {}, size=count)
    return [made[index] for index in range(count)]


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(SYMBOLIC)))
def test_answers_score_1_and_junk_scores_little_and_runs_nothing(name: str, tmp_path: Path) -> None:
    scorer, forged = Scorer(name, {}), tmp_path / "executed"
    for entry in entries(name):
        assert name in NO_ANSWERS or scorer(entry["answer"], entry) == pytest.approx(1.0)
        for junk in (None, "", "I do not know", *executing(forged), "9" * (LONGEST + 1)):
            assert name in ANY_ANSWER or scorer(junk, entry) <= 0.5, junk
    assert not forged.exists()


@pytest.mark.parametrize("sandboxed", SYMBOLIC, indirect=True)
async def test_expressions_are_scored_in_a_sandbox(sandboxed: SandboxedScorer, request: Any, tmp_path: Path) -> None:
    forged = tmp_path / "executed"
    for entry in entries(request.node.callspec.params["sandboxed"]):
        assert await sandboxed(entry["answer"], entry) == 1.0
        for junk in (None, "", "I do not know", *executing(forged), "9" * (LONGEST + 1)):
            assert await sandboxed(junk, entry) <= 0.05
    assert not forged.exists()


@pytest.mark.parametrize("sandboxed", SYMBOLIC, indirect=True)
async def test_right_answers_earn_1_in_a_sandbox(sandboxed: SandboxedScorer, request: Any) -> None:
    made = [each for each in entries(request.node.callspec.params["sandboxed"], 60) if UNSOLVED not in each["answer"]]
    assert [each["answer"] for each in made if await sandboxed(each["answer"], each) != 1.0] == []


@pytest.mark.parametrize("sandboxed", ["puzzle24"], indirect=True)
async def test_more_answers_than_sandboxes_are_scored_at_once(sandboxed: SandboxedScorer) -> None:
    entry = entries("puzzle24")[0]
    async with asyncio.timeout(30):  # less than a pool waits for a sandbox
        assert await asyncio.gather(*(sandboxed(entry["answer"], entry) for _ in range(8))) == [1.0] * 8


@pytest.mark.parametrize("sandboxed", ["puzzle24"], indirect=True)
async def test_an_expression_that_never_ends_scores_0_and_the_next_one_is_scored(sandboxed: SandboxedScorer) -> None:
    [entry] = entries("puzzle24", 1)
    assert await sandboxed("9**9**9**9", entry) == 0.0
    assert await sandboxed(entry["answer"], entry) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')", "x.__class__", "print(1)", "test()", "[x for x in y]", "lambda: x", "'a'", "x;y", "S.Half",
        "globals()", "24 if x else 1", "{1: 2}", "a_b", "é",
    ],
)  # fmt: skip
def test_the_parser_accepts_no_code(text: str) -> None:
    with pytest.raises(ValueError, match="not an expression"):
        check(text)


@pytest.mark.parametrize(
    "text", ["(3+5)*6/2", "x**3/3 - 2*sin(x) + C", "-x**2.5*exp(-x/2)", "log(Abs(x)) + pi*sqrt(2)"]
)
def test_the_parser_accepts_mathematics(text: str) -> None:
    check(text)


def test_all_datasets_of_the_library_have_a_name() -> None:
    assert len(NAMES) == 105


@pytest.mark.parametrize("name", HASHED)
def test_the_entries_do_not_depend_on_the_hash_seed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        made.append(generated(name, {}, 0, 3, 100.0))
    assert made[0] == made[1]


def test_programs_give_the_same_entries_in_every_process_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = (generated("codeio", {}, 0, 280, 100.0) for _ in range(2))
    # Without seeds 7 of them differ; one, which draws a few signs, may be left out in one of the two only.
    assert sum(one != other for one, other in zip(first, second, strict=True)) <= 1
    assert first.count(None) < 10
    assert not list(tmp_path.iterdir()), "the programs wrote files into the user's folder"
    splits = tasks_of("codeio", [None, *first], 0.1)
    assert "codeio/0" not in {task.id for tasks in splits.values() for task in tasks}


@pytest.mark.parametrize(
    ("name", "answer"),
    [("complex_arithmetic", "nan"), ("complex_arithmetic", "nan+nanj"), ("fraction_simplification", ""),
     ("fraction_simplification", None)],
)  # fmt: skip
def test_what_is_no_answer_gives_0(name: str, answer: str | None) -> None:
    assert [Scorer(name, {})(answer, entry) for entry in entries(name, 8)] == [0.0] * 8
    assert any(dataset(name, {}).score_answer(answer, entry) > 0 for entry in entries(name, 8))


def test_a_right_answer_may_be_long() -> None:
    entry = Entry(question="?", answer="7" * (LONGEST + 1), metadata={})
    assert is_answer(entry["answer"], entry)
    assert not is_answer(2 * entry["answer"] + "7", entry)


@pytest.mark.parametrize("answer", [None, " ", "inf"])
async def test_what_is_no_answer_reaches_no_sandbox(answer: str | None) -> None:
    [entry] = entries("countdown", 1)
    assert await SandboxedScorer("countdown", {})(answer, entry) == 0.0


def test_a_scorer_that_fails_gives_0() -> None:
    [entry] = entries("prime_factorization", 1)
    with pytest.raises(ValueError, match=r"could not convert|invalid literal"):
        dataset("prime_factorization", {}).score_answer("I do not know", entry)
    assert Scorer("prime_factorization", {})("I do not know", entry) == 0.0


def test_the_splits_share_no_question_and_repeated_questions_count_once() -> None:
    made = entries("leg_counting", 60)
    splits = tasks_of("leg_counting", [*made, *made], 0.1)
    train, test = ([task.data["question"] for task in splits[split]] for split in ("train", "test"))
    assert not set(train) & set(test)
    assert sorted(train + test) == sorted({entry["question"] for entry in made})


def test_an_integral_that_the_library_could_not_solve_is_no_task() -> None:
    made = entries("intermediate_integration", 100)
    unsolved = f"intermediate_integration/{next(n for n, one in enumerate(made) if UNSOLVED in one['answer'])}"
    tasks = {task.id for split in tasks_of("intermediate_integration", made, 0.1).values() for task in split}
    assert unsolved not in tasks
    assert len(tasks) > 80


def test_too_few_questions_are_refused_with_the_keys_to_change() -> None:
    with pytest.raises(EnvError, match=r"rg:leg_counting: 4 entries contain 1 different questions, and none for"):
        tasks_of("leg_counting", entries("leg_counting", 1) * 4, 0.1)


def test_settings_of_a_dataset_are_keys() -> None:
    config = env_config(resolve("rg:leg_counting"), {"max_animals": "3"})
    assert config.max_animals == 3
    with pytest.raises(ConfigError, match=r"max_animal\b.*max_animals"):
        env_config(resolve("rg:leg_counting"), {"max_animal": 3})
    with pytest.raises(ConfigError, match=r"rg:leg_counting: .*see the --env"):
        make_env("rg:leg_counting", min_animals=9, max_animals=3).preflight()


def test_names_and_versions_are_checked() -> None:
    with pytest.raises(
        UnknownNameError, match=r"unknown dataset of reasoning-gym 'leg_count'\. Did you mean 'leg_counting'"
    ):
        resolve("rg:leg_count")
    with pytest.raises(ConfigError, match=r"reasoning-gym 0\.1\.\d+ is installed"):
        resolve("rg:leg_counting@9")
    assert resolve("rg:leg_counting@0.1") is resolve("rg:leg_counting")


def test_without_a_sandbox_a_scorer_that_executes_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentrl_reasoning_gym.env.PACKAGES", ("no-such-package",))
    with pytest.raises(ConfigError, match="rg:puzzle24: its scorer executes answers, so it needs a sandbox"):
        make_env("rg:puzzle24").preflight()
    assert make_env("rg:leg_counting").preflight() == ""


def test_it_keeps_the_promises_of_an_environment() -> None:
    testing.check_environment(lambda: make_env("rg:leg_counting", size=40), tasks=2, episodes=8, timeout_s=250)


def test_a_rehearsal_scores_the_text_between_the_tags() -> None:
    env: Env = make_env("rg:leg_counting", size=40)
    [episode] = play(env, [""])
    [answer] = env.oracle(episode.task)
    right = testing.rehearse(env, [f"Let me count. {answer}"], timeout_s=100)
    assert (right.reward, right.stop_reason) == (1.0, StopReason.ENV_DONE)
    assert testing.rehearse(env, [answer.replace("<answer>", "").replace("</answer>", "")]).reward == 0.0


def test_an_answer_that_is_close_earns_a_part_and_is_no_success() -> None:
    env: Env = make_env("rg:prime_factorization", size=40, min_value=12, max_value=16)
    [episode] = play(env, [""])
    entry = episode.task.data
    for answer, reward, success in ((entry["metadata"]["number"], 0.5, 0), (entry["answer"], 1, 1)):
        [found] = play(env, [f"<answer>{answer}</answer>"])
        assert found.success is not None
        assert (found.reward, found.success.value) == (reward, success), entry


def without_tags(answer_in: str) -> tuple[Env, str]:
    """An environment that needs no tags, and the answer to its first task."""
    env: Env = make_env("rg:leg_counting", size=40, answer_in=answer_in, system="")
    [episode] = play(env, [""])
    assert list(env.canaries(episode.task)) == ["silence"]
    (answer,) = cast("list[str]", env.oracle(episode.task))
    assert answer.isdecimal()
    return env, answer


def test_without_tags_the_whole_response_is_the_answer() -> None:
    env, answer = without_tags("response")
    assert testing.rehearse(env, [f" {answer}\n"], timeout_s=100).reward == 1.0
    assert testing.rehearse(env, [f"<answer>{answer}</answer>"], timeout_s=100).reward < 0.5


@pytest.mark.parametrize(
    ("text", "right"),
    [("{0}", True), ("12 + 7 is {0}.", True), ("{0} legs of 5000", False), ("{0}-", True), ("none", False)],
)
def test_without_tags_the_last_number_may_be_the_answer(text: str, right: bool) -> None:
    env, answer = without_tags("number")
    assert (testing.rehearse(env, [text.format(answer)], timeout_s=100).reward == 1.0) == right


def test_the_readme_runs() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(snippet, "README.md", "exec"), {})  # noqa: S102
    assert inspect.isclass(resolve("rg:countdown"))
