"""Toolsets have names that a flag can give, and a wrong one is refused before anything starts."""

from __future__ import annotations

import pytest
from agentrl_tools import Calculator, Http, McpServer, toolsets, where

from agentrl.errors import ConfigError


def test_names_make_toolsets() -> None:
    made = toolsets(["calculator", "http:api.example.com,localhost:8000", "mcp:uvx mcp-server-time --utc"])
    assert [type(toolset) for toolset in made] == [Calculator, Http, McpServer]
    assert made[1].gate.allow == {"api.example.com", "localhost:8000"}  # type: ignore[attr-defined]
    assert made[2].command == ["uvx", "mcp-server-time", "--utc"]  # type: ignore[attr-defined]
    assert toolsets([]) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("calculater", r"unknown tool 'calculater'\. Did you mean 'calculator'"),
        ("calculator:fast", "write calculator, it takes nothing more"),
        ("calculator:", "write calculator"),
        ("mcp", "write mcp:…, with what it is to use"),
        ("http:", "write http:…"),
        ("", "unknown tool ''"),
        ("mcp:python 'server.py", "is no command line: No closing quotation"),
    ],
)
def test_a_wrong_name_is_explained(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        toolsets([name])


def test_a_name_that_stands_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="calculator, calculator: name each once"):
        toolsets(["calculator", "calculator"])


def test_a_server_that_cannot_be_started_here_is_refused_before_anything_starts() -> None:
    assert where(["mcp:sh -c true", "mcp:http://127.0.0.1:1/mcp"]) == ""
    with pytest.raises(ConfigError, match="there is no program 'no-such-server'"):
        where(["calculator", "mcp:no-such-server --flag"])
