"""What the configuration of a model says of its text part, read before the model is loaded."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoConfig, PreTrainedConfig

from agentrl.errors import ConfigError


def text_config(folder: Path) -> PreTrainedConfig:
    """Return the configuration of the model in `folder`, of its text part. Raises ConfigError if it cannot be read."""
    try:
        return AutoConfig.from_pretrained(folder).get_text_config()
    except (OSError, ValueError) as error:
        raise ConfigError(f"no model can be loaded from {folder}: {error}") from error


def heads_of(config: PreTrainedConfig) -> tuple[int, int]:
    """Return the numbers of a model's attention heads, and of those of keys and values."""
    heads: int = config.num_attention_heads
    return heads, getattr(config, "num_key_value_heads", None) or heads
