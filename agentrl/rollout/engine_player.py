"""A role that a model on the engines of the run plays, such as the policy: its tokens are never trained."""

from __future__ import annotations

from dataclasses import dataclass

from agentrl.endpoint import Ask, shown
from agentrl.errors import DeadlineError, RoleError, catch
from agentrl.roles import Player, RoleReply
from agentrl.roles.spec import RoleSpec
from agentrl.rollout.boundary import described
from agentrl.rollout.episode import Sampler, sampled
from agentrl.rollout.renderer import Renderer
from agentrl.types import Prompt, Sampling


@dataclass(frozen=True, slots=True)
class SampledModel:
    """A model on engines of the run, and how messages become its tokens.

    `max_context` is the limit of roles without one of their own.
    """

    renderer: Renderer
    engine: Sampler
    max_context: int


@dataclass(frozen=True, slots=True)
class EnginePlayer(Player):
    """Plays a role with the weights that the engines have."""

    spec: RoleSpec
    model: SampledModel

    async def answer(self, ask: Ask, seed: int) -> RoleReply:
        """Return the model's reply; see `Player`. Raises EngineError if the engines fail or abort."""
        keys, renderer = self.spec.keys, self.model.renderer
        max_context = keys.max_context or self.model.max_context
        rendered = catch(renderer.first, ask.messages, ask.tools)
        if rendered.error is not None:
            raise RoleError(f"{self._who}: the model's chat template: {described(rendered.error)}")
        prompt = rendered.value
        most = min(keys.max_tokens, ask.max_tokens or keys.max_tokens, max_context - len(prompt))
        if most <= 0:
            raise RoleError(
                f"{self._who}: its prompt has {len(prompt):,} tokens of at most {max_context:,} "
                f"({self._context_key}): no room is left for a reply"
            )
        sampling = Sampling(most, keys.temperature, seed, renderer.stop_token_ids, ask.stop)
        try:
            completion = await sampled(self.model.engine, Prompt(prompt), sampling, keys.timeout_s)
        except DeadlineError as error:
            raise RoleError(f"{self._who}: {error}: raise {self._timeout_key}") from error
        parsed = renderer.parse(prompt, completion.ids, ask.tools, 0)
        message, _ = shown(parsed, ask.stop)
        for call in message.get("tool_calls", ()):
            call.pop("id")  # the renderer numbers those of one reply; the role gives ids that its episode has once
        is_cut = completion.finish_reason == "length"
        return RoleReply(message, len(prompt), len(completion.ids), is_cut)

    @property
    def _who(self) -> str:
        return f"the role {self.spec.name}"

    @property
    def _context_key(self) -> str:
        return f"roles.{self.spec.name}.max_context" if self.spec.keys.is_served else "model.max_context"

    @property
    def _timeout_key(self) -> str:
        return f"roles.{self.spec.name}.timeout_s"


class JudgePlayer(EnginePlayer):
    """A judge of `reward.models`, which is asked as a role is."""

    @property
    def _who(self) -> str:
        return f"the judge {self.spec.name}"

    @property
    def _context_key(self) -> str:
        return f"max_context of reward.models {self.spec.name}" if self.spec.keys.is_served else "model.max_context"

    @property
    def _timeout_key(self) -> str:
        return "reward.score_timeout_s"
