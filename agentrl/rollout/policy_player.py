"""A role that the policy plays: its tokens come from the engines of the run and are never trained."""

from __future__ import annotations

from dataclasses import dataclass

from agentrl.endpoint import Ask
from agentrl.errors import RoleError, catch
from agentrl.roles import Player, RoleReply
from agentrl.roles.spec import RoleSpec
from agentrl.rollout.boundary import described
from agentrl.rollout.episode import Sampler, sampled
from agentrl.rollout.renderer import Renderer
from agentrl.rollout.session import shown
from agentrl.types import Prompt, Sampling


@dataclass(frozen=True, slots=True)
class PolicyPlayer(Player):
    """Plays a role with the weights that the engines have."""

    spec: RoleSpec
    renderer: Renderer
    engine: Sampler
    max_context: int

    async def answer(self, ask: Ask, seed: int) -> RoleReply:
        """Return the policy's reply; see `Player`. Raises EngineError if the engines fail or abort."""
        rendered = catch(self.renderer.first, ask.messages, ask.tools)
        if rendered.error is not None:
            raise RoleError(f"the role {self.spec.name}: the model's chat template: {described(rendered.error)}")
        prompt, keys = rendered.value, self.spec.keys
        most = min(keys.max_tokens, ask.max_tokens or keys.max_tokens, self.max_context - len(prompt))
        if most <= 0:
            raise RoleError(
                f"the role {self.spec.name}: its prompt has {len(prompt):,} tokens, and model.max_context is "
                f"{self.max_context:,}: no room is left for a reply"
            )
        sampling = Sampling(most, keys.temperature, seed, self.renderer.stop_token_ids, ask.stop)
        completion = await sampled(self.engine, Prompt(prompt), sampling, keys.timeout_s)
        parsed = self.renderer.parse(prompt, completion.ids, ask.tools, 0)
        message, _ = shown(parsed, ask.stop)
        is_cut = completion.finish_reason == "length"
        return RoleReply(message, len(prompt), len(completion.ids), is_cut)
