"""What an algorithm from outside declares, the run provides; what it sets for itself, the run keeps."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrl.algorithms import Needs
from agentrl.algorithms.driver import assign
from agentrl.algorithms.registry import make_algorithm, with_epochs
from agentrl.algorithms.rehearsal import rehearse
from agentrl.algorithms.sample import samples_of, train_sequences
from agentrl.cli.config import run as print_config
from agentrl.config.loading import load, of_flags
from agentrl.config.schema import AlgorithmSection, Config
from agentrl.errors import ConfigError, CreditError
from agentrl.planning.fit import fitted_run
from agentrl.training.inputs import RunInputs, algorithm_of
from agentrl.types import StopReason
from tests.unit.algorithms.cases import group, trajectory
from tests.unit.config.test_resolve import LAPTOP

FILE = """
import numpy as np
from agentrl.algorithms import Algorithm, AlgorithmConfig, Needs

class Mine(Algorithm):
    needs = Needs({needs})

    def credit(self, groups):
        for sample in (sample for samples in groups for sample in samples):
            sample.advantages = np.ones(len(sample))
            {line}
"""
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(needs: str = "", line: str = "pass", name: str = "mine.py") -> str:
        (tmp_path / name).write_text(FILE.format(needs=needs, line=line))
        return str(tmp_path / name)

    return written


def flags(**keys: str) -> Config:
    return load(None, of_flags([(key.replace("__", "."), value) for key, value in keys.items()]))


# --- epochs and rewards


def test_an_algorithm_may_need_several_epochs_and_a_key_wins(write: Write) -> None:
    mine = write(needs="epochs=3")
    assert fitted_run(flags(algo=mine), LAPTOP).learner.epochs == 3
    assert fitted_run(flags(algo=mine, learner__epochs="1"), LAPTOP).learner.epochs == 1
    assert fitted_run(flags(algo="grpo"), LAPTOP).learner.epochs == 1
    assert algorithm_of(with_epochs(flags(algo=mine, learner__updates_per_batch="2"))).run.updates == 6


def test_config_shows_the_epochs_of_the_algorithm(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--env", "guess", "--algo", write(needs="epochs=3")]
    print_config(words)
    assert re.search(r"^# epochs = 3 +# \[chosen for this algorithm\] epochs over", capsys.readouterr().out, re.M)
    print_config([*words, "--learner.epochs", "2"])
    assert re.search(r"^epochs = 2 +# \[--learner.epochs\]", capsys.readouterr().out, re.M)


def test_an_algorithm_that_needs_a_reward_model_is_refused_without_one(write: Write) -> None:
    mine = write(needs="rewards=True")
    with pytest.raises(ConfigError, match=r"algorithm .*mine.py learns from the score of a reward model: set reward"):
        RunInputs.of(flags(algo=mine, env="guess"))
    models = '[{name = "rm", model = "./no-such-model"}]'
    with pytest.raises(ConfigError, match=r"model './no-such-model': there is no such folder"):
        RunInputs.of(flags(algo=mine, env="guess", reward__models=models))


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        ({"epochs": 0}, "needs.epochs is 0, not a whole number of at least 1"),
        ({"rewards": "yes"}, "needs.rewards is 'yes', not True or False"),
    ],
)
def test_needs_of_another_type_are_refused(needs: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        Needs(**needs)  # type: ignore[arg-type]


# --- the divisor


CUT = trajectory(2, 0.0, lengths=(5,), stop_reason=StopReason.MAX_TOKENS)
MEMBERS = group(trajectory(0, 1.0, lengths=(2,)), trajectory(1, 0.0, lengths=(3,)), CUT)


def test_the_summed_loss_is_divided_by_the_shares_that_credit_sets(write: Write) -> None:
    rule = make_algorithm(
        AlgorithmSection.model_validate({"name": write(line="sample.share = 7"), "truncated": "mask"})
    )
    batch = samples_of([MEMBERS])
    assign(rule, batch)
    assert [sample.share for sample in batch[0]] == [7.0, 7.0, 0.0], "a masked episode has no part in it"
    assert sum(sequence.share for sequence in train_sequences(batch)) == 14.0
    plain = make_algorithm(AlgorithmSection.model_validate({"name": write(name="plain.py"), "truncated": "mask"}))
    assign(plain, batch)
    assert [sample.share for sample in batch[0]] == [2.0, 3.0, 0.0], "the shares of an earlier call do not stay"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sample.share = 0", "every `share` is 0, so that nothing would be trained"),
        ("sample.share = -1.0", "share of sample 0-0 is -1.0, not a number of at least 0"),
        ("sample.share = float('inf')", "share of sample 0-0 is inf, not a number"),
        ("sample.share = '7'", "share of sample 0-0 is '7', not a number"),
        ("sample.share = 7 if len(sample) == 2 else None", "credit set `share` of some samples: set it for all"),
    ],
)
def test_shares_that_divide_nothing_are_refused(write: Write, line: str, message: str) -> None:
    rule = make_algorithm(AlgorithmSection(name=write(line=line)))
    with pytest.raises(CreditError, match=re.escape(message)):
        assign(rule, samples_of([MEMBERS]))


@pytest.mark.parametrize("keys", [{"normalization": "sequence"}, {"normalization": "constant", "constant": 9}])
def test_a_normalization_beside_shares_of_its_own_is_refused_before_the_run(
    write: Write, keys: dict[str, object]
) -> None:
    section = AlgorithmSection.model_validate({"name": write(line="sample.share = 7"), **keys})
    with pytest.raises(ConfigError, match=r"has no effect with Mine, which sets what the summed loss is divided by"):
        rehearse(make_algorithm(section))
