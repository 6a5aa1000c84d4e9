"""The loss of a micro-batch: what an algorithm sees of it, summed and scaled."""
# ruff: noqa: N803, N806

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from agentrl.algorithms.adaptive import check_meters
from agentrl.algorithms.base import Algorithm
from agentrl.algorithms.sample import Column
from agentrl.errors import AlgorithmError
from agentrl.learner.micro_batch import MicroBatch
from agentrl.losses.objective import per_token
from agentrl.losses.terms import Meter, Terms
from agentrl.plugins.tracebacks import call_author


@dataclass(frozen=True)
class MicroBatchLoss:
    """The weighted sum of the objective over the actions of a micro-batch, times `scale`; a `heads.PackLoss`.

    The old logprobs are the sampler's if `old_logprobs` says so, else those of the batch, else `old`, else those of
    this forward pass, detached (ratio 1). A dummy has a loss of 0 and is not metered.
    """

    algorithm: Algorithm
    micro_batch: MicroBatch
    scale: float
    meter: Meter
    old: Tensor | None = None

    def __call__(self, logprobs_A: Tensor, entropy_A: Tensor) -> Tensor:
        """Return the summed loss, differentiable in logprobs and entropy. Raises AlgorithmError if it raises."""
        columns = dict(self.micro_batch.columns)
        sampler_A, advantages_A, weights_A = (columns.pop(name) for name in ("sampler", "advantages", "weights"))
        old_A = columns.pop("old", self.old)
        if self.algorithm.config.old_logprobs == "sampler":
            old_A = sampler_A
        terms = Terms(
            logprobs=logprobs_A,
            entropy=entropy_A,
            sampler=sampler_A,
            old=logprobs_A.detach() if old_A is None else old_A,
            advantages=advantages_A,
            weights=weights_A,
            sequence=self.micro_batch.sequence_A,
            columns=columns,
            state=self.algorithm.state,
            meters=Meter() if self.micro_batch.is_dummy else self.meter,
        )
        name, objective = self.algorithm.name, self.algorithm.objective
        made = call_author(f"{name}: its loss failed", objective, terms, at=objective, kind=AlgorithmError)
        loss_A = per_token(made, terms, objective)
        # A dummy has the weights of a real micro-batch, because a loss may divide by their sum.
        return (terms.weights * loss_A).sum() * (0.0 if self.micro_batch.is_dummy else self.scale)


def rehearse_loss(algorithm: Algorithm, device: torch.device | str = "cpu") -> None:
    """Try the objective on two sequences made by hand. Raises AlgorithmError for a mistake that every batch would meet.

    `agentrl.algorithms.rehearsal` tries the other methods, in a process that does not load torch.
    """
    random, tokens = torch.Generator().manual_seed(0), 5
    made = [torch.rand(tokens, generator=random).to(device) for _ in range(9)]
    names: tuple[Column, ...] = ("old", "reference", "teacher", "values")
    columns: dict[str, Tensor] = {name: -made[n] for n, name in enumerate(names)}
    own: dict[str, Tensor] = {name: columns[name] for name in algorithm.requirements.columns if name != "old"}
    own |= {"returns": made[4]} if "values" in own else {}
    terms = Terms(
        logprobs=(-made[5]).requires_grad_(),
        entropy=made[6].requires_grad_(),
        sampler=-made[5],
        old=columns["old"] if "old" in algorithm.requirements.columns else -made[5],
        advantages=made[7] - 0.5,
        weights=torch.ones(tokens, device=device),
        sequence=torch.tensor([0, 0, 1, 1, 1], device=device),
        columns=own,
        state=algorithm.state,
        meters=Meter(),
    )
    what = f"{algorithm.name}: its loss failed with tokens made by hand"
    made_A = call_author(what, algorithm.objective, terms, at=algorithm.objective, kind=AlgorithmError)
    per_token(made_A, terms, algorithm.objective)
    check_meters(algorithm.config, terms.meters.sums())
