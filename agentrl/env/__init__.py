"""What an environment author uses. Importing it registers every announced environment with `gymnasium.make`."""

from agentrl.endpoint import Model
from agentrl.env.adapter import Adapter, wraps_of
from agentrl.env.agent import AgentEnv
from agentrl.env.arguments import BadCallError
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
from agentrl.env.roles import role
from agentrl.env.rows import folders_apart, is_in_share, json_lines, parse_json
from agentrl.env.sharing import shared
from agentrl.env.tasks import Task, Tasks, TaskSource
from agentrl.env.tools import Tool, bound_tools, tool
from agentrl.env.tooltime import waiting
from agentrl.plugins.processes import GroupProcess, start_process
from agentrl.roles import Role, fenced, verdict
from agentrl.types import Message, Signal, StopReason, as_unicode, text_of, why_unsendable

__all__ = [
    "Adapter",
    "AgentEnv",
    "AuthorDeadlineError",
    "BadCallError",
    "Context",
    "Env",
    "EnvConfig",
    "EnvDriver",
    "Episode",
    "GroupProcess",
    "GymnasiumEnv",
    "Limits",
    "Message",
    "Model",
    "Policy",
    "QuestionTemplate",
    "Reply",
    "Role",
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
    "fenced",
    "folders_apart",
    "is_in_share",
    "json_lines",
    "make_env",
    "parse_json",
    "play",
    "resolve",
    "reward",
    "role",
    "shared",
    "start_process",
    "text_of",
    "tool",
    "verdict",
    "waiting",
    "why_unsendable",
    "within",
    "wraps_of",
]

register_with_gymnasium()
