"""Mathematics tasks with a verifier that a model cannot hang, crash or make execute its output."""

from typing import TYPE_CHECKING, Any

from agentrl_math.grading import averify, verify
from agentrl_math.policy import Policy
from agentrl_math.verdict import Status, Verdict

if TYPE_CHECKING:
    from agentrl_math.env import MathEnv

__all__ = ["MathEnv", "Policy", "Status", "Verdict", "averify", "verify"]


def __getattr__(name: str) -> Any:
    """Import MathEnv on demand, because worker processes import this package without the framework."""
    if name == "MathEnv":
        from agentrl_math.env import MathEnv

        return MathEnv
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
