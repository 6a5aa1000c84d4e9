"""`agentrl env serve NAME`: serve an environment to workers of other machines, or to clients of OpenEnv."""

from __future__ import annotations

import argparse
from pathlib import Path

from agentrl.cli.flags import Parser, own_options, path, whole
from agentrl.cli.serving import check_reach, secret, serve
from agentrl.config.loading import load, of_flags
from agentrl.env.registry import is_address
from agentrl.errors import ConfigError
from agentrl.hosting.sockets import EnvServer
from agentrl.openenv import OpenEnvServer, ServerLimits
from agentrl.packaging.added import interpreter_of

MEANING = """\
Serve an environment to clients of OpenEnv: a WebSocket is a session, and a session plays one episode after the other.
With --protocol agentrl it is served to runs on other machines, as --env agentrl://HOST:PORT/NAME: a WebSocket is a
worker with any number of episodes, and the token is in the environment variable AGENTRL_ENV_TOKEN of the run.
Options of the environment are given as --env.KEY VALUE. Clients send the token of --token-file as "Authorization:
Bearer TOKEN"; without one the server listens on this machine only. It has no TLS: put a proxy in front of it where the
network is not private."""


def run(words: list[str]) -> int:
    """Serve until SIGINT or SIGTERM."""
    own, pairs = own_options(words)
    given = _parser().parse_args(own)
    env, *others = load(None, of_flags([("env", given.environment), *pairs])).env
    if others:
        raise ConfigError(f"{given.environment} names several environments: serve each on a port of its own")
    python = env.python or interpreter_of(env.name)
    if python or is_address(env.name):
        remedy = f"{python} -m agentrl env serve {env.name}" if python else f"serve it there: {env.name}"
        raise ConfigError(f"an environment is served by the interpreter that runs it: {remedy}")
    token = _token(given.token_file)
    check_reach(given.host, token, "give the clients' secret with --token-file")
    server: EnvServer | OpenEnvServer
    if given.protocol == "agentrl":
        server, scheme, place = EnvServer(env.name, env.options, token), "agentrl", f"/{given.environment}"
    else:
        limits = ServerLimits(given.max_sessions, given.idle_s)
        server, scheme, place = OpenEnvServer(env.name, env.options, limits, token), "http", ""
    what = f"serving {given.environment}"
    serve(server, given.host, given.port, lambda at: f"{what} at {scheme}://{at}{place} ({given.protocol})")
    return 0


def _token(file: Path | None) -> str:
    try:
        return secret(file.read_text(encoding="utf-8"), f"--token-file {file}") if file else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {file}: cannot be read: {error}") from error


def _parser() -> Parser:
    limits = ServerLimits()
    parser = Parser(
        prog="agentrl env serve", description=MEANING, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("environment", metavar="NAME|PATH", help="a name, a file, file.py:Class, or a folder")
    parser.add_argument(
        "--protocol", choices=("openenv", "agentrl"), default="openenv", help="the language of the clients"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=whole(0), default=8000, help="port to listen on; 0: a free one")
    parser.add_argument("--max-sessions", type=whole(1), default=limits.max_sessions, help="sessions at once")
    parser.add_argument("--idle-s", type=whole(1), default=limits.idle_s, help="how long a session may be idle")
    parser.add_argument("--token-file", type=path, metavar="FILE", help="a file with the clients' secret")
    return parser
