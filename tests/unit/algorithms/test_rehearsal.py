"""A run tries an algorithm on samples made by hand, so that a mistake is found before anything heavy starts."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from agentrl.algorithms import Needs, algorithms, by_hand
from agentrl.algorithms.driver import assign
from agentrl.algorithms.registry import make_algorithm
from agentrl.algorithms.rehearsal import rehearse
from agentrl.config.schema import AlgorithmSection
from agentrl.errors import AlgorithmError, ConfigError
from tests.unit.algorithms.cases import algorithm


@pytest.mark.parametrize("name", sorted(algorithms()))
@pytest.mark.parametrize("keys", [{}, {"kl_coef": 0.1, "kl_in": "reward"}, {"normalize_rewards": True}])
def test_every_algorithm_of_agentrl_passes_and_keeps_its_state(name: str, keys: dict[str, object]) -> None:
    rule = algorithm(name, **keys)
    rehearse(rule)
    assert rule.state == {}


CREDIT = "from agentrl.algorithms import Algorithm\n\n\nclass Mine(Algorithm):\n    def credit(self, groups):\n"
EACH = f"{CREDIT}        for sample in (s for samples in groups for s in samples):\n            "
MISTAKES = [
    (f"{EACH}sample.advantages = sample.reward\n", "credit failed: AttributeError: .*'reward'.* (mine.py:7)"),
    (f"{EACH}sample.advantages = np.ones(len(sample))\n", "credit failed: NameError: .* (mine.py:7)"),
    (f"{EACH}sample.advantages = None\n", "advantages of sample .* are no array of numbers but a NoneType"),
    (f"{EACH}sample.weights = None\n", "weights of sample .* are no array of numbers but a NoneType"),
    (f"{EACH}sample.advantage = 1.0\n", "credit failed: AttributeError: .*'advantage'.* (mine.py:7)"),
    (f"{EACH}sample.sampler += 1\n", "credit failed: ValueError: .*read-only (mine.py:7)"),
    (f"{EACH}sample.advantages = 'abc'\n", "advantages of sample 0-0 are no array of numbers but a str"),
    (f"{EACH}sample.advantages = [[1.0], []]\n", "advantages of sample 0-0 are no array of numbers but a list"),
    (f"{EACH}sample.advantages = [1j] * len(sample)\n", "are no array of numbers but a list: of the type complex128"),
    (f"{EACH}sample.weights = [float('nan')] * len(sample)\n", "weights of sample 0-0 are not finite (found"),
    (f"{CREDIT}        groups[0].remove(groups[0][0])\n", "credit failed: AttributeError: .*'remove'.* (mine.py:6)"),
    (f"{EACH}sample.advantages = 1.0\n", "advantages of sample 0-0 have the shape (), not (6,)"),
    (f"{EACH}sample.advantages = sample.rewards - 1\n", "credit failed: TypeError: .*'method' and 'int' (mine.py:7)"),
    (f"{EACH}sample.rewards('exact')\n", "credit failed: TypeError: .*takes 1 positional argument .* (mine.py:7)"),
    (f"{EACH}self.config['kl_coef']\n", "credit failed: TypeError: .*is not subscriptable (mine.py:7)"),
    (f"{EACH}sum(sample)\n", "credit failed: TypeError: 'Sample' object is not iterable (mine.py:7)"),
    (
        f"{EACH}sample.column('old')\n",
        "Mine: credit failed: AttributeError: the column 'old' is not declared: add it to needs.columns (mine.py:7)",
    ),
    (f"{CREDIT}        return [[1.0]]\n", "credit (mine.py:5) returned list: set the attributes, and return nothing"),
    (CREDIT.replace("groups", "groups, extra") + "        pass\n", "credit (mine.py:5) is called with one argument"),
    (f"{CREDIT}        pass\n\n    def after(self):\n        pass\n", "after (mine.py:8) is called with one argument"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_a_mistake_in_credit_is_found_before_the_run_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    rule = make_algorithm(AlgorithmSection(name=str(tmp_path / "mine.py")))
    with pytest.raises(ConfigError, match=re.escape(message).replace(r"\.\*", ".*")):
        rehearse(rule)


def test_what_may_depend_on_real_episodes_is_refused_only_when_a_batch_meets_it(tmp_path: Path) -> None:
    text = f"{EACH}value = {{s.name: s.value for s in sample.trajectory.signals}}['exact']\n"
    (tmp_path / "mine.py").write_text(text)
    rule = make_algorithm(AlgorithmSection(name=str(tmp_path / "mine.py")))
    rehearse(rule)
    (tmp_path / "other.py").write_text(f"{EACH}sample.trajectory.signals[0].evidence + 1\n")
    rehearse(make_algorithm(AlgorithmSection(name=str(tmp_path / "other.py"))))
    with pytest.raises(AlgorithmError, match=r"^Mine: credit failed: KeyError: 'exact' \(mine\.py:7\)$"):
        assign(rule, [by_hand([1.0, 0.0])])


def test_an_error_that_the_author_raises_for_real_episodes_is_no_mistake(tmp_path: Path) -> None:
    text = f"from agentrl.errors import AlgorithmError\n{EACH}raise AlgorithmError('no signal')\n"
    (tmp_path / "mine.py").write_text(text)
    rehearse(make_algorithm(AlgorithmSection(name=str(tmp_path / "mine.py"))))


def test_an_algorithm_gets_as_many_greedy_members_as_it_needs(tmp_path: Path) -> None:
    text = CREDIT.replace("Algorithm\n", "Algorithm, Needs\n", 1).replace(
        "    def credit", "    needs = Needs(greedy=2)\n\n    def credit"
    )
    (tmp_path / "mine.py").write_text(
        f"{text}        assert all(len(s.greedy) == 2 for group in groups for s in group)\n"
    )
    rule = make_algorithm(AlgorithmSection(name=str(tmp_path / "mine.py")))
    rehearse(rule)
    assign(rule, [by_hand([1.0, 0.0], greedy=2)])


@pytest.mark.parametrize("needs", [{"group_size": 0}, {"greedy": -1}, {"group_size": 2.0}])
def test_needs_are_whole_numbers_that_a_group_can_have(needs: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="not a whole number of at least"):
        Needs(**needs)


def test_samples_made_by_hand_have_what_they_were_asked_for() -> None:
    [sample, other] = by_hand([1.0, 0.0], turns=2, tokens=3, columns={"old"})
    assert sample.rewards().tolist() == [0.0] * 5 + [1.0]
    assert not np.any(other.rewards())
    assert sample.turns.tolist() == [0, 0, 0, 1, 1, 1]
    assert set(sample.columns) == {"old"}
    assert [len(greedy) for greedy in sample.greedy] == [6]
