"""A script: reads a request from stdin and writes the entries of a dataset to stdout, both pickled.

Five datasets iterate over sets, so their entries depend on the process's hash seed. The adapter runs this script with a
fixed one, and every process has the same tasks.
"""

from __future__ import annotations

import pickle
import sys
import warnings


def main() -> None:
    """Generate the entries."""
    warnings.simplefilter("ignore")
    import reasoning_gym

    name, keys, seed, size = pickle.load(sys.stdin.buffer)
    stdout, sys.stdout = sys.stdout.buffer, sys.stderr  # what the library prints is no entry
    dataset = reasoning_gym.create_dataset(name, seed=seed, size=size, **keys)
    pickle.dump([dataset[index] for index in range(size)], stdout)


if __name__ == "__main__":
    main()
