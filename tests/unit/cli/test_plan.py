"""`agentrl plan`: the same flags as `agentrl train`, hardware of any size, one page of text, and an exit code."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.cli import plan
from agentrl.cli.main import main
from agentrl.config import models
from tests.unit.config.test_resolve import LAPTOP
from tests.unit.planning.published import CONFIGS, folder_of, gpus

PAGE = Path(__file__).parents[3] / "docs" / "plan.md"
JUDGE = '[{{name = "kind", url = "http://127.0.0.1:9/v1", judge = "qwen", {}}}]'
SHOWN = re.compile(r"```bash\n(agentrl plan [^\n]+)\n```\n+```text\n(.*?)```", re.DOTALL)


@pytest.fixture(autouse=True)
def _hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop, and a hub with the published models."""
    folders = {name: folder_of(name, tmp_path / "hub") for name in CONFIGS}

    def downloaded(name: str, *_: object, **__: object) -> Path:
        return folders[name.rpartition("/")[2].removesuffix("-Instruct")]

    monkeypatch.setattr(models, "_download", downloaded)
    monkeypatch.setattr(plan, "hardware", lambda: LAPTOP)
    monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path / "cache"))


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(["plan", *words])
    return status, capsys.readouterr().out


def test_a_plan_that_fits_exits_with_0_and_one_that_does_not_with_2_and_a_remedy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, text = printed(capsys, "--model", "Qwen/Qwen2.5-0.5B-Instruct", "--gpus", "1")
    assert (status, text.splitlines()[-1]) == (0, "fits")
    flags = ("--learner.ranks", "8", "--engine.count", "8", "--learner.zero_stage", "0")
    status, text = printed(capsys, "Qwen/Qwen2.5-7B", "--gpus", "8", *flags)
    assert status == 2
    assert "does not fit: learner + engine" in text
    assert "nearest setting that fits: --" in text


def test_what_is_left_to_the_plan_is_chosen_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = printed(capsys, "--model", "Qwen/Qwen2.5-7B", "--gpus", "8", "--gpu-memory", "80")
    assert status == 0
    assert "\nchosen, because the defaults do not fit: --learner.zero_stage 2 " in text
    assert "8 x H100 of 80.0 GiB" in text


def test_70b_on_four_ranks_at_stage_0_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--learner.ranks", "4", "--learner.zero_stage", "0")
    status, text = printed(capsys, "meta-llama/Llama-3.1-70B", "--gpus", "8", *flags)
    assert status == 2
    assert re.search(r"learner x 4 +start +263\.\d of +79\.6 +does not fit +loaded model 262\.8", text)


def test_json_has_every_byte_and_second(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = printed(capsys, "Qwen/Qwen2.5-0.5B", "--gpus", "2", "--nodes", "2", "--gpu", "A100", "--json")
    found = json.loads(text)
    assert status == 0
    assert (found["gpu"], found["fit"], found["parameters"]) == ("A100", "fits", 494032768)
    for need in found["needs"]:
        assert need["nbytes"] == sum(item["nbytes"] for item in need["items"])
    assert {need["count"] for need in found["needs"] if need["device"] != "CPU memory"} == {4}
    assert found["step_s"] == pytest.approx(sum(found["seconds"].values()), abs=0.01)


def test_json_has_the_layout(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("Qwen/Qwen2.5-7B", "--gpus", "8", "--nodes", "2", "--engine.placement", "separate", "--json")
    found = json.loads(printed(capsys, *words)[1])
    assert found["gpus"] == [8, 8]
    layout = found["layout"]
    used = layout["engine.count"] * layout["engine.tensor_parallel"] + layout["learner.ranks"]
    assert (used, layout["engine.placement"], layout["model.dtype"]) == (16, "separate", "bfloat16")
    assert f"--learner.zero_stage {layout['learner.zero_stage']}" in found["chosen"]


def test_the_layout_has_the_ranks_of_a_critic_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    apart = ("--engine.placement", "separate", "--critic.placement", "separate")
    words = ("Qwen/Qwen2.5-7B", "--gpus", "16", "--algorithm.name", "ppo", *apart, "--json")
    layout = json.loads(printed(capsys, *words)[1])["layout"]
    assert layout["critic.ranks"] == layout["learner.ranks"] > 0
    engines = layout["engine.count"] * layout["engine.tensor_parallel"]
    assert engines + layout["learner.ranks"] + layout["critic.ranks"] == 16


def test_nothing_but_json_is_printed(tmp_path: Path) -> None:
    """DeepSpeed, which knows its options, logs to stdout when it is imported."""
    parked = ("--learner.zero_stage", "3", "--learner.deepspeed.offload_param.device", "cpu")
    words = ("plan", "--model", str(folder_of("Qwen2.5-7B", tmp_path)), "--gpus", "8", *parked, "--json")
    done = subprocess.run([sys.executable, "-m", "agentrl", *words], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["layout"]["learner.zero_stage"] == 3


def test_without_gpus_this_machine_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = printed(capsys, "Qwen/Qwen2.5-0.5B")
    assert status == 0
    assert "on CPUs with 24.0 GiB of memory" in text
    assert "seconds" not in text


def test_the_gpus_of_this_machine_are_planned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "hardware", lambda: gpus(4, 140.4, "NVIDIA H200"))
    assert "4 x H200 of 140.4 GiB" in printed(capsys, "Qwen/Qwen2.5-0.5B")[1]


def test_prompts_and_responses_change_the_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("Qwen/Qwen2.5-0.5B", "--gpus", "1", "--prompts", "64", "--json", "--model.max_context", "4096")
    few = json.loads(printed(capsys, *words)[1])["step_s"]
    long = json.loads(printed(capsys, *words, "--max-tokens", "2048")[1])["step_s"]
    prompts = json.loads(printed(capsys, *words, "--prompt-tokens", "3000")[1])["step_s"]
    assert long > 3 * few
    assert prompts > few


@pytest.mark.parametrize(
    ("lora", "published"),
    [
        ([], "942.3 MiB"),
        (["--lora.rank", "16"], "16.8 MiB as adapters of rank 16 (all-linear)"),
        (["--lora.rank", "64"], "67.1 MiB as adapters of rank 64 (all-linear)"),
        (["--lora.rank", "16", "--lora.targets", "q_proj,v_proj"], "2.1 MiB as adapters of rank 16 (q_proj,v_proj)"),
        (["--lora.rank", "16", "--lora.publish", "merged"], "942.3 MiB"),
    ],
)
def test_the_plan_tells_the_bytes_of_a_publication(
    lora: list[str], published: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = printed(capsys, "Qwen/Qwen2.5-0.5B-Instruct", "--gpus", "1", *lora)
    assert f"\neach publication: {published}\n" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpus", "0"], "argument --gpus: must be a whole number of at least 1, got '0'"),
        (["--gpu-memory", "nan"], "argument --gpu-memory: must be a number above 0, got 'nan'"),
        (["--gpu-memory=-5"], "argument --gpu-memory: must be a number above 0, got '-5'"),
        (["--gpu-memory", "inf"], "argument --gpu-memory: must be a number above 0, got 'inf'"),
        (["--gpu-memory", "1e308"], "argument --gpu-memory: must be at most 1000000 GiB, got '1e308'"),
        (["Qwen/Qwen2.5-0.5B", "--gpus", "2", "--prompt-tokens", "5000"], "no room for an answer in model.max_context"),
        (["Qwen/Qwen2.5-0.5B", "--gpus", "2", "--algo", "distillation"], "set algorithm.teacher to a model"),
        (["Qwen/Qwen2.5-0.5B", "--gpus", "2", "--group-size", "1"], "compares at least 2 episodes per task"),
        (
            ["Qwen/Qwen2.5-0.5B", "--gpus", "2", "--model.max_context", "100000"],
            "model.max_context is 100000, but",
        ),
        (
            shlex.split(
                "Qwen/Qwen2.5-0.5B --gpus 2 --roles.judge.model Qwen/Qwen2.5-7B --roles.judge.max_context 40000"
            ),
            "roles.judge.max_context is 40000, but",
        ),
        (
            [*shlex.split("Qwen/Qwen2.5-0.5B --gpus 2 --reward.models"), JUDGE.format('pattern = "Score: ("')],
            "judge kind: 'Score: (' is no pattern of RE2: missing ): Score: (\n",
        ),
        (
            [*shlex.split("Qwen/Qwen2.5-0.5B --gpus 2 --reward.models"), JUDGE.format("bounds = [5.0, 1.0]")],
            "judge kind: its bounds [5.0, 1.0] are not in order",
        ),
        (["--gpus", "8", "--gpu", "H10"], "unknown kind of GPU 'H10'. Did you mean 'H100'?"),
        (["--gpus", "8", "--learner.rnks", "4"], "Did you mean 'learner.ranks'?"),
        (["./none", "--gpus", "8"], "model './none': there is no such folder"),
        (["Qwen/Qwen2.5-7B", "--gpus", "2", "--learner.ranks", "4"], "take 4 GPUs; 2 are visible"),
        (["Qwen/Qwen2.5-7B", "--gpus", "2", "--algo", "grop"], "Did you mean 'grpo'?"),
    ],
)
def test_a_plan_of_nothing_is_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["jamba", "bert"])
def test_a_model_that_the_learner_cannot_pack_has_no_plan(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 4, "vocab_size": 64}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, **sizes, "num_key_value_heads": 4}))
    assert main(["plan", str(tmp_path), "--gpus", "1"]) == 2
    assert f"the policy ({kind}) has an architecture agentrl does not train yet: it" in capsys.readouterr().err


def test_the_help_has_the_hardware_and_the_everyday_flags(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--help"])
    text = capsys.readouterr().out
    for flag in ("--gpus", "--nodes", "--gpu-memory", "--gpu ", "--json", "--prompt-tokens", "--group-size"):
        assert flag in text


def test_the_page_shows_what_its_commands_print(capsys: pytest.CaptureFixture[str]) -> None:
    shown = SHOWN.findall(PAGE.read_text())
    assert len(shown) >= 2
    for command, text in shown:
        main(shlex.split(command)[1:])
        assert capsys.readouterr().out == text, command


def test_a_critic_is_judged_by_the_head_that_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Phi's language model adds a bias to its logits, which a critic does not have."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}
    for kind in ("phi", "llama", "ernie4_5"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "config.json").write_text(json.dumps({"model_type": kind, **sizes}))
    words = ["--gpus", "1", "--algo", "ppo", "--model.max_context", "512", "--max-tokens", "64"]
    assert main(["plan", str(tmp_path / "llama"), *words, "--critic.model", str(tmp_path / "phi")]) == 0
    assert main(["plan", str(tmp_path / "phi"), *words]) == 2
    assert "the policy (phi) has an architecture agentrl does not train yet" in capsys.readouterr().err
    assert main(["plan", str(tmp_path / "ernie4_5"), *words]) == 2
    assert "transformers has no sequence classifier of model_type ernie4_5" in capsys.readouterr().err
