"""Games of TextArena as environments of agentrl: `--env textarena:ID`."""

from agentrl_textarena.env import TextArena
from agentrl_textarena.match import Duel, Match

__all__ = ["Duel", "Match", "TextArena"]
