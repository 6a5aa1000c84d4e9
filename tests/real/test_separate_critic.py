"""A critic on ranks of its own takes the steps that it takes on the policy's, and goes on exactly."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from agentrl.cluster.actors import learner_ranks
from agentrl.cluster.learners import Learners
from agentrl.cluster.processes import ProcessRegistry
from agentrl.cluster.signals import Stop
from agentrl.config.schema import Config
from agentrl.errors import LearnerDiedError
from agentrl.metrics.timer import PhaseTimer
from agentrl.records.folder import RunFolder
from agentrl.training.credit import credited
from agentrl.training.inputs import algorithm_of
from agentrl.types import StepReport
from tests.real.test_learner import assert_same_state
from tests.real.test_scorers import groups
from tests.tiny import tiny_model

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


def config(model: Path, **critic: Any) -> Config:
    return Config.model_validate(
        {
            "device": "cpu",
            "model": {"name": str(model), "dtype": "float32"},
            "rollout": {"prompts": 3, "group_size": 4, "max_tokens": 12},
            "algorithm": {"name": "ppo"},
            "learner": {"ranks": 1, "threads": 1, "lr": 1e-3, "micro_batch_tokens": 64, "updates_per_batch": 2},
            "critic": {"lr": 2e-3, "warmup_steps": 1, **critic},
        }
    )


@asynccontextmanager
async def learners(config: Config, folder: Path) -> AsyncIterator[Learners]:
    """The ranks of a run without engines."""
    async with learner_ranks(config, Path(config.model.name), RunFolder(folder), Stop(), PhaseTimer()) as made:
        yield made


async def trained(config: Config, learners: Learners, seeds: Iterable[int]) -> list[StepReport]:
    """What the first rank reports of each step, but for its seconds."""
    algorithm, reports = algorithm_of(config), []
    for seed in seeds:
        sequences = await credited(algorithm, learners, groups(seed), DEADLINE_S)
        reports.append((await learners.step(sequences, algorithm.state, DEADLINE_S))[0])
    return reports


def facts(reports: Iterable[StepReport]) -> list[tuple[Any, ...]]:
    return [
        (one.digest, one.meters, one.loss, one.grad_norm, one.optimizer_steps, one.nonfinite_steps, one.has_learned)
        for one in reports
    ]


def state(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint, by file and name."""
    files = sorted(folder.rglob("*.safetensors"))
    return {f"{path.relative_to(folder)}/{name}": tensor for path in files for name, tensor in load_file(path).items()}


async def test_a_separate_critic_takes_the_same_steps_to_the_bit_and_goes_on_in_either_place(
    model: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made: dict[str, tuple[Any, Any, Path]] = {}
    for placement in ("colocate", "separate"):
        chosen, folder = config(model, placement=placement), tmp_path_factory.mktemp(placement)
        async with learners(chosen, folder) as team:
            first = facts(await trained(chosen, team, range(3)))
            await team.save(folder / "step-3", {"kl_coef": 0.5}, DEADLINE_S)
            made[placement] = first, facts(await trained(chosen, team, [3])), folder / "step-3"
    colocated, separate = made["colocate"], made["separate"]
    assert separate[:2] == colocated[:2]
    assert [one[-1] for one in separate[0]] == [False, True, True], "the critic warms up alone"
    assert "value_loss" in separate[0][0][1]
    one, other = state(colocated[2]), state(separate[2])
    assert one.keys() == other.keys()
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    assert not list(separate[2].parent.glob("*.partial"))
    for placement, (_, _, saved) in (("colocate", separate), ("separate", colocated)):
        chosen = config(model, placement=placement)
        async with learners(chosen, tmp_path_factory.mktemp("resumed")) as team:
            assert await team.load(saved, DEADLINE_S) == {"kl_coef": 0.5}
            assert facts(await trained(chosen, team, [3])) == colocated[1]


async def test_a_critic_on_more_ranks_learns_the_same_and_one_that_is_killed_ends_the_run_by_name(
    model: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    alone, folder = config(model), tmp_path_factory.mktemp("alone")
    async with learners(alone, folder) as team:
        straight = await trained(alone, team, range(2))
        await team.save(folder / "step-2", {}, DEADLINE_S)
    wide, other = config(model, placement="separate", ranks=2, zero_stage=1), tmp_path_factory.mktemp("wide")
    assert "critic on 2 ranks" in wide.critic.layout(wide.learner)
    async with learners(wide, other) as team:
        for one, expected in zip(await trained(wide, team, range(2)), straight, strict=True):
            assert one.meters == pytest.approx(expected.meters, rel=1e-3, abs=1e-5)
        await team.load(folder / "step-2", DEADLINE_S)
        await team.save(other / "step-2", {}, DEADLINE_S)
        assert_same_state(folder / "step-2", other / "step-2")
        roles = {process.role: process.pid for process in ProcessRegistry(other).registered()}
        os.kill(roles["critic rank 1"], signal.SIGKILL)
        with pytest.raises(LearnerDiedError, match=r"^critic rank 1: its process died .* can be resumed from its last"):
            await trained(wide, team, [2])
        with pytest.raises(LearnerDiedError, match=r"^critic rank 1"):
            await team.save(other / "step-3", {}, DEADLINE_S)
    assert not (other / "step-3").exists()
