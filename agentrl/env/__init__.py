"""What an environment author touches. Importing it makes every announced env known to `gymnasium.make`."""

from agentrl.env.arguments import BadCallError
from agentrl.env.base import Env, Policy
from agentrl.env.config import EnvConfig, load_config
from agentrl.env.context import Context, Episode, Reply, Start, StepResult, Turn
from agentrl.env.driver.resources import close_shared, shared
from agentrl.env.tooltime import waiting
from agentrl.env.limits import Limits
from agentrl.env.play import play
from agentrl.env.registry import announced, make_env, register_with_gymnasium, resolve
from agentrl.env.rewards import reward
from agentrl.env.tasks import Task, Tasks, TaskSource
from agentrl.env.tools import Tool, tool
from agentrl.types import Message, Signal, StopReason, text_of

__all__ = [
    "BadCallError",
    "Context",
    "Env",
    "EnvConfig",
    "Episode",
    "Limits",
    "Message",
    "Policy",
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
    "close_shared",
    "load_config",
    "make_env",
    "play",
    "resolve",
    "reward",
    "shared",
    "text_of",
    "tool",
    "waiting",
]

register_with_gymnasium()
