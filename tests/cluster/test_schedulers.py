"""The script for SLURM, as the docs show it, over two hosts: `srun` and `scontrol` are stand-ins that enter a host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from agentrl.cluster.processes import ProcessRegistry
from agentrl.metrics.trackers import read_steps
from agentrl.records.folder import RunFolder
from tests.cluster.hosts import Host, hosts
from tests.cluster.runs import NEEDS_HOSTS, flags

pytestmark = NEEDS_HOSTS

SCRIPT = Path(__file__).parents[2] / "examples" / "cluster" / "slurm.sh"
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
        environment = os.environ | {"PATH": path, "SLURM_JOB_NODELIST": "node-[1-2]", "SLURM_JOB_ID": "7"}
        words = ["bash", str(SCRIPT), "agentrl", "train", *flags(shared, "run", **{"engine.count": 2})]
        with (shared / "slurm.log").open("w") as log:  # no pipe: Ray, which ends with the hosts, would keep it open
            done = subprocess.run(
                words, env=environment, cwd=shared, stdout=log, stderr=subprocess.STDOUT, timeout=400, check=False
            )
    assert done.returncode == 0, (shared / "slurm.log").read_text()
    folder = RunFolder(shared / "run")
    assert len(read_steps(folder)) == 3
    assert {process.host for process in ProcessRegistry(folder.path).registered()} == {"node-1", "node-2"}
    assert not list(shared.glob("ray-token-*")), "the token is removed"
