"""Questions of several hops, answered by searching a corpus."""

from agentrl_search.answers import exact_match, f1, normalised
from agentrl_search.env import SearchConfig, SearchEnv

__all__ = ["SearchConfig", "SearchEnv", "exact_match", "f1", "normalised"]
