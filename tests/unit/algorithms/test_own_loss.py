"""`algorithm.loss` takes an author's function, whose declared needs the run meets or refuses by name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from agentrl.algorithms import Algorithm, reads
from agentrl.algorithms.registry import make_algorithm
from agentrl.config.schema import AlgorithmSection, Config
from agentrl.errors import AlgorithmError, ConfigError, UnknownNameError
from agentrl.learner.loss import rehearse_loss
from agentrl.records.folder import RunFolder
from agentrl.records.manifest import plugin_source, read_manifest
from agentrl.training.inputs import RunInputs, anchored
from tests.tiny import tiny_model

LOSS = """
from agentrl.algorithms import reads

{reads}
def mine(terms, config):
    return -terms.advantages * terms.logprobs * config.clip_low

def _helper():
    pass
"""


def write(path: Path, text: str = LOSS, reads: str = "") -> str:
    path.write_text(text.replace("{reads}", reads))
    return str(path)


def made(loss: str, algo: str = "grpo", **keys: Any) -> Algorithm:
    return make_algorithm(AlgorithmSection.model_validate({"name": algo, "loss": loss, **keys}))


def test_a_function_of_a_file_or_a_package_is_the_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "mine.py")
    write(tmp_path / "acme_losses.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("./mine.py", "mine.py:mine", f"{tmp_path}/mine.py:mine", "acme_losses:mine"):
        for algo in ("grpo", "gspo", "distillation"):
            rule = made(name, algo, clip_low=0.5, dual_clip=5.0)
            assert rule.config.loss == name
            rehearse_loss(rule)
    assert not made("./mine.py").skips_zero_advantages, "who knows whether it trains tokens without an advantage"


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("ppo", "algorithm.loss must be 'ppo_clip', 'dual_clip', 'gspo', 'cispo', 'policy_gradient', ./file.py:func"),
        ("dualclip", "package:function (Did you mean 'dual_clip'?), got 'dualclip'"),
        ("./none.py:mine", "none.py does not exist"),
        ("./mine.py:mein", "'mein'. Did you mean 'mine'?"),
        ("./two.py", "name a function of the file, as in ./two.py:my_loss; found: one, two"),
        ("./mine.py:reads_", "unknown loss"),
        ("./one.py", "(one.py:1) is called with terms and config: too many positional arguments"),
        ("json:JSONDecoder", "is a type, not a function of terms and config"),
        ("no_such_package:mine", "cannot be loaded: ModuleNotFoundError"),
        ("./broken.py", "broken.py:1: ZeroDivisionError"),
    ],
)
def test_what_is_no_loss_is_refused_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine.py")
    write(tmp_path / "two.py", "def one(terms, config):\n    pass\n\ndef two(terms, config):\n    pass\n")
    write(tmp_path / "one.py", "def one(terms):\n    pass\n")
    write(tmp_path / "broken.py", "1 / 0\n")
    with pytest.raises(ConfigError, match=re.escape(message)):
        made(loss)


REFUSED = [
    ("reference", "grpo", {}, "set algorithm.kl_coef above 0"),
    ("values", "grpo", {}, "choose an algorithm with a critic (ppo)"),
    ("returns", "grpo", {}, "choose an algorithm with a critic (ppo)"),
    ("teacher", "ppo", {}, "choose an algorithm that has one (distillation)"),
]
MET = [
    ("reference", "grpo", {"kl_coef": 0.1}),
    ("values", "ppo", {}),
    ("returns", "ppo", {}),
    ("teacher", "distillation", {}),
    ("old", "grpo", {}),
]


@pytest.mark.parametrize(("column", "algo", "keys", "remedy"), REFUSED)
def test_a_loss_whose_needs_the_run_does_not_meet_is_refused(
    tmp_path: Path, column: str, algo: str, keys: dict[str, Any], remedy: str
) -> None:
    loss = write(tmp_path / "mine.py", reads=f'@reads("old", "{column}")')
    message = f"algorithm.loss {loss} reads {column!r}, which {algo} does not have in this run: {remedy}"
    with pytest.raises(ConfigError, match=re.escape(message)):
        made(loss, algo, **keys)


@pytest.mark.parametrize(("column", "algo", "keys"), MET)
def test_a_loss_whose_needs_the_run_meets_is_accepted(
    tmp_path: Path, column: str, algo: str, keys: dict[str, Any]
) -> None:
    made(write(tmp_path / "mine.py", reads=f'@reads("{column}")'), algo, **keys)


def test_an_unknown_column_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown column of a loss 'refrence'. Did you mean 'reference'"):
        reads("refrence")  # type: ignore[arg-type]


def test_an_algorithm_with_a_loss_of_its_own_refuses_the_function(tmp_path: Path) -> None:
    algo = "from agentrl.algorithms import GRPO\n\nclass Own(GRPO):\n    def loss(self, terms):\n        return terms\n"
    with pytest.raises(
        ConfigError, match=r"algorithm\.loss has no effect without an algorithm that leaves the loss open"
    ):
        made(write(tmp_path / "mine.py"), write(tmp_path / "algo.py", algo))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("return terms.logprobs.mean()", r"mine returned the shape \(\), not \(5,\)"),
        ("return -terms.logprobs.detach()", "mine returned a loss without a gradient"),
        ("return terms.advantage", r"grpo: the loss .*mine.py failed: AttributeError: .*mine.py:5\)"),
        (
            "return terms.column('reference')",
            r"grpo: the loss .*mine.py failed: AttributeError: the column 'reference' is not declared: .*mine.py:5\)",
        ),
    ],
)
def test_a_mistake_in_it_is_found_when_a_rank_starts(tmp_path: Path, line: str, message: str) -> None:
    loss = write(tmp_path / "mine.py", f"# one\n# two\n\ndef mine(terms, config):\n    {line}\n")
    with pytest.raises(AlgorithmError, match=message):
        rehearse_loss(made(loss))


def test_it_is_found_and_checked_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom agentrl.algorithms.registry import make_algorithm\n"
        "from agentrl.config.schema import AlgorithmSection\n"
        "section = AlgorithmSection.model_validate({'name': 'grpo', 'loss': sys.argv[1]})\n"
        "print(make_algorithm(section).checked_loss().columns, {'torch', 'ray', 'vllm'} & sys.modules.keys())"
    )
    path = write(tmp_path / "mine.py", reads='@reads("old")')
    answer = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=120)
    assert answer.stdout == "frozenset({'old'}) set()\n", answer.stderr


def test_a_changed_file_is_told_on_resume_and_its_path_is_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine.py")
    config = anchored(Config.model_validate({"algorithm": {"name": "grpo", "loss": "./mine.py:mine"}}))
    assert config.algorithm.options["loss"] == f"{tmp_path}/mine.py:mine"
    builtin = Config.model_validate({"algorithm": {"name": "grpo", "loss": "gspo"}})
    assert anchored(builtin).algorithm.options["loss"] == "gspo"
    rule = make_algorithm(config.algorithm)
    model, run = tiny_model(tmp_path / "model"), RunFolder(tmp_path / "run")
    run.path.mkdir()
    inputs = RunInputs((lambda: plugin_source("grpo", type(rule)),), model, "", type(rule), rule.checked_loss())
    assert inputs.write_manifest(config, run) == ""
    manifest = read_manifest(run)
    assert manifest is not None
    assert manifest.loss is not None
    assert [file.name for file in manifest.loss.files] == ["mine.py"]
    write(tmp_path / "mine.py", LOSS + "\n# changed\n")
    assert "loss" in inputs.write_manifest(config, run)


def test_the_loss_is_that_of_the_function(tmp_path: Path) -> None:
    from agentrl.losses import Terms

    values = torch.tensor([-1.0, -2.0], requires_grad=True)
    ones = torch.ones(2)
    terms = Terms(values, ones, -ones, -ones, torch.tensor([1.0, 2.0]), ones, torch.tensor([0, 0]))
    made_A = made(write(tmp_path / "mine.py"), clip_low=0.5).loss(terms)  # noqa: N806
    assert made_A.tolist() == [0.5, 2.0]
