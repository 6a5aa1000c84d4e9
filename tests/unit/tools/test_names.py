"""Toolsets have names that a flag can give, and a wrong one is refused before anything starts."""

from __future__ import annotations

import pytest
from agentrl_tools import Calculator, Http, McpServer, toolsets

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
    ],
)
def test_a_wrong_name_is_explained(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        toolsets([name])
