"""On-policy distillation: the student samples, a teacher judges every token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agentrl.algorithms.base import Algorithm, Needs
from agentrl.algorithms.config import AlgorithmConfig
from agentrl.algorithms.sample import Sample

if TYPE_CHECKING:
    from torch import Tensor

    from agentrl.losses.terms import Terms


class Distillation(Algorithm):
    """On-policy distillation by reverse KL (GKD, arXiv:2306.13649; MiniLLM, arXiv:2306.08543).

    A = log teacher - log student of each sampled token, without gradient and without a discount: later tokens do not
    count, as in "On-Policy Distillation" (thinkingmachines.ai/blog/on-policy-distillation). The policy gradient is then
    that of KL(student || teacher) in each state that the student visits. `credit` takes the student's logprob from the
    sampler, and `loss` replaces it by that of the policy as it is: a student that equals its teacher does not move,
    however old its tokens are. The environment's rewards are not used.

    The teacher is the frozen model `teacher`, with the tokenizer of the policy. Its distribution is taken at the
    sampling temperature, like the student's: the two are equal only if the logits are, so that the student equals the
    teacher at every temperature.
    """

    name = "distillation"
    needs = Needs(columns=frozenset({"teacher"}))
    has_open_loss = True

    class Config(AlgorithmConfig):
        """The keys of every algorithm but for those of rewards, which are not read."""

        def idle_keys(self) -> dict[str, str]:
            """Return the keys that have no effect, each with what it needs."""
            rewards = (
                *("kl_in", "overlong_penalty", "overlong_buffer", "format_pattern", "format_penalty"),
                *("reward_clip", "normalize_rewards"),
            )
            return super().idle_keys() | dict.fromkeys(rewards, "an algorithm that learns from rewards")

    config: Config

    def credit(self, groups: Sequence[Sequence[Sample]]) -> None:
        """Advantage of each token: how much more likely it is to the teacher."""
        for samples in groups:
            for sample in samples:
                sample.advantages = sample.column("teacher") - sample.sampler

    def loss(self, terms: Terms) -> Tensor:
        """Return the loss `algorithm.loss` with the advantage log teacher - log policy."""
        advantages = terms.advantages + terms.sampler - terms.logprobs.detach()
        return super().loss(replace(terms, advantages=advantages))
