"""Runs that a scheduler starts over two hosts: SLURM, whose commands are stand-ins, and the jobs of Ray."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from agentrl.cluster.processes import ProcessRegistry
from agentrl.metrics.trackers import read_steps
from agentrl.records.folder import RunFolder
from tests.cluster.hosts import Host, hosts, with_commands
from tests.cluster.runs import NEEDS_HOSTS, assert_lawful, flags

pytestmark = NEEDS_HOSTS

SCRIPT = Path(__file__).parents[2] / "examples" / "cluster" / "slurm.sh"
GUIDE = Path(__file__).parents[2] / "docs" / "scale-out.md"
BY_NAME = ("env", "-u", "RAY_ADDRESS", with_commands())
"""Commands by their names, of a user who has said nothing of the cluster."""
SRUN = """#!/usr/bin/env bash
for word; do
  case $word in
    --nodelist=*) host=${{word#--nodelist=}}; shift ;;
    --*) shift ;;
    *) break ;;
  esac
done
case $host in
{cases}
  *) echo "srun: no node $host" >&2; exit 1 ;;
esac
"""
SCONTROL = """#!/usr/bin/env bash
[[ $* == "show hostnames node-[1-2]" ]] && printf 'node-1\\nnode-2\\n'
"""


def _documented() -> list[list[str]]:
    """The commands of docs/scale-out.md that start a cluster for jobs, submit one and stop it."""
    section = GUIDE.read_text().partition("### Jobs of Ray\n")[2].partition("\n## ")[0]
    block = section.partition("```bash\n")[2].partition("```")[0]
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def _scheduler(folder: Path, found: list[Host]) -> Path:
    """A folder with the commands of SLURM that the script calls."""
    folder.mkdir()
    names = ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")
    cases = []
    for host in found:
        words = [f'{name}="${{{name}:-}}"' for name in names]
        entered = " ".join(host.command(*words))  # `env` sets what the script exports, over the host's own
        cases.append(f'  {host.name}) exec {entered} "$@" ;;')
    for name, text in (("srun", SRUN.format(cases="\n".join(cases))), ("scontrol", SCONTROL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def test_the_script_for_slurm_trains_over_the_nodes_of_a_job(shared: Path) -> None:
    with hosts("node-1", "node-2") as found:
        commands = _scheduler(shared / "bin", found)
        path = f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        job = {"SLURM_JOB_NODELIST": "node-[1-2]", "SLURM_JOB_ID": "7", "STORE_BYTES": str(100 << 20)}
        environment = os.environ | {"PATH": path} | job
        trained = shlex.join(["agentrl", "train", *flags(shared, "run", **{"engine.count": 2})])
        words = ["bash", str(SCRIPT), "bash", "-c", f"{trained} && ray status"]
        with (shared / "slurm.log").open("w") as log:  # no pipe: Ray, which ends with the hosts, would keep it open
            done = subprocess.run(
                words, env=environment, cwd=shared, stdout=log, stderr=subprocess.STDOUT, timeout=400, check=False
            )
    said = (shared / "slurm.log").read_text()
    assert done.returncode == 0, said
    assert "/200.00MiB object_store_memory" in said, "of both nodes"
    folder = RunFolder(shared / "run")
    assert len(read_steps(folder)) == 3
    where = {process.role: process.host for process in ProcessRegistry(folder.path).registered()}
    roles = ("learner rank 0", "engine 0", "engine 1", "rollout worker 0")
    assert sorted(where[role] for role in roles) == ["node-1", "node-1", "node-2", "node-2"]
    assert not list(shared.glob("ray-token-*")), "the token is removed"


@pytest.mark.skipif(find_spec("opencensus") is None, reason="needs agentrl-core[cluster]")
def test_a_job_that_is_submitted_to_ray_trains_and_stops_with_a_checkpoint(shared: Path) -> None:
    with hosts("head", "node") as (head, node):
        start, submit, stop = _documented()
        assert start[:4] == ["RAY_JOB_STOP_WAIT_TIME_S=60", "ray", "start", "--head"], "as start_ray does"
        head.start_ray("head", has_dashboard=True)
        node.join_ray(head, "node")
        given = flags(shared, "run", **{"engine.nodes": "node", "steps": 1000})
        submitted = head.command(*BY_NAME, *submit[: submit.index("train") + 1], *given)
        folder, log = RunFolder(shared / "run"), shared / "job.log"
        with log.open("w") as out, subprocess.Popen(submitted, stdout=out, stderr=subprocess.STDOUT) as job:
            try:
                ends_at = time.monotonic() + 300
                while len(read_steps(folder)) < 2:
                    assert job.poll() is None, log.read_text()
                    assert time.monotonic() < ends_at, log.read_text()
                    time.sleep(0.2)
                head.run(*BY_NAME, *stop)
                job.wait(timeout=120)
            finally:
                job.kill()
    assert "stopped by SIGTERM" in log.read_text()
    assert_lawful(folder)
    assert list(folder.checkpoints.iterdir())
    hosts_of = {process.role: process.host for process in ProcessRegistry(folder.path).registered()}
    assert hosts_of["engine 0"] == "node"
