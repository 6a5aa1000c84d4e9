"""A replay refuses what cannot give the recorded weights."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from agentrl.config.schema import Config
from agentrl.errors import ConfigError
from agentrl.learner.lr_schedule import learning_rate
from agentrl.metrics.step import PhaseSeconds, StepRecord
from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import JsonLines
from agentrl.records.manifest import build_manifest, hash_file, plugin_source, read_manifest, write_manifest
from agentrl.training.inputs import algorithm_of
from agentrl.training.replay import ReplayPlan, check_algorithm, check_models, check_settings, plan_replay
from agentrl.types import StepReport


def model(folder: Path) -> Path:
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    return folder


@pytest.mark.parametrize("role", ["model", "teacher"])
def test_a_replay_with_another_model_is_refused_by_its_role(tmp_path: Path, role: str) -> None:
    folders = {name: model(tmp_path / name) for name in ("model", "teacher")}
    config = Config.model_validate(
        {
            "model": {"name": str(folders["model"])},
            "algorithm": {"name": "distillation", "teacher": str(folders["teacher"])},
        }
    )
    run = RunFolder(tmp_path)
    write_manifest(run, build_manifest([plugin_source("math", pydantic.BaseModel)], [], folders))
    check_models(config, run)
    (folders[role] / "model.safetensors").write_text("{ }")
    with pytest.raises(ConfigError, match=rf"models have changed since .*: {role}: model\.safetensors\. Restore"):
        check_models(config, run)


@pytest.mark.parametrize(
    ("changed", "was"),
    [
        ({"ranks": 4}, "4 x 1 threads at ZeRO stage 1"),
        ({"threads": 3}, "2 x 3 threads at ZeRO stage 1"),
        ({"zero_stage": 2}, "2 x 1 threads at ZeRO stage 2"),
    ],
)
def test_a_step_that_another_layout_trained_is_refused_by_its_number(changed: dict[str, int], was: str) -> None:
    config = Config.model_validate(
        {"learner": {"ranks": 2, "threads": 1, "zero_stage": 1, "lr": 1e-5, "schedule": "constant"}}
    )
    now = config.critic.layout(config.learner)
    other = config.critic.layout(config.learner.model_copy(update=changed))
    check_settings(config, ReplayPlan(0, (trained(1, ""), trained(2, now))))
    with pytest.raises(ConfigError, match=rf"step 3 was trained by {was}, .* to 2 x 1 threads at ZeRO stage 1"):
        check_settings(config, ReplayPlan(0, (trained(2, now), trained(3, other))))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run of one step, whose manifest says that it was made here."""
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    write_manifest(run, build_manifest([plugin_source("math", pydantic.BaseModel)], [], {}))
    steps = JsonLines(run.metrics)
    steps.append(trained(1, "", digest="0" * 16))
    steps.close()
    return run


def rewrite(run: RunFolder, **changes: Any) -> None:
    """Change fields of the manifest."""
    manifest = read_manifest(run)
    assert manifest is not None
    run.manifest.write_bytes(msgspec.json.encode(dataclasses.replace(manifest, **changes)))


def test_a_run_of_this_machine_is_replayed(run: RunFolder) -> None:
    assert [step.step for step in plan_replay(run).steps] == [1]


def test_a_replay_on_another_cpu_is_refused_by_its_name(run: RunFolder) -> None:
    rewrite(run, cpu="Abacus 9000")
    with pytest.raises(ConfigError, match=r"step 1 was trained with CPU Abacus 9000 \(here .+\): .*same kind of CPU"):
        plan_replay(run)


@pytest.mark.parametrize(
    "library", ["agentrl-core", "torch", "deepspeed", "transformers", "peft", "numpy", "bitsandbytes"]
)
def test_a_replay_with_another_version_of_a_library_is_refused_by_its_name(run: RunFolder, library: str) -> None:
    manifest = read_manifest(run)
    assert manifest is not None
    here = manifest.packages.get(library, "absent")
    rewrite(run, packages={**manifest.packages, library: "0.0.1"})
    with pytest.raises(ConfigError, match=rf"with {library} 0\.0\.1 \(here {re.escape(here)}\): .*same versions"):
        plan_replay(run)


def test_another_version_of_what_decides_no_digit_is_no_reason_to_refuse(run: RunFolder) -> None:
    manifest = read_manifest(run)
    assert manifest is not None
    rewrite(run, packages={**manifest.packages, "rich": "0.0.1"})
    assert plan_replay(run).start == 0


def test_a_run_without_a_manifest_is_refused(run: RunFolder) -> None:
    run.manifest.unlink()
    with pytest.raises(ConfigError, match="no manifest of step 1: nothing says which libraries trained it"):
        plan_replay(run)


def test_a_step_is_compared_with_the_right_inputs_when_the_first_manifest_was_deleted(run: RunFolder) -> None:
    began = read_manifest(run)
    assert began is not None
    append(run, [trained(step, "", digest="0" * 16) for step in (2, 3)])
    write_manifest(run, dataclasses.replace(began, packages={**began.packages, "torch": "0.0.1"}, after=1))
    run.manifest.unlink()
    write_manifest(run, dataclasses.replace(began, after=2))
    with pytest.raises(ConfigError, match="no manifest of step 1"):
        plan_replay(run, 3)
    (run.checkpoints / "step-000001").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"step 2 was trained with torch 0\.0\.1"):
        plan_replay(run, 3)
    (run.checkpoints / "step-000002").mkdir(parents=True)
    assert [step.step for step in plan_replay(run, 3).steps] == [3]


def test_a_step_is_compared_with_the_inputs_that_trained_it(run: RunFolder) -> None:
    """A resume after step 1 found another torch, one after step 2 the first again."""
    began = read_manifest(run)
    assert began is not None
    append(run, [trained(2, "", digest="0" * 16), trained(3, "", digest="0" * 16)])
    other = dataclasses.replace(began, packages={**began.packages, "torch": "0.0.1"}, after=1)
    assert "torch" in write_manifest(run, other)
    assert write_manifest(run, dataclasses.replace(began, after=2)) == ""
    for step in (2, 3):
        with pytest.raises(ConfigError, match=r"step 2 was trained with torch 0\.0\.1"):
            plan_replay(run, step)
    assert plan_replay(run, 1).steps
    (run.checkpoints / "step-000002").mkdir(parents=True)
    assert [step.step for step in plan_replay(run, 3).steps] == [3]


def test_a_step_that_a_resume_trained_again_is_compared_with_the_later_inputs(run: RunFolder) -> None:
    began = read_manifest(run)
    assert began is not None
    other = dataclasses.replace(began, packages={**began.packages, "torch": "0.0.1"})
    append(run, [trained(2, "", digest="0" * 16)])
    write_manifest(run, dataclasses.replace(other, after=1))
    with pytest.raises(ConfigError, match=r"step 2 was trained with torch 0\.0\.1"):
        plan_replay(run)
    write_manifest(run, began)  # a resume from the start, with the first version
    assert len(plan_replay(run).steps) == 2


@pytest.mark.parametrize("what", ["algorithm", "loss"])
def test_a_step_that_another_source_trained_is_refused(run: RunFolder, tmp_path: Path, what: str) -> None:
    algorithm, loss = tmp_path / "algo.py", tmp_path / "loss.py"
    algorithm.write_text("from agentrl.algorithms import GRPO\nclass Mine(GRPO): pass\n")
    loss.write_text("def mine(terms, config): return -terms.ratio * terms.advantages\n")
    config = Config.model_validate({"algorithm": {"name": f"{algorithm}:Mine", "loss": f"{loss}:mine"}})
    rule = algorithm_of(config)
    own = rule.checked_loss()
    assert own is not None
    sources = [plugin_source(config.algorithm.name, type(rule)), plugin_source(own.name, own.function)]
    rewrite(run, algorithm=sources[0], loss=sources[1])
    plan = ReplayPlan(0, (trained(1, ""),))
    check_algorithm(config, run, plan)
    file = {"algorithm": algorithm, "loss": loss}[what]
    file.write_text(file.read_text() + "# another\n")
    with pytest.raises(ConfigError, match=rf"step 1 was trained by another source: {what}: {file.name}\. Restore"):
        check_algorithm(config, run, plan)


def test_a_step_whose_algorithm_read_another_file_is_refused(run: RunFolder, tmp_path: Path) -> None:
    algorithm, table = tmp_path / "algo.py", tmp_path / "table.json"
    algorithm.write_text(
        "from pathlib import Path\nfrom agentrl.algorithms import GRPO\nclass Mine(GRPO):\n"
        "    class Config(GRPO.Config):\n        table: Path\n"
    )
    table.write_text("[]")
    config = Config.model_validate({"algorithm": {"name": f"{algorithm}:Mine", "table": str(table)}})
    rewrite(run, algorithm=plugin_source(config.algorithm.name, type(algorithm_of(config))), data=(hash_file(table),))
    plan = ReplayPlan(0, (trained(1, ""),))
    check_algorithm(config, run, plan)
    table.write_text("[1]")
    with pytest.raises(ConfigError, match=r"step 1 was trained by another source: data: table\.json\. Restore"):
        check_algorithm(config, run, plan)


def test_a_step_of_the_critic_alone_has_no_learning_rate_to_compare() -> None:
    warm_up = {"critic": {"warmup_steps": 2}, "algorithm": {"name": "ppo"}, "steps": 6, "learner": {"lr": 1e-5}}
    config = Config.model_validate(warm_up)
    now = config.critic.layout(config.learner)
    report = trained(1, now).learner
    alone = [
        dataclasses.replace(trained(step, now), learner=dataclasses.replace(report, lr=0.0, optimizer_steps=0))
        for step in (1, 2)
    ]
    first = dataclasses.replace(trained(3, now), learner=dataclasses.replace(report, lr=1e-5))
    check_settings(config, ReplayPlan(0, (*alone, first)))


def test_a_step_with_a_learning_rate_of_another_number_of_steps_is_refused() -> None:
    config = Config.model_validate({"steps": 4, "learner": {"lr": 1e-5, "updates_per_batch": 2}})
    rates = [learning_rate(config.learner, update, 4) for update in range(8)]
    now = config.critic.layout(config.learner)
    report = trained(2, now).learner
    kept, stopped, skipped, other = (
        dataclasses.replace(trained(2, now), learner=dataclasses.replace(report, lr=lr, optimizer_steps=steps))
        for lr, steps in ((rates[3], 2), (rates[2], 1), (0.0, 0), (learning_rate(config.learner, 3, 8), 2))
    )
    check_settings(config, ReplayPlan(1, (kept, stopped, skipped)))
    with pytest.raises(ConfigError, match=r"step 2 was trained with a learning rate of 8\.\d+e-06, .*`steps` to 4"):
        check_settings(config, ReplayPlan(1, (other,)))


def append(run: RunFolder, records: Sequence[StepRecord]) -> None:
    steps = JsonLines(run.metrics)
    for record in records:
        steps.append(record)
    steps.close()


def trained(step: int, layout: str, digest: str = "") -> StepRecord:
    report = StepReport(0.0, 1.0, 1e-5, 8, 1, (), 1.0, layout=layout, digest=digest)
    return StepRecord(step, f"0.{step}", 0.0, 0.5, 0.5, 8, report, PhaseSeconds())


def test_a_step_that_gpus_do_not_repeat_is_not_replayed() -> None:
    config = Config.model_validate({"device": "cuda", "learner": {"ranks": 1, "lr": 1e-5, "schedule": "constant"}})
    before, after = (trained(step, "") for step in (1, 2))
    after = dataclasses.replace(after, learner=dataclasses.replace(after.learner, deterministic=True))
    check_settings(config, ReplayPlan(1, (after,)))
    with pytest.raises(
        ConfigError, match=r"step 1 was trained on GPUs without learner\.deterministic, or by an earlier"
    ):
        check_settings(config, ReplayPlan(0, (before, after)))
    check_settings(config.model_copy(update={"device": "cpu"}), ReplayPlan(0, (before, after)))
