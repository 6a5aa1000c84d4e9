"""An algorithm has a name, a file or a package; its keys are checked; what cannot be used is refused with a remedy."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field
from torch import Tensor

import agentrl.algorithms
from agentrl import losses
from agentrl.algorithms import (
    DAPO,
    GRPO,
    GSPO,
    PPO,
    RLOO,
    Algorithm,
    AlgorithmConfig,
    Loss,
    Needs,
    algorithms,
    resolve,
)
from agentrl.algorithms.registry import ALGORITHMS, _refuse_idle, make_algorithm
from agentrl.config.keys import meaning_of
from agentrl.config.schema import AlgorithmSection
from agentrl.errors import ConfigError, UnknownNameError
from agentrl.losses.terms import Terms
from agentrl.plugins import registry

FILE = """
from agentrl.algorithms import Algorithm, AlgorithmConfig

class Mine(Algorithm):
    class Config(AlgorithmConfig):
        bonus: float = 0.5
        kinds: tuple[str, ...] = ()

    def credit(self, groups):
        pass
"""


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return str(folder / name)


def made(name: str, **keys: Any) -> Algorithm:
    return make_algorithm(AlgorithmSection.model_validate({"name": name, **keys}))


@pytest.fixture
def announced_anew() -> Iterator[None]:
    registry.announced.cache_clear()
    yield
    registry.announced.cache_clear()


def test_every_algorithm_and_every_loss_is_exported_under_its_own_name() -> None:
    classes = algorithms().values()
    assert [getattr(agentrl.algorithms, cls.__name__) for cls in classes] == list(classes)
    assert {cls.__name__ for cls in classes} <= set(agentrl.algorithms.__all__)
    assert {*losses.LOSSES} <= set(losses.__all__)
    assert [getattr(losses, name) for name in losses.LOSSES] == list(losses.LOSSES.values())


def test_names_files_and_folders_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "mine.py", FILE + FILE.replace("Mine", "Other"))
    write(tmp_path, "folder/algorithm.py", FILE)
    monkeypatch.chdir(tmp_path)
    assert resolve("grpo") is resolve("agentrl.algorithms.grpo:GRPO") is GRPO
    for name in ("mine.py:Mine", "./mine.py:Mine", f"{tmp_path}/mine.py:Mine", "./folder"):
        assert resolve(name).__name__ == "Mine"
    assert made("./mine.py:Other").name == "Other"


@pytest.mark.usefixtures("announced_anew")
def test_an_installed_package_announces_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "acme_rl/__init__.py", FILE)
    info = "acme_rl-1.2.0.dist-info"
    write(tmp_path, f"{info}/METADATA", "Metadata-Version: 2.1\nName: acme-rl\nVersion: 1.2.0\n")
    write(tmp_path, f"{info}/entry_points.txt", "[agentrl.algorithms]\nmine = acme_rl:Mine\nrloo = acme_rl:Mine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert resolve("mine") is resolve("acme/mine@1.2") is resolve("acme_rl:Mine")
    with pytest.raises(ConfigError, match=r"acme-rl 1\.2\.0 is installed; pip install 'acme-rl==2\.\*'"):
        resolve("mine@2")
    with pytest.raises(ConfigError, match="agentrl-core and acme-rl both announce algorithm 'rloo'; uninstall one"):
        resolve("rloo")


def test_a_private_base_is_not_the_algorithm_of_a_file(tmp_path: Path) -> None:
    base = "from agentrl.algorithms import GRPO\n\n\nclass _Base(GRPO):\n    pass\n"
    assert type(made(write(tmp_path, "two.py", f"{base}\n\nclass Mine(_Base):\n    pass\n"))).__name__ == "Mine"
    assert type(made(write(tmp_path, "one.py", base))).__name__ == "_Base"


DATACLASS = """\
from dataclasses import dataclass
from agentrl.algorithms import GRPO

@dataclass
class Mine(GRPO):
    x: int = 1
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import agentrl\n\n1 / 0\n", r"bad\.py:3: ZeroDivisionError: division by zero"),
        ("x = 1\ndef f(:\n", r"bad\.py:2: SyntaxError"),
        ("import no_such_thing\n", r"bad\.py:1: ModuleNotFoundError: .*Install what it needs"),
        (
            "from agentrl.algorithms import GRPO\n",
            r"must define an agentrl\.algorithms\.Algorithm subclass with credit; .*none",
        ),
        (FILE + FILE.replace("Mine", "Other"), r"defines Mine, Other: name one of them, as in .*bad\.py:Mine"),
        (FILE.replace("def credit", "def credits"), r"found: Mine lacks credit"),
        (FILE.replace("Config(AlgorithmConfig)", "Config"), r"Mine: Config must derive from .*AlgorithmConfig"),
        (FILE.replace("bonus: float = 0.5", "name: str = ''"), r"Mine: Config\.name cannot be set"),
        (
            f"{FILE}\n    def __init__(self, config, run):\n        1 / 0\n",
            r"Mine cannot be made: ZeroDivisionError: division by zero \(bad\.py:13\)",
        ),
        (
            f"{FILE}\n    def __init__(self, config, run):\n        self.run = run\n",
            r"Mine \(bad\.py:12\) loses its config: call super\(\)\.__init__\(config, run\)",
        ),
        (DATACLASS, r"Mine cannot be made: TypeError: .*positional arguments but 3 were given \(bad\.py:4\)"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        made(write(tmp_path, "bad.py", text))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("grop", r"unknown algorithm 'grop'\. Did you mean 'grpo'\? .*write \./file\.py or package:Class"),
        ("./none.py", r"algorithm './none\.py': .*none\.py does not exist"),
        ("grpo@9", r"algorithm 'grpo@9': agentrl-core .* is installed"),
        ("no_such_package:Mine", r"algorithm 'no_such_package:Mine' cannot be loaded: ModuleNotFoundError"),
        ("json:dumps", r"algorithm 'json:dumps' is not an agentrl\.algorithms\.Algorithm class"),
        ("agentrl.algorithms:Algorithm", r"is abstract: define credit"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(name)


def test_keys_are_checked_as_those_of_an_environment(tmp_path: Path) -> None:
    path = write(tmp_path, "mine.py", FILE)
    config = made(path, bonus="2", kinds="a, b", clip_low=0.1).config
    assert config.model_dump(include={"bonus", "kinds", "clip_low"}) == {
        "bonus": 2,
        "kinds": ("a", "b"),
        "clip_low": 0.1,
    }
    with pytest.raises(UnknownNameError, match=r"unknown key of Mine 'algorithm\.bonos'\. Did you mean 'algorithm\.bo"):
        made(path, bonos=1)
    with pytest.raises(ConfigError, match=r"Mine: algorithm\.clip_low must be less than or equal to 1, got 2$"):
        made(path, clip_low=2)
    with pytest.raises(ConfigError, match=r"algorithm\.loss must be 'ppo_clip', .*got 'ppo'"):
        made("grpo", loss="ppo")


class Redeclared(AlgorithmConfig):
    clip_high: float = 0.5
    constant: int = 7
    tis_cap: float = Field(3.0, ge=2, description="mine")


def test_a_key_with_another_default_keeps_its_meaning_and_its_bounds() -> None:
    fields = Redeclared.model_fields
    assert meaning_of(fields["clip_high"]) == meaning_of(AlgorithmConfig.model_fields["clip_high"])
    assert meaning_of(fields["constant"]) == AlgorithmConfig.model_fields["constant"].description
    assert meaning_of(fields["tis_cap"]) == "mine"
    assert (Redeclared().clip_high, Redeclared(tis_cap=2.5).tis_cap) == (0.5, 2.5)
    for wrong in ({"clip_high": -1.0}, {"constant": -1}, {"tis_cap": 1.5}):
        with pytest.raises(ValueError, match="greater than"):
            Redeclared.model_validate(wrong)


IDLE = [
    ("grpo", {"tis_cap": 3.0, "old_logprobs": "sampler"}, "tis_cap has no effect without algorithm.old_logprobs l"),
    ("grpo", {"tis_floor": 0.1}, "tis_floor has no effect without algorithm.correction icepop"),
    ("grpo", {"dual_clip": 5.0}, "dual_clip has no effect without algorithm.loss dual_clip"),
    ("grpo", {"kl_estimator": "k1"}, "kl_estimator has no effect without algorithm.kl_coef above 0"),
    ("grpo", {"reference_every": 5}, "reference_every has no effect without algorithm.kl_coef above 0"),
    ("grpo", {"max_filtered_batches": 2}, "max_filtered_batches has no effect without algorithm.filter_zero_variance"),
    (
        "grpo",
        {"tis_cap": 3.0, "correction": "none", "kl_coef": 0.1, "kl_in": "reward"},
        "tis_cap has no effect without ",
    ),
    ("distillation", {"reward_clip": 1.0}, "reward_clip has no effect without an algorithm that learns from rewards"),
    (
        "distillation",
        {"kl_coef": 0.1, "kl_in": "reward"},
        "kl_in has no effect without an algorithm that learns from r",
    ),
    ("ppo", {"discount_by": "turn"}, "discount_by has no effect without algorithm.gamma or algorithm.gae_lambda below"),
    (
        "ppo",
        {"truncated": "mask", "bootstrap_truncated": True},
        "bootstrap_truncated has no effect without algorithm.tr",
    ),
    ("gigpo", {"step_weight": 0.0, "gamma": 0.5}, "gamma has no effect without algorithm.step_weight above 0"),
    ("reinforce++", {"filter_zero_variance": True}, "filter_zero_variance has no effect without an algorithm that cre"),
]


@pytest.mark.parametrize(("name", "keys", "words"), IDLE)
def test_a_key_that_nothing_reads_is_refused(name: str, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=f"^algorithm.{re.escape(words)}.*: leave it out$"):
        made(name, **keys)


@pytest.mark.parametrize(
    "keys",
    [
        {"tis_cap": 3.0},
        {"tis_cap": 3.0, "old_logprobs": "sampler", "kl_coef": 0.1},
        {"dual_clip": 5.0, "loss": "dual_clip"},
        {"max_filtered_batches": 2, "filter_zero_variance": True},
        {"filter_zero_variance": True, "kl_coef": 0.1},
        {"filter_zero_variance": True, "kl_coef": 0.1, "kl_in": "reward"},
        {"tis_floor": 0.5, "loss": "cispo"},
    ],
)
def test_a_key_that_something_reads_or_that_has_its_default_is_accepted(keys: dict[str, Any]) -> None:
    assert made("grpo", **keys).config.model_dump(include=set(keys)) == keys


def test_an_algorithm_with_a_loss_of_its_own_refuses_another(tmp_path: Path) -> None:
    path = write(tmp_path, "mine.py", f"{FILE}\n    def loss(self, terms):\n        return -terms.logprobs\n")
    with pytest.raises(
        ConfigError, match=r"algorithm\.loss has no effect without an algorithm that leaves the loss open"
    ):
        made(path, loss="gspo")


def test_an_algorithm_with_a_loss_of_its_own_may_read_the_keys_of_losses(tmp_path: Path) -> None:
    path = write(tmp_path, "mine.py", f"{FILE}\n    def loss(self, terms):\n        return -terms.logprobs\n")
    assert made(path, dual_clip=5.0).config.dual_clip == 5.0


def test_a_kl_in_the_reward_has_its_keys_beside_an_objective_of_its_own(tmp_path: Path) -> None:
    path = write(tmp_path, "mine.py", f"{FILE}\n    def objective(self, terms):\n        return -terms.logprobs\n")
    assert made(path, kl_coef=0.1, kl_in="reward", kl_estimator="k2").config.has_reward_kl


@pytest.mark.parametrize("key", ["correction", "kl_coef", "entropy_coef"])
def test_an_objective_of_its_own_accepts_the_keys_that_its_config_declares(tmp_path: Path, key: str) -> None:
    default, value = ("none", "icepop") if key == "correction" else (0.0, 0.5)
    text = f"{FILE}\n    def objective(self, terms):\n        return -terms.logprobs\n"
    needs = r"an objective that reads it and a Config of \w+ that declares it"
    with pytest.raises(ConfigError, match=rf"algorithm\.{key} has no effect without {needs}: leave it out"):
        made(write(tmp_path, "deaf.py", text), **{key: value})
    declared = text.replace("bonus: float = 0.5", f"{key}: {type(default).__name__} = {default!r}")
    assert getattr(made(write(tmp_path, "mine.py", declared), **{key: value}).config, key) == value


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        ("{'group_size': 2}", r"Mine: needs is {'group_size': 2}, write it as needs = Needs"),
        ("Needs", r"Mine: needs is <class .*write it as needs = Needs"),
        ("Needs(columns='old')", r"needs\.columns is 'old', write a set"),
        ("Needs(columns={'refrence'})", r"unknown column of needs 'refrence'\. Did you mean 'reference'"),
        ("Needs(group_size='2')", r"needs\.group_size is '2', not a whole number"),
    ],
)
def test_needs_that_cannot_be_met_are_refused_with_the_class(tmp_path: Path, needs: str, message: str) -> None:
    text = f"from agentrl.algorithms import Needs\n{FILE}\n".replace(
        "    class Config", f"    needs = {needs}\n\n    class Config"
    )
    with pytest.raises(ConfigError, match=message):
        made(write(tmp_path, "bad.py", text))


def test_dynamic_sampling_that_cannot_work_is_refused_even_as_a_default() -> None:
    class Needy(DAPO):
        needs = Needs(group_size=2, columns=frozenset({"reference"}))

    with pytest.raises(ConfigError, match=r"filter_zero_variance needs an algorithm that credits .*: set it to false"):
        _refuse_idle(Needy(), {})
    _refuse_idle(Needy(Needy.Config(filter_zero_variance=False)), {"filter_zero_variance": False})


class InReward(RLOO.Config):
    kl_in: Literal["loss", "reward"] = "reward"


class K3(InReward):
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"


class OfSequences(RLOO.Config):
    loss: Loss = "gspo"
    normalization: str = "sequence"


class Wider(OfSequences):
    clip_high: float = 0.1


def test_defaults_of_a_class_are_honoured() -> None:
    InReward.model_validate({})
    _refuse_idle(RLOO(InReward()), {})  # nobody set a key
    assert InReward(kl_coef=0.1).kl_estimator == "k1"
    assert K3(kl_coef=0.1).kl_estimator == "k3"
    assert (OfSequences().clip_low, OfSequences().clip_high) == (3e-4, 4e-4), "as with --algorithm.loss gspo"
    assert (Wider().clip_low, Wider().clip_high) == (3e-4, 0.1)
    with pytest.raises(ValueError, match="'token', 'sequence' or 'constant'"):
        OfSequences.model_validate({"normalization": "tokens"})


def test_a_class_may_allow_fewer_words_of_a_key() -> None:
    class Narrow(AlgorithmConfig):
        loss: Literal["gspo", "cispo"] = "gspo"

    with pytest.raises(ValueError, match="'gspo' or 'cispo'"):
        Narrow.model_validate({"loss": "ppo_clip"})


def test_an_algorithm_is_found_and_checked_without_torch(tmp_path: Path) -> None:
    path = write(tmp_path, "mine.py", f"{FILE}\n    def loss(self, terms):\n        import torch\n")
    code = (
        "import sys\nfrom agentrl.algorithms.registry import ALGORITHMS, make_algorithm\n"
        "from agentrl.config.schema import AlgorithmSection\n"
        "made = [make_algorithm(AlgorithmSection(name=name)) for name in (sys.argv[1], 'grpo')]\n"
        "print(len(made), {'torch', 'ray', 'vllm', 'transformers'} & sys.modules.keys())"
    )
    answer = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=60)
    assert answer.stdout == "2 set()\n", answer.stderr


def test_every_algorithm_of_agentrl_is_announced() -> None:
    names = [entry.name for entry in ALGORITHMS.shipped]
    assert names == list(dict.fromkeys(names))
    assert {resolve(name).name for name in names} == set(names)


def test_a_default_that_leaves_the_mismatch_uncorrected_is_refused(tmp_path: Path) -> None:
    """Without a ratio in the loss, the sampler's logprobs correct nothing, and the correction is off."""
    text = FILE.replace("bonus: float = 0.5", 'loss: str = "policy_gradient"\n        old_logprobs: str = "sampler"')
    with pytest.raises(ConfigError, match=r"Mine: old_logprobs is sampler .*, which needs a loss with the ratio"):
        made(f"{write(tmp_path, 'mine.py', text)}:Mine")
    mine = f"{tmp_path}/mine.py:Mine"
    assert made(mine, loss="ppo_clip").config.old_logprobs == "sampler"
    assert made(mine, old_logprobs="learner").config.old_logprobs == "learner", "which is the remedy"


def test_a_loss_by_default_is_the_same_in_every_folder(tmp_path: Path) -> None:
    text = FILE.replace("bonus: float = 0.5", 'loss: str = "./my_loss.py"')
    with pytest.raises(ConfigError, match=r"Config.loss './my_loss.py' is another file in every folder: write"):
        made(f"{write(tmp_path, 'mine.py', text)}:Mine")


@pytest.mark.parametrize(("parent", "key"), [(GSPO, "clip_high"), (GSPO, "loss"), (PPO, "clip_high")])
def test_an_objective_of_its_own_reads_no_key_that_its_parent_declares(parent: type[Algorithm], key: str) -> None:
    class Mine(parent):  # type: ignore[misc, valid-type]
        def objective(self, terms: Terms) -> Tensor:
            return -terms.advantages * terms.logprobs

    class Config(parent.Config):  # type: ignore[misc, name-defined]
        clip_high: float = 0.1
        loss: str = "cispo"

    assert key in Mine().idle_keys()
    assert key not in type("Declares", (Mine,), {"Config": Config})().idle_keys()
