"""Function calling: the right functions with the right arguments, and none where none fits."""

from agentrl_functions.env import FunctionsConfig, FunctionsEnv
from agentrl_functions.match import Wanted, mismatch

__all__ = ["FunctionsConfig", "FunctionsEnv", "Wanted", "mismatch"]
