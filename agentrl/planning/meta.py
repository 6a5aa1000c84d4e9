"""Shapes of models from their config.json: the model is built without memory, on torch's meta device.

The first reading imports torch and transformers, which takes seconds; its result is cached.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agentrl.config.embedded import cache_folder
from agentrl.config.models import config_json, rotary_of, text_description
from agentrl.config.packing import unpackable
from agentrl.errors import ConfigError, catch
from agentrl.planning.shape import FLOAT32, Linear, ModelReader, ModelShape

if TYPE_CHECKING:
    from torch import nn

VERSION = 8
"""Of the files in the cache."""
SIZES = (
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("hidden_size", "intermediate_size", "head_dim", "vocab_size", "max_position_embeddings"),
)
"""Entries of a config.json that count something of which there must be one; a kind of models need not have them all."""
MOST, MOST_LAYERS = 1 << 31, 10_000
"""Sizes above these are mistakes, and a model of so many layers would take hours to build."""
WHOLE_HEADS = {"minicpm3"}
"""Kinds of models with latent attention of which vLLM caches the keys and values of all heads all the same."""


@dataclass(frozen=True, slots=True)
class ConfigReader(ModelReader):
    """Describes models by their config.json, which is on this machine or may be downloaded."""

    may_download: bool = True

    def shape(self, name: str) -> ModelShape:
        """Return the shape of a model. Raises ConfigError if it has no config.json, or one that cannot be built."""
        return read_shape(config_json(name, may_download=self.may_download))

    def reward_shape(self, name: str) -> ModelShape:
        """Return the shape of a reward model. Raises ConfigError likewise."""
        return read_shape(config_json(name, may_download=self.may_download), is_reward=True)


def read_shape(file: Path, *, is_reward: bool = False) -> ModelShape:
    """Return the shape of the model that a config.json describes. Raises ConfigError if it cannot be built."""
    cached = _cached(file, "reward.json" if is_reward else "json")
    with suppress(OSError, ValueError, TypeError, KeyError):
        return _from_json(cached.read_text())
    shape = built_shape(file.parent, is_reward=is_reward)
    with suppress(OSError):
        _write(cached, json.dumps(asdict(shape), indent=1))
    return shape


def _cached(file: Path, kind: str) -> Path:
    """Return where what a config.json describes is kept."""
    try:
        text = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    version = f"{VERSION} {metadata.version('transformers')} ".encode()
    return cache_folder() / "shapes" / f"{hashlib.sha256(version + text).hexdigest()[:24]}.{kind}"


def _from_json(text: str) -> ModelShape:
    fields = json.loads(text)
    linears = tuple(Linear(tuple(names), *sizes) for names, *sizes in map(dict.values, fields.pop("linears")))
    rotary, styles = (tuple(fields.pop(name)) for name in ("rotary", "styles"))
    return ModelShape(**fields, linears=linears, rotary=rotary, styles=styles)


def _write(path: Path, text: str) -> None:
    """Write a file at once: another process may write the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    Path(file.name).rename(path)


def built_shape(folder: Path, *, is_reward: bool = False) -> ModelShape:
    """Return the shape of the model in a folder with a config.json: it is built without memory. Raises ConfigError."""
    built = catch(_built, folder, is_reward)
    if isinstance(built.error, ModuleNotFoundError):
        raise ConfigError(f"to count the parameters of a model, install torch and transformers: {built.error}")
    if built.error:
        why = " ".join(str(built.error).split())
        raise ConfigError(f"the model of {folder / 'config.json'} cannot be planned: {why}")
    return cast(ModelShape, built.value)


def _built(folder: Path, is_reward: bool) -> ModelShape:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

    kind: Any = AutoModelForSequenceClassification if is_reward else AutoModelForCausalLM
    named = "sequence classifier" if is_reward else "causal language model"
    _check_sizes(text_description(folder))
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    _check_heads(config.get_text_config())
    if is_reward:
        config.num_labels = 1
    try:
        with torch.device("meta"):
            model = kind.from_config(config, trust_remote_code=False)
    except ValueError as error:
        if "Unrecognized configuration class" in str(error):
            raise ValueError(f"transformers has no {named} of model_type {config.model_type}") from None
        raise
    return shape_of(model, config.get_text_config())


def _check_sizes(entries: Mapping[str, Any]) -> None:
    """Raise ValueError for a size that no model can have. Some kinds of models list one for each layer."""
    for name in SIZES:
        found = entries.get(name)
        for size in found if isinstance(found, list) else [] if found is None else [found]:
            most = MOST_LAYERS if name == "num_hidden_layers" else MOST
            if type(size) is not int or not 1 <= size <= most:
                raise ValueError(f"{name} is {found!r}, and must be a whole number from 1 to {most}")


def _check_heads(config: Any) -> None:
    """Raise ValueError for key/value heads that no equal groups of heads share."""
    heads, kv_heads = (_number(config, name) for name in ("num_attention_heads", "num_key_value_heads"))
    if kv_heads and heads % kv_heads:
        raise ValueError(f"num_key_value_heads is {kv_heads}, and must divide num_attention_heads, which is {heads}")


def shape_of(model: Any, config: Any) -> ModelShape:
    """Return the shape of a model of transformers: a causal language model, or a classifier, which has no head."""
    head = getattr(model.get_output_embeddings(), "weight", None)
    heads = _number(config, "num_attention_heads", default=1)  # FNet has none
    blocks = [(name, parameter) for name, parameter in model.named_parameters() if _is_in_block(name)]
    parameters = sum(parameter.numel() for parameter in model.parameters())
    experts, sent_to = _experts(config)
    in_experts = sum(parameter.numel() for name, parameter in blocks if ".experts." in name)
    return ModelShape(
        kind=config.model_type,
        parameters=parameters,
        matrices=sum(parameter.numel() for _, parameter in blocks if parameter.ndim >= 2),
        active=parameters - in_experts * (experts - sent_to) // max(1, experts),
        largest=max(parameter.numel() for parameter in model.parameters()),
        vocabulary=config.vocab_size,
        hidden=config.hidden_size,
        inner=_inner(config, sent_to),
        layers=config.num_hidden_layers,
        heads=heads,
        kv_heads=_kv_heads(config, heads),
        head_size=_number(config, "qk_head_dim", "head_dim", default=config.hidden_size // heads),
        latent=_latent(config),
        context=_number(config, "max_position_embeddings"),
        stored=getattr(model.config.dtype or config.dtype, "itemsize", FLOAT32),
        is_tied=head is None or head is model.get_input_embeddings().weight,
        is_gated=any("gate_proj" in name or "gate_up_proj" in name for name, _ in blocks),
        has_head_norm=any("q_norm" in name for name, _ in blocks),
        linears=tuple(_linears(model)),
        rotary=rotary_of(config),
        styles=tuple(sorted({*(config.base_model_tp_plan or {}).values()})),
        unpackable=_unpackable(model, head),
    )


def _unpackable(model: Any, head: Any) -> str:
    """Return why the learner cannot train a model: a policy, or a critic, which has no head of a language model."""
    head = getattr(getattr(model, "score", None), "weight", None) if head is None else head
    return "its head is not a matrix that is named score" if head is None else unpackable(model, head)


def _is_in_block(name: str) -> bool:
    """Return whether a parameter belongs to one of the model's blocks, which are numbered."""
    return any(part.isdigit() for part in name.split("."))


def _number(config: Any, *names: str, default: int = 0) -> int:
    """Return the first of these entries of a config that has a number; of one number for each layer the largest."""
    found = (getattr(config, name, None) for name in names)
    numbers = (max(value, default=0) if isinstance(value, list) else value for value in found)
    return next((number for number in numbers if number), default)


def _kv_heads(config: Any, heads: int) -> int:
    """Return the heads of keys. Falcon's second architecture has groups of heads, whatever `multi_query` says."""
    if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False):
        return 1
    return _number(config, "num_kv_heads", "num_key_value_heads", default=heads)


def _latent(config: Any) -> int:
    """Return the width of the compressed keys and values, with the part of the keys that is rotated (DeepSeek-V2)."""
    rank = 0 if config.model_type in WHOLE_HEADS else _number(config, "kv_lora_rank")
    return rank and rank + _number(config, "qk_rope_head_dim")


def _experts(config: Any) -> tuple[int, int]:
    """(experts of a layer, experts that a token is sent to); zeros for a dense model."""
    experts = _number(config, "num_experts", "num_local_experts", "n_routed_experts")
    return experts, min(experts, _number(config, "num_experts_per_tok", "num_experts_per_token", "top_k"))


def _inner(config: Any, sent_to: int) -> int:
    """Return the width of the MLP that a token sees."""
    dense = _number(config, "intermediate_size", "n_inner", "ffn_dim", default=4 * config.hidden_size)
    if not sent_to:
        return dense
    expert = _number(config, "moe_intermediate_size", default=dense)
    shared = _number(config, "shared_expert_intermediate_size") or expert * _number(config, "n_shared_experts")
    return sent_to * expert + shared


def _linears(model: nn.Module) -> Iterator[Linear]:
    """Yield the linear layers of the blocks that can have adapters, equal ones of one name together."""
    from torch import nn

    found: dict[tuple[str, int, int], list[str]] = defaultdict(list)
    for name, module in model.named_modules():
        is_linear = isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward
        if is_linear and _is_in_block(name):
            found[name.rpartition(".")[2], module.in_features, module.out_features].append(name)
    yield from (Linear(tuple(names), inputs, outputs) for (_, inputs, outputs), names in found.items())
