"""Whether the learner can pack sequences of a model, as far as its structure shows: no weights are read."""

from __future__ import annotations

from typing import Any

from agentrl.errors import ConfigError

PACKED_LAYERS = {"full_attention", "sliding_attention", "dense", "sparse", "mlp", "moe"}
"""Types of layers that mix tokens in an attention that the learner replaces with its own, or nowhere."""


def unpackable(model: Any, head: Any) -> str:
    """Return why a model of transformers cannot be trained over packed sequences; "" if nothing shows it.

    `head` is the weight with which the learner computes outputs. The model may be on the meta device.
    """
    kinds = {*(getattr(model.config.get_text_config(), "layer_types", None) or ())}
    if others := sorted(kinds - PACKED_LAYERS):
        return f"it has layers of type {', '.join(others)}, in which packed sequences cannot be kept apart"
    if getattr(model, "_is_stateful", False):
        return "it carries a state from token to token, which packed sequences would share"
    if {module.is_causal for module in model.modules() if hasattr(module, "is_causal")} == {False}:
        return "its attention is bidirectional, and a token would see those that it has to predict"
    known = {id(parameter) for parameter in (head, *model.base_model.parameters())}
    if beside := [name for name, parameter in model.named_parameters() if id(parameter) not in known]:
        return f"its outputs depend on more than hidden states and a matrix: on {', '.join(beside)}"
    return ""


def unknown(named: str, why: str) -> ConfigError:
    """Return the refusal of a model that the learner cannot train."""
    return ConfigError(f"{named} has an architecture agentrl does not train yet: {why}. Choose another model.")
