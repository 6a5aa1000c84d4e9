"""Comparison of two evaluations: what flipped is told and sorted, and the page shows the answers as text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agentrl.cli.main import main
from agentrl.records.folder import RunFolder
from agentrl.records.store import TrajectoryStore
from agentrl.report.words import visible
from agentrl.types import Message, StopReason, Trajectory
from tests.unit.records.synthetic import trajectory
from tests.unit.report.test_html import HOSTILE, Page

PROMPT = Message(role="user", content="the question")
Rewards = dict[str, list[float | None]]


def episode(group: int, member: int, task: str, reward: float | None, text: str, env: str = "words") -> Trajectory:
    made = trajectory(group, member, reward=reward, text=text)
    messages = (PROMPT, Message(role="assistant", content=text))
    return replace(made, task_id=task, split="test", env=env, messages=messages)


def evaluated(folder: Path, step: int, rewards: Rewards, said: str, env: str = "words") -> RunFolder:
    """An evaluation with a sample for each reward of each task; what was said contains its place."""
    run = RunFolder(folder)
    run.path.mkdir(exist_ok=True)
    run.config.write_text("")
    store = TrajectoryStore(run.evaluated(step))
    store.append(
        episode(group, member, task, reward, f"{said} {group}-{member}", env)
        for group, (task, of_task) in enumerate(rewards.items())
        for member, reward in enumerate(of_task)
    )
    store.close()
    return run


BEFORE: Rewards = {"lost": [1, 1], "slipped": [1, 0], "won": [0, 0], "kept": [1, 0], "broken": [1, 1], "gone": [1]}
AFTER: Rewards = {"new": [1], "broken": [None, None], "kept": [0, 1], "won": [1, 1], "slipped": [0, 0], "lost": [0, 0]}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    evaluated(tmp_path / "run", 0, BEFORE, "early")
    return evaluated(tmp_path / "run", 40, AFTER, "late")


def test_the_terminal_tells_which_tasks_flipped_the_largest_changes_first(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", str(run.path)]) == 0
    shown = capsys.readouterr().out
    assert f"{run.path}@0 → {run.path}@40\n5 tasks in both\n" in shown
    assert f"  1 task only in {run.path}@0\n  1 task only in {run.path}@40\n" in shown
    assert "  solved  0.500 → 0.375\n" in shown
    assert (
        "\n2 worse\n  solved 1.00 → 0.00, reward 1 → 0  lost\n  solved 0.50 → 0.00, reward 0.5 → 0  slipped\n"
        "\n1 better\n  solved 0.00 → 1.00, reward 0 → 1  won\n\n1 the same\n\n1 without a result\n"
    ) in shown
    assert f"answers side by side: {run.path}/diff.html\n" in shown


def test_an_unanswered_episode_has_no_reward_to_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before: Rewards = {"silenced": [-0.5], "better": [-0.9], "lost": [1], "half": [-0.9, -0.1]}
    first = evaluated(tmp_path / "run", 0, before, "early")
    store = TrajectoryStore(first.evaluated(5))
    cut = {"sequences": (), "signals": (), "stop_reason": StopReason.CONTEXT_OVERFLOW, "messages": (PROMPT,)}
    silent = [replace(episode(n, 0, task, 0, "x"), **cut) for n, task in ((0, "silenced"), (2, "lost"), (3, "half"))]
    store.append([*silent, episode(1, 0, "better", -0.4, "late"), episode(3, 1, "half", -0.1, "late")])
    store.close()
    assert main(["diff", str(first.path)]) == 0
    shown = capsys.readouterr().out
    assert "  reward  -0.225 → -0.250\n" in shown
    assert "\n1 worse\n  solved 1.00 → 0.00, reward 1 → none  lost\n" in shown
    assert "\n1 better\n  solved 0.00 → 0.00, reward -0.9 → -0.4  better\n\n2 the same\n" in shown
    assert "unanswered · not solved · 0 tokens" in (first.path / "diff.html").read_text()
    store = TrajectoryStore(first.evaluated(9))
    store.append(silent)
    store.close()
    assert main(["diff", str(first.path)]) == 0
    assert "  reward  0.000 → none\n" in capsys.readouterr().out
    assert "0.000 → none" in (first.path / "diff.html").read_text()


def test_damaged_records_are_counted(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    [shard] = run.evaluated(40).glob("*.bin")
    shard.write_bytes(shard.read_bytes()[:-9])
    assert main(["diff", str(run.path)]) == 0
    assert f"\n  1 record of {run.path}@40 cannot be read: left out\n" in capsys.readouterr().out


def test_the_page_shows_the_best_answer_beside_the_worst(run: RunFolder) -> None:
    assert main(["diff", f"{run.path}@0", f"{run.path}@40"]) == 0
    page = Page((run.path / "diff.html").read_text())
    slipped = page.texts[page.texts.index("slipped", page.texts.index("Answers")) :]
    assert slipped.index("early 1-0") < slipped.index("late 4-0")
    assert [text for text in page.texts if text == "the question"] == ["the question"] * 5
    assert "Tasks that flipped" in page.texts
    assert "share of solved samples, mean of 4 tasks" in page.texts


def test_hostile_text_stays_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = f"{HOSTILE}\x1b[2J"
    first = evaluated(tmp_path / "a", 0, {task: [1]}, HOSTILE)
    second = evaluated(tmp_path / "b", 0, {task: [0]}, HOSTILE)
    assert main(["diff", str(first.path), str(second.path)]) == 0
    assert "\x1b" not in capsys.readouterr().out
    page = Page(text := (second.path / "diff.html").read_text())
    assert f"{visible(HOSTILE)} 0-0" in page.texts
    assert "<script" not in text
    assert "\u202e" not in text
    assert "default-src &#39;none&#39;" in text


def test_answers_to_other_prompts_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = evaluated(tmp_path / "a", 0, {"one": [1]}, "x")
    other = RunFolder(tmp_path / "b")
    other.path.mkdir()
    other.config.write_text("")
    made = episode(0, 0, "one", 1, "x")
    changed = (Message(role="user", content="another question"), made.messages[1])
    store = TrajectoryStore(other.evaluated(0))
    store.append([replace(made, messages=changed)])
    store.close()
    assert main(["diff", str(first.path), str(other.path)]) == 0
    assert "1 task with prompts that differ: their answers are to other questions" in capsys.readouterr().out
    texts = Page((other.path / "diff.html").read_text()).texts
    assert {"the question", "another question"} <= set(texts)


def test_the_only_environments_of_two_runs_are_compared_whatever_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = evaluated(tmp_path / "a", 0, {"one": [1]}, "x", env="guess")
    second = evaluated(tmp_path / "b", 0, {"one": [1]}, "x", env="env")
    assert main(["diff", str(first.path), str(second.path), "--out", str(tmp_path / "page.html")]) == 0
    assert "1 task in both" in capsys.readouterr().out
    assert (tmp_path / "page.html").is_file()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["RUN@7", "RUN"], "has no evaluation after step 7, only after 0, 40"),
        (["RUN@40", "RUN"], "are the same evaluation"),
        (["RUN", "RUN", "RUN"], "name two evaluations"),
        (["OTHER"], "has a single evaluation: name another run"),
        (["RUN", "OTHER"], "have no task in common"),
        (["EMPTY", "RUN"], "has no evaluation: score it with `agentrl eval"),
        (["NOWHERE", "RUN"], "no run in"),
        (["RUN", "--out", "/nowhere/page.html"], "cannot write /nowhere/page.html"),
    ],
)
def test_what_cannot_be_compared_exits_2_with_one_message(
    run: RunFolder, tmp_path: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluated(tmp_path / "other", 0, {"another": [1]}, "x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.toml").write_text("")
    for name in ("run", "other", "empty", "nowhere"):
        words = [word.replace(name.upper(), str(tmp_path / name)) for word in words]
    assert main(["diff", *words]) == 2
    assert says in capsys.readouterr().err
