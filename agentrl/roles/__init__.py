"""Roles: models beside the policy, such as judges, simulated users and opponents, that episodes ask."""

from agentrl.roles.fence import fenced, verdict
from agentrl.roles.relay import Asked, relayed
from agentrl.roles.role import Casting, Player, Role, RoleLimits, RoleReply

__all__ = ["Asked", "Casting", "Player", "Role", "RoleLimits", "RoleReply", "fenced", "relayed", "verdict"]
