"""On-policy distillation: the student samples, a teacher judges every token."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.algorithms.base import Algorithm, Needs
from agentrl.algorithms.sample import Sample


class Distillation(Algorithm):
    """On-policy distillation by reverse KL (GKD, arXiv:2306.13649; MiniLLM, arXiv:2306.08543).

    A = log teacher - log student of each sampled token, without gradient and without a discount: later tokens do not
    count, as in "On-Policy Distillation" (thinkingmachines.ai/blog/on-policy-distillation). The policy gradient is then
    that of KL(student || teacher) in each state that the student visits. The student's logprob is the sampler's, from
    which the tokens come. The environment's rewards are not used.

    The teacher is the frozen model `teacher`, with the tokenizer of the policy. Its distribution is taken at the
    sampling temperature, like the student's: the two are equal only if the logits are, so that the student equals the
    teacher at every temperature.
    """

    name = "distillation"
    needs = Needs(columns=frozenset({"teacher"}))

    def credit(self, groups: Sequence[Sequence[Sample]]) -> None:
        """Advantage of each token: how much more likely it is to the teacher."""
        for samples in groups:
            for sample in samples:
                sample.advantages = sample.column("teacher") - sample.sampler
