"""The names of a run's keys: dotted names, short flags, former names, and what each key means."""

from __future__ import annotations

import re
from functools import cache, reduce
from typing import Any, Literal, TypeGuard, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from agentrl.config.schema import FOR_MACHINE, Config, PluginSection, Unset

# The everyday flags; every other key is set by its dotted name.
SHORT_FLAGS = {
    "env": "env.name",
    "model": "model.name",
    "algo": "algorithm.name",
    "steps": "steps",
    "prompts": "rollout.prompts",
    "group-size": "rollout.group_size",
    "max-tokens": "rollout.max_tokens",
    "lr": "learner.lr",
    "seed": "seed",
    "out": "out",
}

RENAMED = {
    "algorithm.kl_weight": "algorithm.kl_coef",
    "algorithm.importance_cap": "algorithm.tis_cap",
    "algorithm.filter_equal": "algorithm.filter_zero_variance",
    "algorithm.filter_batches": "algorithm.max_filtered_batches",
    "learner.minibatches": "learner.updates_per_batch",
    "learner.zero": "learner.zero_stage",
    "engine.eager": "engine.enforce_eager",
    "engine.gpu_memory": "engine.gpu_memory_utilization",
    "engine.max_sequences": "engine.max_num_seqs",
}
"""Keys of earlier versions, which are refused, and their present names."""
ABSENT = {
    "liger": "agentrl has no Liger kernels: it computes logits in chunks",
    "ring_att": "agentrl has no ring attention: set learner.sequence_parallel for long sequences",
    "context_parallel": "agentrl has no context parallelism: set learner.sequence_parallel for long sequences",
    "expert_parallel": "agentrl has no expert parallelism: nothing checks that published weights reach engines that "
    "divide experts. Set engine.tensor_parallel, which divides each expert",
    "nvme": "agentrl keeps nothing on NVMe: set learner.offload, and learner.deepspeed.offload_param.device cpu at "
    "ZeRO stage 3, which use CPU memory",
    "zenflow": "agentrl has no ZenFlow: it leaves parts of gradients for later steps, in buffers that no checkpoint "
    "holds. Set learner.offload",
}
"""What other frameworks have and agentrl does not, by a part of the names of its keys there."""

# Keys that do not affect what a run learns; a resume may change them.
RESUMABLE = re.compile(
    r"(?!env\.|algorithm\.)(steps|env_lock|eval\.every|(checkpoint|track|engine|scorers)\..+|"
    r"rollout\.(workers|concurrency)|"
    r"learner\.(ranks|threads|zero_stage|sequence_parallel|tensor_parallel|deterministic)|"
    r"critic\.(zero_stage|placement|ranks)|"
    r"reward\.(threads|gpus|placement)|.+\.nodes|.+_timeout_s|"
    r"roles\.\w+\.(url|api_key_env|timeout_s|concurrency|retries|max_calls|token_budget|max_context))"
)


def key_of(flag: str) -> str:
    """Return the key that a flag (without its dashes) or a keyword argument sets."""
    return SHORT_FLAGS.get(flag.replace("_", "-")) or flag.replace("-", "_")


def keys(section: type[BaseModel] = Config, prefix: str = "") -> dict[str, FieldInfo]:
    """Return every key by its dotted name, in the order of the definition."""
    out: dict[str, FieldInfo] = {}
    for name, info in section.model_fields.items():
        if inner := section_of(info):
            out |= keys(inner, f"{prefix}{name}.")
        else:
            out[prefix + name] = info
    return out


@cache
def option_tables() -> tuple[str, ...]:
    """Return the keys whose values are tables with names that are not ours: options of libraries."""
    return tuple(key for key, info in keys().items() if get_origin(info.annotation) is dict)


def section_of(info: FieldInfo) -> type[BaseModel] | None:
    """Return the section behind a name, None if it is a key. `env` has one section for each environment."""
    kinds = [info.annotation, *(kind for kind in get_args(info.annotation) if _is(kind, PluginSection))]
    return next((kind for kind in kinds if _is(kind, BaseModel)), None)


def _is(kind: Any, base: type) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, base)


def keys_in(section: str) -> list[str]:
    """Return the dotted names of the keys in a section."""
    return [key for key in keys() if key.startswith(f"{section}.")]


def renamed(name: str) -> str:
    """Return the present name of a key of an earlier version, which may lack its section; "" if there is none."""
    return next((now for old, now in RENAMED.items() if name in (old, old.rpartition(".")[2])), "")


def absence_of(name: str) -> str:
    """Return what agentrl has in place of a feature of other frameworks; "" for a key that names none."""
    return next((why for part, why in ABSENT.items() if part in name.lower()), "")


def value_of(config: Config, key: str) -> Any:
    """Return the value of a dotted key; of several environments, that of the first."""
    first, *rest = key.split(".")
    section = getattr(config, first)
    return reduce(getattr, rest, section[0] if first == "env" else section)


def unset_of(info: FieldInfo) -> Unset | None:
    """Return what it means to leave a key out; None where the default value says it."""
    return next((item for item in info.metadata if isinstance(item, Unset)), None)


def meaning_of(info: FieldInfo) -> str:
    """Return what a key means, what it means to leave it out, and its values if they are enumerated."""
    unset = unset_of(info)
    default = f"default: {unset.meaning}" if unset and unset is not FOR_MACHINE else ""
    choices = ", ".join(str(value) for value in _choices(info.annotation) if not (unset and value == info.default))
    return "; ".join(filter(None, [info.description, default, choices and f"values: {choices}"]))


def _choices(annotation: Any) -> list[Any]:
    """Return the values of the Literal in a type, as in `Literal["a", "b"]` or `tuple[Literal["a", "b"], ...]`."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [choice for inner in get_args(annotation) for choice in _choices(inner)]
