"""Policy losses and KL terms: pure functions on tensors."""

from agentrl.losses.policy_loss import ppo_clip

LOSSES = {"ppo_clip": ppo_clip}
"""Policy losses by the name under which an algorithm asks for one."""
