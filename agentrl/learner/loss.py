"""The loss of a micro-batch: what an algorithm sees of it, summed and scaled."""
# ruff: noqa: N803, N806

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from agentrl.algorithms.base import Algorithm
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
            weights=weights_A * (not self.micro_batch.is_dummy),
            sequence=self.micro_batch.sequence_A,
            columns=columns,
            state=self.algorithm.state,
            meter=Meter() if self.micro_batch.is_dummy else self.meter,
        )
        name, objective = self.algorithm.name, self.algorithm.objective
        made = call_author(f"{name}: its loss failed", objective, terms, at=objective, kind=AlgorithmError)
        loss_A = per_token(made, terms, objective)
        return (terms.weights * loss_A).sum() * self.scale
