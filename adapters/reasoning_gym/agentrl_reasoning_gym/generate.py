"""A script: reads a request from stdin and writes the entries of a dataset to stdout, both pickled.

Five datasets iterate over sets, so their entries depend on the process's hash seed. The adapter runs this script with a
fixed one, and every process has the same tasks.
"""

from __future__ import annotations

import os
import pickle
import random
import sys
import warnings
from typing import Any


def main() -> None:
    """Generate the entries."""
    warnings.simplefilter("ignore")
    import reasoning_gym

    name, keys, seed, size = pickle.load(sys.stdin.buffer)
    stdout, sys.stdout = sys.stdout.buffer, sys.stderr  # what the library prints is no entry
    dataset = reasoning_gym.create_dataset(name, seed=seed, size=size, **keys)
    pickle.dump([_entry(dataset, seed, index) for index in range(size)], stdout)


def _entry(dataset: Any, seed: int, index: int) -> Any:
    """Generate an entry. The programs of `codeio` draw from every source of random numbers."""
    source = random.Random(f"{seed}/{index}")
    random.seed(source.random())
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(source.getrandbits(32))
    os.urandom = vars(random)["_urandom"] = source.randbytes  # also that of secrets, uuid4 and numpy's default_rng
    return dataset[index]


if __name__ == "__main__":
    main()
