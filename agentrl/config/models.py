"""The files of a model: in a local folder, from the hub, or the embedded model, which needs no hub."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.config.embedded import CONFIG_FOLDER, EMBEDDED, embedded_model
from agentrl.config.schema import Config
from agentrl.config.values import expanded
from agentrl.errors import ConfigError

IN_CHECKPOINT = "model"
CONFIG = "config.json"
HUB_DEFAULT = "Qwen/Qwen2.5-0.5B-Instruct"

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
_TOKENIZER = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
# Weights and text only: no pickles, no code, nothing from subfolders (other formats of the same weights).
_WANTED = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")


def locate(name: str, cache: Path | None = None, *, has_weights: bool = True) -> Path:
    """Return the folder of model `name`, ready for `from_pretrained`; '' is the embedded model.

    Without weights it is only sure to contain the tokenizer.

    Downloads or converts missing files into `cache` (default: $AGENTRL_CACHE, else ~/.cache/agentrl; hub models go to
    the hub's own cache). Raises ConfigError with a remedy if there is no such model.
    """
    if name in ("", EMBEDDED):
        return embedded_model(cache)
    folder = expanded(name)
    if folder.exists():
        return _checked(folder.absolute(), has_weights)
    if name.startswith((".", "/", "~")) or not _HUB_ID.fullmatch(name):
        raise ConfigError(f"model {name!r}: there is no such folder, and it is not a hub id (owner/name)")
    wanted = _WANTED if has_weights else [pattern for pattern in _WANTED if pattern not in _WEIGHTS]
    return _checked(_download(name, wanted), has_weights)


def config_json(name: str, *, may_download: bool = True) -> Path:
    """Return the config.json of model `name`, which alone describes its sizes; '' is the embedded model.

    Raises ConfigError if there is none, or none on this machine.
    """
    if name in ("", EMBEDDED):
        folder = CONFIG_FOLDER
    elif (folder := expanded(name)).exists():
        inside = folder / IN_CHECKPOINT
        folder = inside if (inside / CONFIG).is_file() and not (folder / CONFIG).is_file() else folder
    elif name.startswith((".", "/", "~")) or not _HUB_ID.fullmatch(name):
        raise ConfigError(f"model {name!r}: there is no such folder, and it is not a hub id (owner/name)")
    else:
        folder = _download(name, [CONFIG], is_local=not may_download)
    if not (folder / CONFIG).is_file():
        raise ConfigError(f"model {name or EMBEDDED} has no {CONFIG}: give a hub id, or the folder of a model with one")
    return folder / CONFIG


@dataclass(frozen=True)
class Models:
    """The folders of a learner's models; without a folder the critic starts as the policy does."""

    policy: Path
    critic: Path | None = None
    teacher: Path | None = None


def other_models(config: Config) -> dict[str, str]:
    """Return the models that a run names besides the policy, by their role."""
    names = {"critic": config.critic.model, "teacher": str(config.algorithm.options.get("teacher", ""))}
    return {role: name for role, name in names.items() if name}


def loaded_files(folder: Path) -> list[Path]:
    """Return the files from which the model in `folder` is loaded, by name."""
    return sorted(file for pattern in _WANTED for file in folder.glob(pattern) if file.is_file())


ENTRIES: dict[str, tuple[type, str]] = {
    "model_type": (str, "a text"),
    "text_config": (dict, "an object"),
    "rope_parameters": (dict, "an object"),
    "rope_scaling": (dict, "an object"),
    "max_position_embeddings": (int, "a whole number"),
    "original_max_position_embeddings": (int, "a whole number"),
}
"""Entries of a config.json that are read without transformers, and what they may be."""


def description(folder: Path) -> dict[str, Any]:
    """Return what the config.json in `folder` says of its model. Raises ConfigError if it is no JSON object."""
    file = folder / CONFIG
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{file} is no JSON ({error}): copy the model again") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{file} is no JSON object, and describes no model: copy the model again")
    for name, (kind, words) in ENTRIES.items():
        if (value := found.get(name)) is not None and type(value) is not kind:
            raise ConfigError(f"{file}: {name} is {value!r}, and must be {words}: copy the model again")
    return found


def text_description(folder: Path) -> dict[str, Any]:
    """Return the same with the entries of the part that reads text, which models for several media have apart."""
    found = description(folder)
    return found | (found.get("text_config") or {})


def check_context(folder: Path, max_context: int, key: str) -> None:
    """Raise ConfigError if the model in `folder` cannot read as many tokens as `key` says."""
    found = text_description(folder)
    longest = found.get("max_position_embeddings", found.get("n_positions"))
    if longest is None:
        return
    if type(longest) is not int or longest < 1:
        raise ConfigError(
            f"{folder / CONFIG}: max_position_embeddings is {longest!r}, and must be a whole number of 1 or more"
        )
    check_longest(str(folder), longest, max_context, key)


def check_longest(named: str, longest: int, max_context: int, key: str = "model.max_context") -> None:
    """Raise ConfigError if a model that reads at most `longest` tokens cannot read as many as `key` says."""
    if max_context > longest:
        raise ConfigError(
            f"{key} is {max_context}, but {named} reads at most {longest} tokens: set {key} to {longest} or less"
        )


LENGTH_DEPENDENT = ("dynamic", "longrope", "su")
"""Rotary embeddings whose frequencies change with the longest sequence that is read at once."""


def ropes(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rotary embeddings of a config, which may have one for each kind of layer."""
    return [each for each in parameters.values() if isinstance(each, dict)] or [parameters]


def rotary_of(config: Any) -> tuple[str, ...]:
    """Return the types of the rotary embeddings of a config of transformers."""
    return tuple(rope.get("rope_type", "default") for rope in ropes(getattr(config, "rope_parameters", None) or {}))


def check_rotary(folder: Path, max_context: int) -> None:
    """Raise ConfigError if what a model computes for a sequence would depend on others in its micro-batch."""
    config = text_description(folder)
    for rope in ropes(config.get("rope_parameters") or config.get("rope_scaling") or {}):
        kind = rope.get("rope_type", rope.get("type", "default"))
        named = "original_max_position_embeddings"
        longest = rope.get(named) or config.get(named) or config.get("max_position_embeddings") or max_context
        if kind in LENGTH_DEPENDENT and max_context > longest:
            raise ConfigError(
                f"model.max_context is {max_context}, but {folder} has rotary embeddings of type {kind}, which change "
                f"for all sequences that are read together once one is longer than {longest} tokens: set "
                f"model.max_context to {longest} or less"
            )


# fmt: off
OWN_ATTENTION = {
    "big_bird", "bloom", "codegen", "cpmant", "falcon", "falcon_mamba", "gpt_neo", "gpt_neox_japanese", "gptj",
    "llama4", "llama4_text", "mamba", "mamba2", "megatron-bert", "mpt", "mvp", "openai-gpt", "prophetnet",
    "reformer", "rembert", "roformer", "rwkv", "trocr", "xglm", "xlm", "xlnet", "xlstm",
}
# fmt: on
"""Types of models whose code mixes the tokens of a sequence in a way of its own, or in masks alone (Llama 4)."""


def check_attention(folder: Path, key: str = "model.name") -> None:
    """Raise ConfigError for a model whose attention the learner cannot replace with one for packed sequences."""
    if (kind := description(folder).get("model_type")) in OWN_ATTENTION:
        raise ConfigError(
            f"the model in {folder} ({kind}) has an architecture agentrl does not train yet: its attention cannot "
            f"be exchanged, and packed sequences would see each other. Set {key} to another model, such as Llama 3, "
            "Qwen or Mistral"
        )


def tokenizer(folder: Path) -> Any:
    """Load the tokenizer of the model in `folder`: tokenizer.json alone, as the import of transformers takes seconds.

    Without tokenizer.json it is the tokenizer of transformers; both have encode and decode.
    """
    file = folder / "tokenizer.json"
    if file.is_file():
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(file))
    return chat_tokenizer(folder)


def chat_tokenizer(folder: Path) -> Any:
    """Load the tokenizer of transformers, which has a chat template."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def encode(text: str, folder: Path) -> list[int]:
    """Return the token ids of `text` by the tokenizer in `folder`."""
    encoded = tokenizer(folder).encode(text)
    return list(getattr(encoded, "ids", encoded))


def _checked(folder: Path, has_weights: bool) -> Path:
    """`folder`, or the `model` inside a checkpoint, if it contains a model and its tokenizer.

    Raises ConfigError that lists what is missing.
    """
    if not folder.is_dir():
        raise ConfigError(f"model {folder} is a file; give the folder with config.json, weights and tokenizer")
    if (inside := folder / IN_CHECKPOINT).is_dir() and not (folder / "config.json").is_file():
        folder = inside
    missing = [] if (folder / "config.json").is_file() or not has_weights else ["config.json"]
    if has_weights and not any(any(folder.glob(pattern)) for pattern in _WEIGHTS):
        missing.append("weights (*.safetensors; convert others with save_pretrained)")
    if not any((folder / file).is_file() for file in _TOKENIZER):
        missing.append(f"tokenizer ({' or '.join(_TOKENIZER)})")
    if missing:
        raise ConfigError(f"model {folder} cannot be loaded; missing: {', '.join(missing)}")
    return folder


def _download(name: str, wanted: Sequence[str], *, is_local: bool = False) -> Path:
    """Return the snapshot of a hub model on this machine, with the `wanted` files; `is_local`: download none."""
    try:
        import httpx
        from huggingface_hub import errors, snapshot_download
    except ImportError:
        raise ConfigError(f"model {name!r} is not a local folder, and huggingface_hub is not installed") from None
    try:
        return Path(
            snapshot_download(name, allow_patterns=list(wanted), ignore_patterns=["*/*"], local_files_only=is_local)
        )
    except errors.GatedRepoError:
        raise ConfigError(f"model {name!r} is gated: accept its terms on its page and run `hf auth login`") from None
    except errors.RepositoryNotFoundError:
        raise ConfigError(
            f"model {name!r} is neither a local folder nor a public model on the hub: check the name "
            "(a private one needs `hf auth login`)"
        ) from None
    except errors.HFValidationError as error:
        raise ConfigError(f"model {name!r} is neither a local folder nor a valid hub id: {error}") from None
    except (OSError, httpx.HTTPError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"model {name!r} is not a local folder, and the hub cannot be reached ({reason}). Give a local folder with "
            f"--model, or leave --model out on a machine without a GPU: {EMBEDDED} needs no hub"
        ) from None
