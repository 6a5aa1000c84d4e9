"""Programming tasks, and a grader that programs cannot fool: expected results never enter the program's sandbox."""

from typing import TYPE_CHECKING, Any

from agentrl_code.cases import MISSING, Assert, Call, Io, Test
from agentrl_code.grader import Grader
from agentrl_code.grading import agrade, grade
from agentrl_code.policy import Policy
from agentrl_code.verdict import Result, Status, Verdict

if TYPE_CHECKING:
    from agentrl_code.env import CodeEnv

__all__ = [
    "MISSING",
    "Assert",
    "Call",
    "CodeEnv",
    "Grader",
    "Io",
    "Policy",
    "Result",
    "Status",
    "Test",
    "Verdict",
    "agrade",
    "grade",
]


def __getattr__(name: str) -> Any:
    """Import CodeEnv on demand, because grading alone does not need the framework."""
    if name == "CodeEnv":
        from agentrl_code.env import CodeEnv

        return CodeEnv
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
