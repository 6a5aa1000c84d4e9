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
    ("name", "expected"),
    [
        ("calculater", r"unknown tool 'calculater'\. Did you mean 'calculator'"),
        ("calculator:fast", "it takes no argument; write calculator"),
        ("calculator:", "write calculator"),
        ("mcp", "it needs an argument; write mcp:…"),
        ("http:", "write http:…"),
        ("", "unknown tool ''"),
        ("mcp:python 'server.py", "is not a valid command line: No closing quotation"),
    ],
)
def test_a_wrong_name_is_explained(name: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        toolsets([name])


def test_a_name_that_stands_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="calculator, calculator: name each once"):
        toolsets(["calculator", "calculator"])


def test_a_server_that_cannot_be_started_here_is_refused_before_anything_starts() -> None:
    assert where(["mcp:sh -c true", "mcp:http://127.0.0.1:1/mcp"]) == ""
    with pytest.raises(ConfigError, match="program 'no-such-server' not found"):
        where(["calculator", "mcp:no-such-server --flag"])
