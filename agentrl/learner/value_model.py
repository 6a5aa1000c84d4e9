"""A model that estimates the return from each state in which the policy acts: a scalar head on a transformer."""
# ruff: noqa: N803, N806

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSequenceClassification

from agentrl.errors import ConfigError
from agentrl.learner.micro_batch import MicroBatch
from agentrl.learner.model import PackedModel, divided, load, quiet
from agentrl.learner.sharding import Sharding

HEAD = "score"


class ValueModel(PackedModel):
    """Values of the states before the actions, or their summed loss. The head computes in float32."""

    auto = AutoModelForSequenceClassification
    labels: ClassVar[dict[str, int]] = {"num_labels": 1}
    role, key = "critic", "critic.model"

    @property
    def head_weight(self) -> nn.Parameter:
        """[1, hidden]."""
        weight: nn.Parameter = getattr(self.model, HEAD).weight
        return weight

    def output(self, hidden_AD: Tensor, micro_batch: MicroBatch, loss: Callable[..., Tensor] | None) -> Tensor:
        """Return the summed loss of the actions; without `loss` the value [A] of the state before each."""
        values_A = micro_batch.join((hidden_AD.float() @ self.head_weight.float().T).squeeze(1))
        return values_A if loss is None else loss(values_A)

    def plain_output(self, ids_BL: Tensor) -> Tensor:
        """Return [B, L - 1] the value of the state before each of ids[1:], by the model's own code."""
        hidden_BLD = self.model.base_model(input_ids=ids_BL, use_cache=False).last_hidden_state[:, :-1]
        values_BL: Tensor = getattr(self.model, HEAD)(hidden_BLD).squeeze(2)
        return values_BL


def load_value_model(
    folder: Path,
    compute: torch.dtype,
    *,
    gradient_checkpointing: bool = False,
    sharding: Sharding | None = None,
    sharers: int = 1,
) -> ValueModel:
    """Return the model in `folder` with a head of size 1, with float32 parameters.

    A reward model (sequence classification with one label) keeps its head; on any other model the head is 0, so that
    every first value is 0. With `sharding`, or with several `sharers` of each matrix, all ranks load it together.
    Raises ConfigError if it cannot be read or trained.
    """
    _refuse_labels(folder)
    with quiet():
        packed, missing = load(ValueModel, folder, compute, sharding, gradient_checkpointing=gradient_checkpointing)
    if any(name.startswith(HEAD) for name in missing):  # after the check, in which a head of 0 would show nothing
        for values in (packed.head_weight, getattr(packed.head_weight, "ds_tensor", None)):
            if values is not None:
                nn.init.zeros_(values)
    return divided(packed, sharers, folder)


def _refuse_labels(folder: Path) -> None:
    """Raise ConfigError if the model is a classifier with several labels."""
    try:
        config = AutoConfig.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise ConfigError(f"no critic can be loaded from {folder}: {error}") from error
    is_classifier = any("SequenceClassification" in name for name in config.architectures or [])
    if is_classifier and config.num_labels != 1:
        raise ConfigError(
            f"the model in {folder} has {config.num_labels} labels: set critic.model to a reward model with one label, "
            "or to a language model"
        )
