"""What an environment author uses. Importing it registers every announced environment with `gymnasium.make`."""

from agentrl.env.arguments import BadCallError, as_unicode, why_unsendable
from agentrl.env.base import Env, Policy
from agentrl.env.config import EnvConfig, Limits, QuestionTemplate, env_config
from agentrl.env.context import Context, Episode, Reply, Start, StepResult, Turn
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.driver.resources import close_shared
from agentrl.env.driver.user_code import AuthorDeadlineError, within
from agentrl.env.gymnasium import GymnasiumEnv, register_with_gymnasium
from agentrl.env.play import play
from agentrl.env.registry import announced, make_env, resolve
from agentrl.env.rewards import reward
from agentrl.env.rows import is_in_share, json_lines, parse_json
from agentrl.env.sharing import shared
from agentrl.env.tasks import Task, Tasks, TaskSource
from agentrl.env.tools import Tool, bound_tools, tool
from agentrl.env.tooltime import waiting
from agentrl.types import Message, Signal, StopReason, text_of

__all__ = [
    "AuthorDeadlineError",
    "BadCallError",
    "Context",
    "Env",
    "EnvConfig",
    "EnvDriver",
    "Episode",
    "GymnasiumEnv",
    "Limits",
    "Message",
    "Policy",
    "QuestionTemplate",
    "Reply",
    "Signal",
    "Start",
    "StepResult",
    "StopReason",
    "Task",
    "TaskSource",
    "Tasks",
    "Tool",
    "Turn",
    "announced",
    "as_unicode",
    "bound_tools",
    "close_shared",
    "env_config",
    "is_in_share",
    "json_lines",
    "make_env",
    "parse_json",
    "play",
    "resolve",
    "reward",
    "shared",
    "text_of",
    "tool",
    "waiting",
    "why_unsendable",
    "within",
]

register_with_gymnasium()
