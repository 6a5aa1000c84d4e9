"""Ray's token: a run on one machine leaves none behind, and a cluster refuses a machine without its own at once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cluster.hosts import hosts
from tests.cluster.runs import NEEDS_HOSTS

pytestmark = NEEDS_HOSTS

LOCAL = """
import os, stat, sys
from pathlib import Path
import ray
from agentrl.cluster.ray.start import Connection
folder, home = Path(sys.argv[1]), Path.home() / ".ray" / "auth_token"
connection = Connection("test", folder)
token = folder / "ray-token"
print(oct(stat.S_IMODE(token.stat().st_mode)), len(token.read_text()), home.exists(), os.environ["RAY_AUTH_TOKEN_PATH"])
assert ray.get(ray.remote(lambda: os.environ["RAY_AUTH_TOKEN_PATH"]).remote()) == str(token)
connection.close()
print(token.exists(), home.exists(), "RAY_AUTH_TOKEN_PATH" in os.environ)
"""
CONNECT = """
import sys, time
from pathlib import Path
import ray
from agentrl.cluster.ray.start import Connection
from agentrl.errors import RunError
began = time.monotonic()
try:
    connection = Connection("test", Path("/tmp"))
    print(ray.get(ray.remote(lambda: "connected").remote()))
    connection.close()
except RunError as error:
    print(f"{time.monotonic() - began:.1f} s: {error}")
"""
OWN = ("env", "-u", "RAY_ADDRESS", "-u", "RAY_AUTH_MODE")


@pytest.mark.parametrize("mode", [(), ("RAY_AUTH_MODE=token",)], ids=["unset", "token"])
def test_a_run_on_one_machine_keeps_its_token_in_its_folder_and_leaves_none(mode: tuple[str, ...]) -> None:
    with hosts("alone") as (alone,):
        said = alone.run(*OWN, *mode, sys.executable, "-c", LOCAL, "/tmp")
    assert said.split("\n") == ["0o600 64 False /tmp/ray-token", "False False False", ""]


@pytest.mark.parametrize("mode", [(), ("RAY_AUTH_MODE=token",)], ids=["unset", "token"])
def test_a_machine_joins_a_cluster_with_its_token_only(shared: Path, mode: tuple[str, ...]) -> None:
    with hosts("head", "other") as (head, other):
        head.start_ray("head")
        connect = (*OWN, f"RAY_ADDRESS={head.address}:6379", *mode, sys.executable, "-c", CONNECT)
        refused = [other.run(*connect)]
        other.run("sh", "-c", "mkdir -p /tmp/home/.ray && printf %064d 0 > /tmp/home/.ray/auth_token")
        refused.append(other.run(*connect))
        for said in refused:
            seconds, _, why = said.partition(" s: ")
            assert float(seconds) < 15.0
            assert f"the Ray cluster at {head.address}:6379 refuses this machine" in why
            assert f"mkdir -p ~/.ray && scp {head.address}:.ray/auth_token ~/.ray/" in why
        assert head.run(*connect) == "connected\n"
