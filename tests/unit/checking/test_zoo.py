"""Every animal of the zoo is caught by its own check, and environments without a fault pass all of them."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from agentrl_sandbox import UnavailableError, choose

from agentrl.checking import attempts, canaries, hanging, leaks, running
from agentrl.checking.catalogue import CHECKS
from agentrl.checking.check import Check, Level, Status, Subject
from agentrl.checking.running import run_checks
from agentrl.env import Context, Limits, Message, Policy, Task, reward, shared
from agentrl.env.testing import cancellation
from agentrl.env.testing.episodes import play_each, sample_tasks
from agentrl.packaging.scaffold import TEMPLATES, PackageName, write_package
from agentrl.types import text_of
from tests.unit.packaging.wheels import write_base
from tests.zoo import behaviour, contract, good, packages, truth

LEAST = 25
HOUSES = (contract, truth, behaviour)
BY_NAME = {check.name: check for check in CHECKS}
ANIMALS = {
    f"{name}-{animal.caught_by}": animal
    for house in HOUSES
    for name, animal in vars(house).items()
    if "caught_by" in getattr(animal, "__dict__", ())
}
PACKAGED = [check for check in CHECKS if check.level is Level.PACKAGE]
PLAYED = [check for check in CHECKS if check.level in (Level.CONTRACT, Level.TRUTH, Level.BEHAVIOUR)]


def subject(animal: type) -> Subject:
    house = next(house for house in (*HOUSES, good) if house.__name__ == animal.__module__)
    return Subject.named(f"{Path(house.__file__ or '').resolve()}:{animal.__name__}", {})


@pytest.mark.parametrize("animal", ANIMALS.values(), ids=ANIMALS)
def test_an_animal_is_caught_by_its_own_check(animal: type) -> None:
    check: Check = BY_NAME[animal.caught_by]  # type: ignore[attr-defined]
    [result] = run_checks(subject(animal), [check])
    assert result.status is Status.FAILED, result.text
    assert result.text


@pytest.mark.parametrize("twins", [contract.Overlapping, contract.Disguised])
def test_of_many_tasks_that_are_not_held_out_a_few_are_named(twins: type) -> None:
    [result] = run_checks(subject(twins), [BY_NAME["disjoint"]])
    assert result.text.endswith(f" and {len(contract.PAIRS) - 3} more")
    assert len(result.text) < 240


def test_the_zoo_has_an_animal_for_every_check() -> None:
    assert len(ANIMALS) >= LEAST
    caught = {animal.caught_by for animal in ANIMALS.values()} | {check for check, _ in packages.ANIMALS.values()}
    assert caught == {check.name for check in (*PLAYED, *PACKAGED)}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("env", [good.Sums, good.Adder, good.Levels, good.Race, good.Seated, good.Guessing])
def test_environments_without_a_fault_pass_every_check(env: type) -> None:
    faults = [f"{r.check.name}: {r.text}" for r in run_checks(subject(env), PLAYED) if not r.status.is_fine]
    assert faults == []


def test_an_environment_without_an_oracle_fails_only_what_needs_one() -> None:
    found = list(run_checks(subject(truth.Silent), PLAYED))
    assert [r.check.name for r in found if r.status is Status.FAILED] == ["oracle", "state"]
    assert [r.check.name for r in found if r.status is Status.SKIPPED] == [
        "listing",
        "unclosed-think",
        "constant",
        "part",
        "padding",
        "groups",
        "options",
        "hanging-tool",
        "odd-calls",
    ]


class Hanging(good.Sums):
    limits = Limits(setup_timeout_s=0.2)

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        await asyncio.Event().wait()
        return []


class Unloaded(good.Sums):
    @shared
    async def table(self) -> None:
        await asyncio.Event().wait()


def test_what_takes_too_long_to_load_is_not_checked_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "LOAD_S", 0.1)
    first, *others = run_checks(Subject("unloaded", Unloaded), PLAYED)
    assert (first.status, "check it with fewer tasks" in first.text) == (Status.UNCHECKED, True)
    assert {r.status for r in others} == {Status.UNCHECKED}


@pytest.mark.parametrize(("env", "basis"), [(contract.Homesick, "definition"), (Hanging, "episode")])
def test_after_an_error_in_what_every_check_needs_the_rest_is_not_checked(env: type, basis: str) -> None:
    found = list(run_checks(Subject("broken", env), PLAYED))
    assert [r.check.name for r in found if r.status is Status.FAILED] == [basis]
    place = [check.name for check in PLAYED].index(basis)
    assert {(r.status, r.text) for r in found[place + 1 :]} == {(Status.UNCHECKED, f"not checked: see {basis}")}


def test_a_tool_that_changes_the_task_is_one_failure_that_names_it() -> None:
    found = list(run_checks(subject(contract.Drawer), PLAYED))
    [failed] = [r for r in found if r.status is Status.FAILED]
    assert "Drawer: a call of take changed its task, which all episodes of the task share" in failed.text
    assert "change a copy, and keep it in ctx.state" in failed.text


class Crashing(good.Sums):
    @reward
    def right(self, ctx: Context) -> float:
        right = super().right(ctx)
        return right / (1.0 - right)


def test_an_error_in_every_ordinary_episode_is_one_failure() -> None:
    found = list(run_checks(Subject("crashing", Crashing), PLAYED))
    assert [r.check.name for r in found if r.status is Status.FAILED] == ["oracle"]
    others = [r for r in found if r.check.level is not Level.CONTRACT and r.status is not Status.FAILED]
    assert {r.status for r in others} == {Status.UNCHECKED}
    [text] = {r.text for r in others}
    assert "no ordinary episode ends well: an ordinary episode at task '11+31' (train) has no reward" in text
    assert "ZeroDivisionError" in text


class Cancelling(good.Sums):
    @reward
    def right(self, ctx: Context) -> float:
        if not ctx.text.isdigit():
            raise asyncio.CancelledError("no number")
        return super().right(ctx)


def test_a_cancellation_that_a_method_raises_fails_the_check_that_ran() -> None:
    state, oracle = run_checks(Subject("cancelling", Cancelling), [BY_NAME["state"], BY_NAME["oracle"]])
    assert (state.status, oracle.status) == (Status.FAILED, Status.PASSED)
    assert re.fullmatch(r"CancelledError: no number \(test_zoo.py:\d+\)", state.text)


def test_a_working_folder_that_disappears_is_named() -> None:
    loop, leftovers = run_checks(subject(behaviour.Vanishing), [BY_NAME["event-loop"], BY_NAME["leftovers"]])
    assert loop.status is Status.PASSED, loop.text
    assert leftovers.text.endswith(
        "changes the working folder, which all episodes of a worker share, to one that no longer exists"
    )


class Stumbling(good.Guessing):
    def oracle(self, task: Task) -> Policy:
        return lambda messages: str(int(text_of(messages[0])))


class Exhausted(good.Sums):
    turns = iter(())

    def oracle(self, task: Task) -> Policy:
        return lambda _: next(self.turns)


class Tripping(good.Sums):
    def canaries(self, task: Task) -> dict[str, Policy]:
        return {"twice": lambda messages: str(messages["twice"])}  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("env", "check", "named"),
    [
        (Stumbling, "oracle", "Stumbling.oracle"),
        (Stumbling, "empty", "Stumbling.oracle"),
        (Tripping, "canaries", "Tripping.canaries"),
        (Exhausted, "oracle", "the policy"),
        (Exhausted, "empty", "the policy"),
    ],
)
def test_an_oracle_or_a_canary_that_raises_is_named(env: type, check: str, named: str) -> None:
    [result] = run_checks(Subject("raising", env), [BY_NAME[check]])
    assert re.search(rf"{named} \(test_zoo.py:\d+\)(: 'twice')? raised \w+( at turn 1)?: .", result.text)
    assert "engine" not in result.text


class Thinking(good.Sums):
    def oracle(self, task: Task) -> Policy:
        return [f"<think>Add them.</think>{sum(task.data)}"]

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text.rpartition("</think>")[2].strip() == str(sum(ctx.task.data)))


class Strict(good.Guessing):
    def oracle(self, task: Task) -> Policy:
        bisect = super().oracle(task)

        def strict(messages: list[Message]) -> str:
            assert text_of(messages[-1]) != "no number", "a guess is a number"
            return str(bisect(messages))  # type: ignore[operator]

        return strict


@pytest.mark.parametrize("env", [Thinking, Strict])
def test_a_solution_that_thinks_or_knows_no_other_replies_is_no_fault_of_the_environment(env: type) -> None:
    [result] = run_checks(Subject("thinking", env), [BY_NAME["unclosed-think"]])
    assert result.status is Status.PASSED, result.text


class Larger(good.Sums):
    """Asks for the larger of two numbers, which is the first in 6 of the 8 tasks that are read first."""

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split} {n}", (50, n) if n % 16 in (0, 5, 7) else (n, 50)) for n in range(64)]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content="Which is larger, {} or {}?".format(*task.data))]

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text.strip() == str(max(ctx.task.data)))

    def oracle(self, task: Task) -> Policy:
        return [str(max(task.data))]


def test_a_reader_that_is_right_by_chance_reads_more_tasks() -> None:
    tasks = asyncio.run(sample_tasks(Larger(), leaks.FEW))
    assert sum(task.data[0] > task.data[1] for task in tasks) > leaks.LIMIT * len(tasks)
    [result] = run_checks(Subject("larger", Larger), [BY_NAME["leak"]])
    assert result.status is Status.PASSED, result.text


class Decimal(good.Sums):
    """Takes 42 for 42.0, and 4 for 4.0."""

    @reward
    def right(self, ctx: Context) -> float:
        return float(re.fullmatch("[0-9.]{1,9}", ctx.text) is not None and float(ctx.text) == sum(ctx.task.data))

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split} {n}", (n, n / 10)) for n in range(9)]

    def oracle(self, task: Task) -> Policy:
        return [f"{sum(task.data):.2f}"]


class Short(Decimal):
    """Has solutions of one digit."""

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split} {n}", (n, 1)) for n in range(8)]

    def oracle(self, task: Task) -> Policy:
        return [str(sum(task.data))]


class Explained(Short):
    """Reads the first number; its oracle explains it."""

    @reward
    def right(self, ctx: Context) -> float:
        return float(re.findall("[0-9]+", ctx.text)[:1] == [str(sum(ctx.task.data))])

    def oracle(self, task: Task) -> Policy:
        return [f"{sum(task.data)}, because {task.data[0]} + {task.data[1]} = {sum(task.data)}"]


class Metric(Explained):
    """Its solutions have units, which an answer need not have."""

    def oracle(self, task: Task) -> Policy:
        return [f"{sum(task.data)}{'km' if task.index % 2 else 'kg'}"]


class Polar(good.Sums):
    """Takes y for yes."""

    def _word(self, task: Task) -> str:
        return "no" if sum(task.data) % 2 else "yes"

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text.strip() in (self._word(ctx.task), self._word(ctx.task)[0]))

    def oracle(self, task: Task) -> Policy:
        return [self._word(task)]


class Partial(good.Sums):
    """Pays half for the first digit, and a little for an explanation."""

    @reward
    def right(self, ctx: Context) -> float:
        said, right = (ctx.text.split() or [""])[-1], str(sum(ctx.task.data))
        return float(said == right) or 0.5 * (said[:1] == right[:1])

    @reward(weight=0.1)
    def explained(self, ctx: Context) -> float:
        return float(len(ctx.text.split()) > 20)


class Brief(good.Sums):
    """Charges for length."""

    @reward
    def right(self, ctx: Context) -> float:
        return float(str(sum(ctx.task.data)) in ctx.text.split()) - min(len(ctx.text) / 1000, 0.5)


@pytest.mark.parametrize("name", ["part", "padding"])
@pytest.mark.parametrize("env", [Decimal, Short, Explained, Metric, Polar, Partial, Brief])
def test_shorter_and_longer_forms_of_a_solution_are_no_fault(env: type, name: str) -> None:
    [result] = run_checks(Subject("forms", env), [BY_NAME[name]])
    assert result.status.is_fine, result.text


class Sluggish(good.Sums):
    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        await asyncio.sleep(0.5)
        return super().setup(task, ctx)


@pytest.mark.parametrize("limit", ["episode_timeout_s", "check"])
def test_a_deadline_of_a_check_is_no_fault_of_the_environment(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check = BY_NAME["empty"]
    if limit == "check":
        monkeypatch.setattr(running, "LOADS", 0)
        check = replace(check, timeout_s=0.2)
    else:
        monkeypatch.setattr(attempts, "SETTINGS", replace(attempts.SETTINGS, episode_timeout_s=0.2))
        monkeypatch.setattr(attempts.attempt, "__defaults__", (attempts.SETTINGS,))
    [result] = run_checks(Subject("slow", Sluggish), [check])
    assert result.status is Status.UNCHECKED, result.text
    assert "the machine or the environment is slow" in result.text


async def test_slow_episodes_are_played_at_once_and_quick_ones_one_after_another() -> None:
    running, most = 0, 0

    async def play(seconds: float) -> float:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(seconds)
        running -= 1
        return seconds

    assert await play_each(play, [0.01, 0.02, 0.03]) == [0.01, 0.02, 0.03]
    assert most == 1
    assert await play_each(play, [0.6, 0.2, *[0.1] * 30]) == [0.6, 0.2, *[0.1] * 30]
    assert most == 16


async def test_a_fault_ends_the_episodes_that_are_played_beside_it() -> None:
    ended = list[str]()

    async def play(name: str) -> None:
        try:
            await asyncio.sleep({"slow": 0.6, "broken": 0.05}.get(name, 30.0))
        finally:
            ended.append(name)
        assert name != "broken"

    with pytest.raises(AssertionError):
        await play_each(play, ["slow", "broken", "long"])
    assert ended == ["slow", "broken", "long"]


class Sluggard(good.Sums):
    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        await asyncio.sleep(0.2)
        return super().setup(task, ctx)


@pytest.mark.parametrize("name", ["order", "process", "event-loop"])
def test_a_slow_environment_is_checked_with_fewer_episodes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "IN_TURN_S", 1.7)
    env = Subject.named(f"{Path(__file__).resolve()}:Sluggard", {})
    [result] = run_checks(env, [replace(BY_NAME[name], timeout_s=60.0)])
    assert (result.status, result.text) == (Status.PASSED, "its episodes are slow; tasks of each split: 1")


def test_the_policy_that_repeats_the_prompt_leaves_out_its_own_messages() -> None:
    env, task = good.Sums(), Task("one")
    repeat = canaries.prompt(env, task, [task])
    assert callable(repeat)
    messages = [Message(role=role, content=role) for role in ("system", "user", "assistant", "tool", "assistant")]
    assert repeat(messages) == "system\nuser\ntool"


class Lenient(good.Sums):
    @reward
    def right(self, ctx: Context) -> float:
        return super().right(ctx) if ctx.text.isdigit() else 0.3


def test_what_chance_may_earn_passes_with_a_note() -> None:
    [result] = run_checks(Subject("lenient", Lenient), [BY_NAME["noise"]])
    assert (result.status, result.text) == (Status.PASSED, "mean reward 0.3, above 0: up to 0.4 may be chance")


@pytest.mark.parametrize("name", ["hanging-agent", "hanging-scorer", "cancellation", "leftovers"])
def test_the_time_to_load_is_no_fault_of_an_episode(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(good, "LOADING_S", 2.0 if name == "leftovers" else 1.0)
    monkeypatch.setattr(hanging, "PATIENCE_S", 0.9)
    monkeypatch.setattr(cancellation, "MOST_S", 0.9)
    check = replace(BY_NAME[name], timeout_s=4.0)
    [result] = run_checks(Subject("slow", good.Slow), [check])
    assert result.status is Status.PASSED, result.text


class Planner(good.Sums):
    def oracle(self, task: Task) -> Policy:
        time.sleep(0.2)
        return super().oracle(task)


def test_an_oracle_may_take_long_because_no_run_asks_it() -> None:
    [result] = run_checks(Subject("planner", Planner), [BY_NAME["event-loop"]])
    assert result.status is Status.PASSED, result.text


def test_other_processes_find_what_relative_paths_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("agent.py").write_text("async def agent(task, ctx, model):\n    return float(await model.ask('Hi') == 'Hi')\n")
    Path("rows.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(64)))
    [result] = run_checks(Subject.named("./agent.py", {"data": "./rows.jsonl"}), [BY_NAME["process"]])
    assert result.status is Status.PASSED, result.text


def test_a_clock_that_stands_still_ends_no_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    found = run_checks(Subject("frozen", good.Sums), [BY_NAME["state"], BY_NAME["crowd"]])
    assert [result.text for result in found if result.status is not Status.PASSED] == []


class Dotted(good.Sums):
    def setup(self, task: Task, ctx: Context) -> list[Message]:
        print(".", end="")
        return super().setup(task, ctx)


class Redirected(good.Sums):
    def setup(self, task: Task, ctx: Context) -> list[Message]:
        sys.stdout = sys.stderr
        return super().setup(task, ctx)


@pytest.mark.parametrize("env", [Dotted, Redirected])
def test_what_an_environment_prints_is_no_verdict(env: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    [result] = run_checks(Subject.named(f"{Path(__file__).resolve()}:{env.__name__}", {}), [BY_NAME["process"]])
    assert result.status is Status.PASSED, result.text


SHIPPED = ("guess", "functions", "search", "math", "code", "./examples/coin.py", "./examples/countdown_env.py")


@cache
def without_sandbox() -> str:
    """Why no sandbox works here; "" if one does."""
    try:
        choose()
    except UnavailableError as error:
        return str(error)
    return ""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_environments_and_examples_pass_every_check(name: str) -> None:
    if name == "code" and without_sandbox():
        pytest.skip(without_sandbox())
    checks = [check for check in PLAYED if name != "code" or check.name not in LONG]
    found = run_checks(Subject.named(name, {}), checks)
    assert [f"{result.check.name}: {result.text}" for result in found if not result.status.is_fine] == []


def test_what_only_reward_models_score_is_checked_but_for_its_rewards(tmp_path: Path) -> None:
    (tmp_path / "poems.py").write_text(
        "from agentrl.env import Env, Task\n\nclass Poems(Env):\n    def tasks(self, split):\n"
        "        return [Task(f'{split} {n}', f'{split} {n}') for n in range(24)]\n\n"
        "    def setup(self, task, ctx):\n        return [{'role': 'user', 'content': f'A poem on {task.data}'}]\n"
    )
    found = list(run_checks(Subject.named(str(tmp_path / "poems.py"), {}), PLAYED))
    [definition] = [result for result in found if not result.status.is_fine]
    assert definition.check.name == "definition"
    assert "write a @reward method, or score(ctx). Only a run with reward models" in definition.text
    skipped = {result.check.name for result in found if "neither a reward nor a success" in result.text}
    assert {"oracle", "canaries", "empty", "noise", "leak"} <= skipped


def test_the_environment_of_the_readme_passes_every_check(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "README.md").read_text()
    [source] = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "(Env)" in block]
    (tmp_path / "sentences.py").write_text(source)
    found = run_checks(Subject.named(str(tmp_path / "sentences.py"), {}), PLAYED)
    assert [f"{result.check.name}: {result.text}" for result in found if not result.status.is_fine] == []


LONG = {"crowd"}
"""Left out for templates whose episodes take milliseconds: a thousand of them take half a minute."""
SLOW = ("sandbox", "agent")
PACKED = "single"
"""The template whose package is also built, installed and tested."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("template", TEMPLATES)
def test_new_packages_pass_every_check(template: str, tmp_path: Path) -> None:
    folder = tmp_path / "fresh"
    write_package(PackageName.parse(f"fresh-{template}"), template, folder)
    checks = [check for check in PLAYED if template not in SLOW or check.name not in LONG]
    found = run_checks(Subject.named(str(folder), {}), [*checks, *(PACKAGED if template == PACKED else ())])
    assert [f"{result.check.name}: {result.text}" for result in found if not result.status.is_fine] == []


# ---- packages


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the packages need."""
    folder = tmp_path_factory.mktemp("links")
    write_base(folder, "pytest")
    return folder


@pytest.fixture
def _index(links: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip install from that folder alone."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))


@pytest.mark.timeout(180)
@pytest.mark.usefixtures("_index")
@pytest.mark.parametrize("name", packages.ANIMALS)
def test_a_broken_package_is_caught_by_its_own_check(name: str, tmp_path: Path) -> None:
    caught_by, files = packages.ANIMALS[name]
    # Its class is loaded from a good package: an import that calls home would fail here as well.
    env = Subject.named(str(packages.write(tmp_path, name, {})), {})
    packages.write(tmp_path, name, files)
    if not files.get("tests/test_zoo.py", "kept"):
        (tmp_path / "tests" / "test_zoo.py").unlink()
    [result] = run_checks(replace(env, is_clean=True), [BY_NAME[caught_by]])
    assert result.status is Status.FAILED, result.text


@pytest.mark.timeout(180)
def test_what_an_unbuildable_package_lacks_is_said_once(tmp_path: Path) -> None:
    env = Subject.named(str(packages.write(tmp_path, "shy", {})), {})
    packages.write(tmp_path, "shy", packages.ANIMALS["unbuildable"][1])
    first, *others = run_checks(env, [BY_NAME[name] for name in ("build", "imports", "offline", "tests")])
    assert (first.status, "built_meta" in first.text) == (Status.FAILED, True)
    assert {(one.status, one.text) for one in others} == {
        (Status.UNCHECKED, "there is no installed package: see `build`")
    }


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("_index")
def test_a_package_without_a_fault_passes_every_check(tmp_path: Path) -> None:
    env = Subject.named(str(packages.write(tmp_path, "sound", {})), {})
    found = list(run_checks(replace(env, is_clean=True), PACKAGED))
    assert [f"{r.check.name}: {r.text}" for r in found if r.status is not Status.PASSED] == []
    assert "distributions installed; 1 passed" in found[-1].text


@pytest.mark.timeout(180)
def test_a_package_may_print_when_it_is_imported(tmp_path: Path) -> None:
    env = Subject.named(str(packages.write(tmp_path, "printing", packages.PRINTING)), {})
    found = run_checks(env, [BY_NAME[name] for name in ("build", "offline")])
    assert [f"{result.check.name}: {result.text}" for result in found if not result.status.is_fine] == []


def test_a_machine_without_network_namespaces_cuts_the_network_in_python(tmp_path: Path) -> None:
    program = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=3)"
    (tmp_path / "calls.py").write_text(program)
    command = [sys.executable, "-m", "agentrl.checking.offline", "calls"]
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    ran = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=50)
    assert "agentrl env check cuts the network: 192.0.2.1 is another machine" in ran.stderr


def test_a_file_without_a_package_is_skipped_and_says_where_to_read() -> None:
    env = Subject.named("./examples/coin.py", {})
    found = list(run_checks(env, PACKAGED))
    assert {result.status for result in found} == {Status.SKIPPED}
    assert "coin.py is in no package that announces it: see docs/share-an-env.md" in found[0].text
