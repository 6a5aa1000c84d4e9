"""`agentrl serve-rm MODEL`: serve a reward model over HTTP."""

from __future__ import annotations

import argparse
from dataclasses import fields

from agentrl.cli.flags import Parser, whole
from agentrl.cli.serving import MIN_TOKEN, check_reach, secret, serve
from agentrl.config.tokens import token_in
from agentrl.reward_models.batcher import BatchLimits
from agentrl.reward_models.server import TOKEN, RewardServer, ServerLimits

MEANING = f"""\
Serve a reward model, a sequence-classification model with one label, over HTTP: POST /v1/score, POST /get_reward (the
form of OpenRLHF) and GET /health. Clients send the token in the environment variable {TOKEN} as
"Authorization: Bearer TOKEN"; without the variable the server listens on this machine only and admits every client.
The server has no TLS: put a proxy in front of it where the network is not private."""


def run(words: list[str]) -> int:
    """Serve until SIGINT or SIGTERM."""
    given = _parser().parse_args(words)
    token = secret(text, TOKEN) if (text := token_in(TOKEN)) else ""
    check_reach(given.host, token, f"set {TOKEN} to a secret of {MIN_TOKEN} or more characters")
    from agentrl.reward_models.classifier import Classifier

    classifier = Classifier(given.model, given.device, given.dtype, given.max_tokens)
    batch = BatchLimits(given.max_batch_tokens, given.max_wait_ms / 1000, given.max_queue)
    server = RewardServer(classifier, token, ServerLimits(batch, given.timeout_s))
    serve(server, given.host, given.port, lambda at: f"serving {given.model} ({classifier.device}) at http://{at}")
    return 0


def _parser() -> Parser:
    batch = {item.name: item.default for item in fields(BatchLimits)}
    parser = Parser(
        prog="agentrl serve-rm", description=MEANING, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("model", metavar="MODEL", help="a folder or hub id")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=whole(0), default=5000, help="port to listen on; 0: a free one")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where the model runs")
    parser.add_argument(
        "--dtype", choices=("auto", "float32", "bfloat16", "float16"), default="auto", help="auto: as stored"
    )
    parser.add_argument("--max-tokens", type=whole(0), default=0, help="maximum tokens of a text; 0: the model's")
    parser.add_argument(
        "--max-batch-tokens", type=whole(1), default=batch["max_tokens"], help="maximum tokens of a batch"
    )
    parser.add_argument("--max-wait-ms", type=whole(0), default=5, help="how long a batch waits for more texts")
    parser.add_argument(
        "--max-queue", type=whole(1), default=batch["max_queue"], help="maximum texts that wait; more get status 429"
    )
    parser.add_argument("--timeout-s", type=whole(1), default=60, help="deadline of a request")
    return parser
