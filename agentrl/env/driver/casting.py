"""Who plays the roles of an episode: the models of the run, or the stand-ins of the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentrl.endpoint import Ask
from agentrl.env.base import Env
from agentrl.env.driver.user_code import UserCode
from agentrl.env.messages import is_turn, short
from agentrl.env.roles import DeclaredRole, roles_of
from agentrl.errors import EnvError
from agentrl.roles import Casting, Player, Role, RoleReply
from agentrl.types import Message, RoleUse


@dataclass(frozen=True, slots=True)
class StandInPlayer(Player):
    """Plays a role by the method that declares it."""

    env: Env
    role: DeclaredRole
    code: UserCode

    async def answer(self, ask: Ask, seed: int) -> RoleReply:  # noqa: ARG002 (a stand-in draws no random numbers)
        """Return what the method returns; see `Player`."""
        stand_in, limit_s = self.role.stand_in, self.env.limits.score_timeout_s
        turn = await self.code.call(stand_in, self.env, list(ask.messages), timeout_s=limit_s)
        if not is_turn(turn):
            name = f"{type(self.env).__name__}.{stand_in.__name__}"
            raise EnvError(f"{name} returned {short(turn)}; a stand-in returns text or an assistant message")
        return RoleReply(Message(role="assistant", content=turn) if isinstance(turn, str) else turn)


class Cast:
    """The roles of one environment object. `castings` are those that models play."""

    def __init__(self, env: Env, code: UserCode, castings: Mapping[str, Casting]) -> None:
        declared = roles_of(type(env))
        self._env = env
        self._castings = {
            name: castings.get(name) or Casting(StandInPlayer(env, role, code)) for name, role in declared.items()
        }
        self.roles: dict[str, Role] = {}
        self.patience_s = max((casting.timeout_s for casting in self._castings.values()), default=0.0)
        """Time that a method may take beyond its own limit, because it waits for a role."""

    def begin(self, seed: str) -> None:
        """Set new roles on the object; `seed` fixes their randomness."""
        self.roles = {
            name: Role(name, casting.player, casting.limits, seed) for name, casting in self._castings.items()
        }
        vars(self._env).update(self.roles)

    @property
    def uses(self) -> dict[str, RoleUse]:
        """What was asked of each role since `begin`; only of roles that were asked."""
        return {name: role.use for name, role in self.roles.items() if role.use.calls}
