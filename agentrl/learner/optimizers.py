"""Optimizers by name: AdamW, Muon with AdamW, and AdamW with 8-bit state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import AdamW, Muon, Optimizer

from agentrl.config.schema import LearnerSection
from agentrl.learner.model import PackedModel

Group = dict[str, Any]
"""Parameters of an optimizer of PyTorch, with settings of their own."""


class MuonAdamW(Optimizer):
    """Muon (Jordan et al. 2024) for the matrices of hidden layers, AdamW for embeddings, head, norms and biases.

    Muon's updates are scaled to the size of AdamW's (Liu et al., arXiv:2502.16982, eq. 4), so that one rate fits both.
    """

    def __init__(self, matrices: list[nn.Parameter], others: list[Group], section: LearnerSection) -> None:
        parts: list[Optimizer] = []
        if matrices:
            parts += [Muon(matrices, lr=section.lr, weight_decay=section.weight_decay, adjust_lr_fn="match_rms_adamw")]
        if others:  # adapters are matrices alone
            parts += [_adamw(others, section)]
        self._parts = tuple(parts)
        super().__init__([group for part in self._parts for group in part.param_groups], {})
        groups = iter(self.param_groups)
        for part in self._parts:  # state and groups are those that a checkpoint saves and restores
            part.state, part.param_groups = self.state, [next(groups) for _ in part.param_groups]

    def step(self, _closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take a step with both."""
        for part in self._parts:
            part.step()


def make_optimizer(model: PackedModel, section: LearnerSection) -> Optimizer:
    """Return the optimizer of the parameters that are trained."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if section.optimizer == "muon":
        ends = {id(model.head_weight), id(model.model.get_input_embeddings().weight)}
        is_matrix = [parameter.ndim == 2 and id(parameter) not in ends for parameter in trained]
        matrices = [parameter for parameter, is_one in zip(trained, is_matrix, strict=True) if is_one]
        others = [parameter for parameter, is_one in zip(trained, is_matrix, strict=True) if not is_one]
        return MuonAdamW(matrices, _groups(model, others, section), section)
    if section.optimizer == "adamw_8bit":
        from bitsandbytes.optim import AdamW8bit

        optimizer: Optimizer = AdamW8bit(_groups(model, trained, section), **_settings(section))
        return optimizer
    return _adamw(_groups(model, trained, section), section)


def _groups(model: PackedModel, parameters: list[nn.Parameter], section: LearnerSection) -> list[Group]:
    """Return parameters with weight decay, and those without: embeddings, and all with fewer than two dimensions."""
    if not section.weight_decay:
        return [{"params": parameters}] if parameters else []
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for parameter in parameters:
        shape = getattr(parameter, "ds_shape", parameter.shape)  # at ZeRO stage 3 a rank holds a flat part
        (decayed if len(shape) > 1 and id(parameter) not in embeddings else others).append(parameter)
    groups: list[Group] = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _adamw(groups: list[Group], section: LearnerSection) -> AdamW:
    return AdamW(groups, **_settings(section), fused=True)


def _settings(section: LearnerSection) -> dict[str, Any]:
    betas = (section.beta1, section.beta2)
    return {"lr": section.lr, "betas": betas, "weight_decay": section.weight_decay}
