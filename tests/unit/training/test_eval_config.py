"""What `agentrl eval` scores: a model by itself, or what a run wrote, as that run would."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentrl.cli.main import main
from agentrl.config.keys import keys
from agentrl.config.loading import of_arguments, of_flags
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import Config, ScorersSection
from agentrl.config.toml import to_toml
from agentrl.env import resolve
from agentrl.errors import ConfigError
from agentrl.metrics.step import EvaluationRecord
from agentrl.metrics.timer import PhaseTimer
from agentrl.metrics.trackers import read_evaluations
from agentrl.records.folder import RunFolder
from agentrl.training import launch, loop
from agentrl.training.eval_config import READ, SECTIONS, evaluation_config, is_read
from agentrl.training.inputs import RunInputs
from tests.unit.config.test_resolve import FOUR_GPUS, LAPTOP
from tests.unit.records.synthetic import synthetic_run


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run of the guess environment with two checkpoints."""
    run = RunFolder(tmp_path / "run")
    for name in ("step-000002/model", "step-000004/model"):
        (run.checkpoints / name).mkdir(parents=True)
    run.ledger.touch()
    run.config.write_text(f'out = "{run.path}"\n[env]\nname = "guess"\nhigh = 9\n[rollout]\nmax_tokens = 7\n')
    return run


def test_a_run_is_scored_by_its_last_checkpoint_in_its_own_environment(run: RunFolder) -> None:
    config = evaluation_config(None, of_flags([("model", str(run.path)), ("eval.samples", "3")]))
    assert config.model.name == str(run.checkpoints / "step-000004")
    assert (config.env[0].name, config.env[0].options, config.rollout.max_tokens) == ("guess", {"high": 9}, 7)
    assert (config.out, config.eval.samples) == (None, 3)


def test_an_empty_name_is_not_the_run_in_this_folder(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.path)
    with pytest.raises(ConfigError, match=r"^model.name must not be empty, got '' \(--model\)"):
        evaluation_config(None, of_flags([("model", "")]))


@pytest.mark.parametrize("inside", ["", "model"])
def test_a_checkpoint_of_a_run_is_scored_in_that_run_s_environment(
    run: RunFolder, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.path)
    config = evaluation_config(
        None, of_flags([("model.name", f"checkpoints/step-000002/{inside}"), ("out", "elsewhere")])
    )
    assert Path(config.model.name) == run.checkpoints / "step-000002" / inside
    assert (config.env[0].name, config.out) == ("guess", Path("elsewhere"))


def test_another_environment_or_file_has_the_say(run: RunFolder, tmp_path: Path) -> None:
    config = evaluation_config(None, of_flags([("env", "math"), ("model", str(run.path))]))
    assert (config.env[0].name, config.env[0].options, config.rollout.max_tokens) == ("math", {}, 0)
    assert config.model.name == str(run.checkpoints / "step-000004")
    config = evaluation_config(None, of_arguments({"env": ["math", "guess"], "model": str(run.path)}))
    assert ([env.name for env in config.env], config.rollout.max_tokens) == (["math", "guess"], 0)
    (tmp_path / "other.toml").write_text("seed = 5\n")
    config = evaluation_config(tmp_path / "other.toml", of_flags([("model", str(run.path))]))
    assert (config.seed, config.env[0].name) == (5, "math")


def test_what_an_evaluation_reads_are_keys_and_none_of_them_is_the_learner_s() -> None:
    assert {section for section in SECTIONS if section not in Config.model_fields} == set()
    assert {key for key in READ if key not in keys()} == set()
    assert [is_read(key) for key in ("env.high", "engine.count", "roles.judge.url", "learner.lr", "steps")] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_a_run_of_many_ranks_is_scored_where_they_would_find_no_room(run: RunFolder) -> None:
    run.config.write_text(run.config.read_text() + "[learner]\nranks = 64\n")
    config = evaluation_config(None, of_flags([("model", str(run.path))]))
    assert resolve_run(config, LAPTOP).learner.ranks == 1


def test_an_evaluation_has_none_of_the_processes_that_only_training_needs(run: RunFolder) -> None:
    keys = '[scorers]\nplacement = "separate"\noffload = true\n[lora]\nrank = 8\nload_in_4bit = true\n'
    run.config.write_text(run.config.read_text() + keys)
    config = resolve_run(evaluation_config(None, of_flags([("model", str(run.path))])), LAPTOP)
    assert (config.scorers, config.lora.rank) == (ScorersSection(), 0)


@pytest.mark.parametrize("changes", [{}, {"lora": {"rank": 8}}, {"rollout": {"max_staleness": 1}}])
def test_a_run_on_gpus_is_scored_wherever_its_engines_were(run: RunFolder, changes: dict[str, object]) -> None:
    """Weights travel by no transfer, and an engine that shared its GPU with a learner has it alone."""
    packages = FOUR_GPUS.packages | {"peft": "0.21.2"}
    machine = dataclasses.replace(FOUR_GPUS, packages=packages)
    trained = resolve_run(Config.model_validate(changes), machine)
    run.config.write_text(to_toml(trained))
    name = ("model", str(run.path))
    engine = resolve_run(evaluation_config(None, of_flags([name])), machine, learns=False).engine
    assert (engine.count, engine.gpu_memory_utilization) == (trained.engine.count, 0.9)
    flag = ("engine.gpu_memory_utilization", "0.5")
    given = resolve_run(evaluation_config(None, of_flags([name, flag])), machine, learns=False).engine
    assert given.gpu_memory_utilization == 0.5


def test_a_run_that_a_file_names_stands_for_its_newest_checkpoint_too(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(f'[model]\nname = "{run.path}"\n')
    assert evaluation_config(tmp_path / "other.toml", []).model.name == str(run.checkpoints / "step-000004")


def test_training_takes_the_newest_checkpoint_of_a_run_as_an_evaluation_does(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[Config] = []

    def fitted(config: Config, _: object) -> None:
        planned.append(config)
        raise ConfigError("seen")

    monkeypatch.setattr("agentrl.training.launch.fitted_run", fitted)
    monkeypatch.chdir(run.path.parent)
    assert main(["train", "guess", "--model", "run"]) == 2
    assert planned[0].model.name == evaluation_config(None, of_flags([("model", "run")])).model.name
    assert planned[0].model.name == str(run.checkpoints / "step-000004")


@pytest.mark.parametrize("name", ["", "owner/name", "./none"])
def test_a_model_of_no_run_is_taken_as_it_is(name: str) -> None:
    assert evaluation_config(None, of_flags([("model", name)] if name else [])).model.name == name


@pytest.mark.parametrize("missing", ["step-000099", "step-000099/model", "step-2"])
def test_a_checkpoint_that_does_not_exist_names_those_that_do(run: RunFolder, missing: str) -> None:
    name = missing.partition("/")[0]
    with pytest.raises(ConfigError, match=f"has no checkpoint {name}; it has step-000002, step-000004$"):
        evaluation_config(None, of_flags([("model", str(run.checkpoints / missing))]))


def test_a_run_without_a_checkpoint_says_so(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.config.touch()
    run.ledger.touch()
    with pytest.raises(ConfigError, match="has no checkpoint yet"):
        evaluation_config(None, of_flags([("model", str(tmp_path))]))


@pytest.mark.parametrize(
    ("inside", "said"),
    [("run/checkpoints/step-000012/model", "evaluation after step 12 · pass@1 "), ("model", "evaluation · pass@1 ")],
)
def test_an_evaluation_says_what_it_scored_and_where_it_is_kept(
    inside: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = read_evaluations(synthetic_run(tmp_path / "other"))[-1]

    class Found:
        async def run(self, *_: object) -> EvaluationRecord:
            return dataclasses.replace(record, step=0)

    @asynccontextmanager
    async def open_evaluation(*_: object) -> AsyncIterator[tuple[SimpleNamespace, Found]]:
        yield SimpleNamespace(workers=None), Found()

    monkeypatch.setattr(loop, "open_evaluation", open_evaluation)
    model, out = tmp_path / inside, tmp_path / "scored"
    config = Config.model_validate({"env": {"name": "guess"}, "model": {"name": str(model)}, "out": out})
    folder = launch.new_folder(config)
    asyncio.run(loop.run_evaluation(config, RunInputs((resolve("guess"),), model, ""), folder, PhaseTimer()))
    what, score, _ = capsys.readouterr().out.splitlines()
    assert what == f"Evaluating {model} in guess; the run's folder is {out}."
    assert score.startswith(said)
