"""Calculator for models: exact where possible, rounded values are marked, and every call is bounded in time."""

from agentrl_tools.calculator.calculator import Calculator, calculate

__all__ = ["Calculator", "calculate"]
