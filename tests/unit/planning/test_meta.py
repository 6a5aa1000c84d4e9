"""A model is counted from its config.json alone, and read once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.config.models import config_json
from agentrl.errors import ConfigError
from agentrl.planning.meta import built_shape, read_shape, shape_of
from tests.unit.planning.published import CONFIGS, folder_of, reward_shape, shape


@pytest.mark.parametrize(
    ("name", "billions", "source"),
    [
        ("Qwen2.5-0.5B", 0.49, "model card of Qwen2.5-0.5B: number of parameters 0.49B"),
        ("Qwen2.5-7B", 7.61, "model card of Qwen2.5-7B"),
        ("Qwen2.5-32B", 32.5, "model card of Qwen2.5-32B, and of QwQ-32B"),
        ("Qwen3-32B", 32.8, "model card of Qwen3-32B"),
        ("Llama-3.1-8B", 8.03, "Hugging Face, safetensors of meta-llama/Llama-3.1-8B"),
        ("Llama-3.1-70B", 70.6, "Hugging Face, safetensors of meta-llama/Llama-3.1-70B"),
        ("LLaMA-65B", 65.2, "Touvron et al. 2023, LLaMA, table 2"),
        ("OPT-13B", 12.9, "Zhang et al. 2022, OPT, table 1: 13B"),
        ("Qwen3-30B-A3B", 30.5, "model card of Qwen3-30B-A3B"),
    ],
)
def test_parameters_are_those_that_are_published(name: str, billions: float, source: str) -> None:
    assert shape(name).parameters / 1e9 == pytest.approx(billions, rel=0.012), source


def test_of_experts_a_token_sees_those_that_it_is_sent_to() -> None:
    mixture = shape("Qwen3-30B-A3B")
    assert mixture.active / 1e9 == pytest.approx(3.3, rel=0.02)  # model card: 3.3B activated
    assert (mixture.inner, mixture.has_head_norm) == (8 * 768, True)
    assert shape("Qwen2.5-7B").active == shape("Qwen2.5-7B").parameters


def test_a_tied_head_is_counted_once_and_a_critic_has_none() -> None:
    tied, own = shape("Qwen2.5-0.5B"), shape("Qwen2.5-7B")
    assert (tied.is_tied, own.is_tied) == (True, False)
    assert reward_shape("Qwen2.5-0.5B").parameters == tied.parameters + tied.hidden
    assert reward_shape("Qwen2.5-7B").parameters == own.parameters - own.embedding + own.hidden


def test_shapes_of_heads_and_matrices_are_those_of_the_config() -> None:
    qwen = shape("Qwen2.5-7B")
    assert (qwen.queries, qwen.keys, qwen.inner, qwen.layers) == (3584, 512, 18944, 28)
    assert qwen.largest == qwen.embedding == 152064 * 3584
    of_layer = 2 * 3584 * 3584 + 2 * 3584 * 512 + 3 * 3584 * 18944
    assert qwen.matrices == 28 * of_layer
    assert qwen.adapters(16) == 28 * 16 * (2 * (3584 + 3584) + 2 * (3584 + 512) + 3 * (3584 + 18944))
    assert qwen.adapters(16, ["q_proj"]) == 28 * 16 * (3584 + 3584)


def test_the_second_reading_imports_nothing_heavy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path / "cache"))
    file = folder_of("Qwen2.5-0.5B", tmp_path) / "config.json"
    first = read_shape(file)
    assert first == shape("Qwen2.5-0.5B")
    code = (
        "import sys\nfrom pathlib import Path\nfrom agentrl.planning.meta import read_shape\n"
        f"print(read_shape(Path({str(file)!r})).parameters, 'torch' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.split() == [str(first.parameters), "False"]


def test_another_config_is_another_shape_and_a_broken_cache_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path / "cache"))
    file = folder_of("Qwen2.5-0.5B", tmp_path) / "config.json"
    first = read_shape(file)
    [cached] = (tmp_path / "cache" / "shapes").iterdir()
    cached.write_text("{")
    assert read_shape(file) == first
    file.write_text(json.dumps(CONFIGS["Qwen2.5-0.5B"] | {"num_hidden_layers": 12}))
    assert read_shape(file).layers == 12


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"model_type": "nothing_known"}', '{"model_type": "vit"}'])
def test_a_config_that_is_no_language_model_s_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.json cannot be planned"):
        read_shape(tmp_path / "config.json")
    with pytest.raises(ConfigError, match="cannot read"):
        read_shape(tmp_path / "none" / "config.json")


REMOTE = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.Own"}


@pytest.mark.parametrize(
    "changes",
    [
        {"num_key_value_heads": 0},
        {"max_position_embeddings": 0},
        {"max_position_embeddings": -32768},
        {"num_hidden_layers": 0},
        {"num_hidden_layers": -3},
        {"vocab_size": 0},
        {"intermediate_size": 0},
        {"head_dim": -2},
        {"model_type": "t5"},
        {"num_attention_heads": 0},
        {"hidden_size": 0},
        {"hidden_size": "big"},
        {"vocab_size": -5},
        {"model_type": "own", "auto_map": REMOTE},
    ],
    ids=str,
)
def test_a_model_that_cannot_be_built_or_counted_is_refused_on_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]
) -> None:
    monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asks"))
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["Qwen2.5-0.5B"] | changes))
    with pytest.raises(ConfigError, match=r"^the model of [^\n]*config\.json cannot be planned: [^\n]+\Z"):
        read_shape(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *(("num_hidden_layers", size) for size in (0, 10**6, 10**30, True, "12", 12.0)),
        *(("intermediate_size", size) for size in ([64, 0], [64, "128"], 2**32)),
    ],
)
def test_a_size_that_no_model_has_is_refused_by_name_before_anything_is_built(
    name: str, size: object, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["Qwen2.5-0.5B"] | {name: size}))
    with pytest.raises(ConfigError, match=rf"{name} is {re.escape(repr(size))}, and must be a whole number from 1 to"):
        built_shape(tmp_path)


def test_of_sizes_for_each_layer_the_largest_is_planned(tmp_path: Path) -> None:
    layers = {"num_hidden_layers": 2, "intermediate_size": [64, 128], "hidden_size": 32, "vocab_size": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size_per_layer_input": 64}
    gemma = {"model_type": "gemma3n_text", "layer_types": ["full_attention"] * 2, "num_kv_shared_layers": 0}
    (tmp_path / "config.json").write_text(json.dumps(gemma | layers | heads))
    assert built_shape(tmp_path).inner == 128


@pytest.mark.parametrize(("dtype", "width"), [("bfloat16", 2), ("float32", 4), (None, 4)])
def test_a_shape_knows_the_type_in_which_a_reward_model_is_loaded(tmp_path: Path, dtype: str, width: int) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["Qwen2.5-0.5B"] | {"dtype": dtype}))
    assert built_shape(tmp_path, is_reward=True).stored == width


@pytest.mark.parametrize("kv_heads", [4, 28])
def test_key_value_heads_that_do_not_divide_the_heads_are_refused_by_name(tmp_path: Path, kv_heads: int) -> None:
    changed = CONFIGS["Qwen2.5-0.5B"] | {"num_key_value_heads": kv_heads}
    (tmp_path / "config.json").write_text(json.dumps(changed))
    with pytest.raises(ConfigError, match=rf"num_key_value_heads is {kv_heads}, and must divide .*_heads, which is 14"):
        built_shape(tmp_path)


def test_a_folder_with_nothing_but_a_config_is_enough_and_a_checkpoint_is_one(tmp_path: Path) -> None:
    folder = folder_of("Qwen2.5-0.5B", tmp_path)
    assert config_json(str(folder)) == folder / "config.json"
    folder.rename(tmp_path / "model")
    assert config_json(str(tmp_path)) == tmp_path / "model" / "config.json"
    for folder in (tmp_path.parent, tmp_path / "model" / "none"):
        folder.mkdir(exist_ok=True)
        with pytest.raises(ConfigError) as refused:
            config_json(str(folder))
        assert str(refused.value).startswith(f"model {folder} has no config.json: give ")
    with pytest.raises(ConfigError, match="there is no such folder"):
        config_json("./none")


def test_a_hub_model_that_is_not_on_this_machine_is_not_downloaded_for_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError):
        config_json("agentrl-tests/there-is-no-such-model", may_download=False)


def test_a_model_is_counted_as_transformers_builds_it() -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model("llama", hidden_size=64, num_hidden_layers=2, vocab_size=96, intermediate_size=128)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    found = shape_of(model, config)
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert (found.kind, found.vocabulary, found.hidden, found.is_gated) == ("llama", 96, 64, True)
