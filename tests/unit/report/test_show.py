"""`agentrl show`: the samples of a run in a table, and one of them in full."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from agentrl.errors import ConfigError, RunError
from agentrl.records.folder import RunFolder
from agentrl.records.ledger import Ledger
from agentrl.records.store import TrajectoryStore
from agentrl.report.show import render, show
from agentrl.report.transcript import headline
from agentrl.types import SampleId, Signal, StopReason
from tests.unit.records.synthetic import request, synthetic_run, trajectory, with_tool
from tests.unit.report.test_html import transcribed


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return synthetic_run(tmp_path_factory.mktemp("run"), 3)


def decode(ids: Sequence[int]) -> list[str]:
    return [chr(token) for token in ids]


def printed(what: object) -> str:
    console = Console(file=io.StringIO(), width=140)
    console.print(what)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_verdict_of_the_environment_stands_with_the_rewards() -> None:
    verdict = Signal("success", 1.0, weight=0.0, verifier="Env.success")
    text = printed(render(replace(trajectory(0, 0), success=verdict)))
    assert "success" in text
    assert "success" in transcribed(replace(trajectory(0, 0), success=verdict))


def test_an_episode_without_an_answer_is_called_so() -> None:
    mute = replace(trajectory(0, 0), sequences=(), signals=(), stop_reason=StopReason.CONTEXT_OVERFLOW)
    assert headline(mute).startswith("unanswered · context_overflow")


def test_the_table_shows_the_state_of_each_sample(run: RunFolder) -> None:
    text = printed(show(run.path))
    assert "48 attempts" in text
    assert "trained" in text
    assert "11-3" in text


def test_the_table_names_the_environment_of_a_sample_if_the_run_has_several(run: RunFolder, tmp_path: Path) -> None:
    assert "environment" not in printed(show(run.path))
    folder = RunFolder(tmp_path)
    with closing(Ledger(folder.ledger)) as ledger:
        ledger.begin_incarnation()
        for group, env in enumerate(("math", "guess")):
            ledger.dispatched([replace(request(SampleId(group, 0)), env=env)])
    text = printed(show(tmp_path))
    assert "environment" in text
    assert re.search(r"1-0 +guess +in_flight", text)


def test_a_sample_is_shown_in_full(run: RunFolder) -> None:
    text = printed(show(run.path, "2-1", lambda: decode))
    for words in ("sample 2-1, attempt 0", "What is", "assistant", "correct", '"gold": "2"', "env_done", "version 0.0"):
        assert words in text


def test_tokens_are_ids_without_a_tokenizer(run: RunFolder) -> None:
    assert f"{ord('W')} {ord('h')} {ord('a')} {ord('t')} " in printed(show(run.path, "2-1"))


def test_an_evaluation_is_named_by_its_step(run: RunFolder) -> None:
    store = TrajectoryStore(run.evaluated(40))
    store.append([trajectory(7, 1, text="from the evaluation")])
    store.close()
    assert "from the evaluation" in printed(show(run.path, "40/7-1"))
    assert "evaluations after steps 40" in printed(show(run.path))
    with pytest.raises(ConfigError, match="has no evaluation after step 99, only after 40"):
        show(run.path, "99/7-1")


def test_what_is_not_there_is_named(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no trajectory of sample 99-0"):
        show(run.path, "99-0")
    with pytest.raises(RunError, match="no trajectory of sample 2-1, attempt 4"):
        show(run.path, "2-1.4")
    with pytest.raises(RunError, match="is not a sample"):
        show(run.path, "the best")
    with pytest.raises(RunError, match="no ledger"):
        show(tmp_path)


def test_tool_calls_are_shown_with_their_results() -> None:
    text = printed(render(with_tool(trajectory(0, 0))))
    assert 'calculator({"it": "6 * 7"})' in text
    assert text.index("calculator(") < text.index("<42> & no more")


def test_a_model_cannot_steer_the_terminal() -> None:
    episode = trajectory(0, 0, text="\x1b]0;owned\x07\x1b[2J\x9b31m [red]x[/red]")
    text = printed(render(episode, lambda ids: bytes(ids).decode("latin-1")))
    assert not {"\x1b", "\x07", "\x9b"} & set(text)
    assert "[red]x[/red]" in text
