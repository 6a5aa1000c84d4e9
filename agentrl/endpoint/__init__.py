"""The endpoint at which agents call the policy: the APIs of model providers, on the loopback interface."""

from agentrl.endpoint.content import shown
from agentrl.endpoint.home import Home
from agentrl.endpoint.model import Model, Responder
from agentrl.endpoint.server import Endpoint
from agentrl.endpoint.tokens import TOKENIZER, ByteTokenizer, Generate, Tokens
from agentrl.endpoint.wire import POLICY, Answer, Ask, Key, key_after, keys_of, refused

__all__ = [
    "POLICY",
    "TOKENIZER",
    "Answer",
    "Ask",
    "ByteTokenizer",
    "Endpoint",
    "Generate",
    "Home",
    "Key",
    "Model",
    "Responder",
    "Tokens",
    "key_after",
    "keys_of",
    "refused",
    "shown",
]
