"""A calculator for models: exact where a number has an exact value, marked where it has not, bounded in time."""

from agentrl_tools.calculator.calculator import Calculator, calculate

__all__ = ["Calculator", "calculate"]
