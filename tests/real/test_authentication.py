"""The Ray that a run starts on this machine serves only callers with the run's token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

CLUSTER = """
import json, os, subprocess, sys
from contextlib import closing
from pathlib import Path
import ray
from agentrl.cluster.ray.start import Connection

CALL = '''
import sys
from ray._raylet import GcsClient
print(len(GcsClient(address=sys.argv[1]).get_all_node_info()))
'''
folder = Path(sys.argv[1])
own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}

def called(address, **shown):
    done = subprocess.run([sys.executable, "-c", CALL, address], env=own | shown, capture_output=True, text=True)
    return done.stdout.strip() or done.stderr.strip()

with closing(Connection("test", folder)):
    address = ray.get_runtime_context().gcs_address
    said = {
        "none": called(address, RAY_AUTH_MODE="disabled"),
        "another": called(address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64),
        "the run's": called(address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=(folder / "ray-token").read_text()),
    }
print(json.dumps(said))
"""


def test_a_run_on_one_machine_refuses_callers_without_its_token(tmp_path: Path) -> None:
    """Ray runs the code of anyone who can connect. No variable of this machine names a mode, a token or a cluster."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {"HOME": str(tmp_path)}
    words = [sys.executable, "-c", CLUSTER, str(tmp_path)]
    answer = subprocess.run(words, env=own, check=True, capture_output=True, text=True, timeout=200).stdout
    said = json.loads(answer.splitlines()[-1])
    assert said.pop("the run's") == "1"
    for shown, refusal in said.items():
        assert "AuthenticationError" in refusal, shown
