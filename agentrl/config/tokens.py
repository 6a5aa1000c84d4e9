"""Tokens that the user gives: bearer tokens of servers, which are never shown."""

from __future__ import annotations

import os

from agentrl.errors import ConfigError


def token_in(variable: str) -> str:
    """Return the token in an environment variable, "" without one. Raises ConfigError for one that cannot be sent."""
    return checked_token(os.environ.get(variable, ""), f"the environment variable {variable}")


def checked_token(token: str, source: str) -> str:
    """Return a token without white space around it. Raises ConfigError, naming its source, if it cannot be sent."""
    token = token.strip()
    if not all(" " <= character <= "~" for character in token):
        raise ConfigError(f"{source} must be a token of printable ASCII characters")
    return token
