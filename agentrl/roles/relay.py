"""Calls of an agent to a role, through the endpoint of its episode."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Protocol

from agentrl.endpoint import POLICY, Answer, Ask, refused
from agentrl.errors import RoleError
from agentrl.roles.role import RoleReply


class Asked(Protocol):
    """A role of an episode, as far as the calls of agents need it: a `Role`, or one of another process."""

    async def answer(self, ask: Ask) -> RoleReply:
        """Return the reply to one call; see `Role`."""


async def relayed(roles: Mapping[str, Asked], ask: Ask) -> Answer:
    """Return the answer of the role that a call names. Raises RequestError if there is no such role, or no reply.

    An EngineError of a role that the policy plays passes through.
    """
    role = roles.get(ask.role or "")
    if role is None:
        known = f"; the roles of the environment are {', '.join(map(repr, sorted(roles)))}" if roles else ""
        reason = f"the model {ask.role!r} does not exist: the model that is trained is {POLICY!r}{known}"
        raise refused("model_not_found", reason, HTTPStatus.NOT_FOUND)
    if ask.ids:
        raise refused("invalid_request_error", f"the role {ask.role!r} takes messages, not token ids")
    try:
        reply = await role.answer(ask)
    except RoleError as error:
        raise refused("role_error", str(error), HTTPStatus.BAD_GATEWAY) from error
    return Answer(reply.message, reply.is_cut, prompt_tokens=reply.prompt_tokens, others_tokens=reply.completion_tokens)
