"""Ray reserves groups of GPUs on machines of unequal GPUs, of which it is told, as `are_placed` says."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from agentrl.config.machine import are_placed

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

ASK = """
import json, sys, time
import ray
from ray.cluster_utils import Cluster
from ray.util import placement_group, remove_placement_group

gpus, asked = json.loads(sys.argv[1])
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": gpus[0], "include_dashboard": False})
for count in gpus[1:]:
    cluster.add_node(num_cpus=1, num_gpus=count)
ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
placed = []
for sizes, seconds in asked:
    group = placement_group([{"GPU": size} for size in sizes], strategy="PACK")
    placed.append(group.wait(seconds))
    remove_placement_group(group)
    while ray.available_resources().get("GPU", 0) < sum(gpus):
        time.sleep(0.05)
ray.shutdown()
cluster.shutdown()
print(json.dumps(placed))
"""
MACHINES = [3, 4]
GROUPS: list[list[tuple[int, int]]] = [
    [(2, 2), (3, 1)],
    [(2, 1), (3, 1)],
    [(2, 2), (1, 3)],
    [(3, 2), (1, 1)],
    [(4, 1), (3, 1)],
    [(2, 3)],
    [(2, 2), (3, 1), (1, 0)],
]
LONG_S, SHORT_S = 60, 2
"""How long Ray may take to reserve what it can, and is asked for what it never does."""


def test_ray_places_groups_as_is_said_of_it() -> None:
    said = [are_placed(MACHINES, groups) for groups in GROUPS]
    assert {True, False} == set(said)
    sizes = [[size for size, number in groups for _ in range(number)] for groups in GROUPS]
    asked = [(each, LONG_S if placed else SHORT_S) for each, placed in zip(sizes, said, strict=True)]
    words = [sys.executable, "-c", ASK, json.dumps([MACHINES, asked])]
    answer = subprocess.run(words, check=True, capture_output=True, text=True, timeout=300).stdout
    assert json.loads(answer.splitlines()[-1]) == said
