"""Whether a run can go on."""

from __future__ import annotations

from agentrl.errors import ConfigError
from agentrl.records.checkpoints import steps_in
from agentrl.records.folder import RunFolder, check_free
from agentrl.report import summary


def check_resumable(folder: RunFolder, steps: int) -> None:
    """Raise RunError where a process drives the run, ConfigError where its `steps` steps are done. Changes nothing.

    A run that trained its last step and did not finish, goes on: with its last evaluation and its report.
    """
    check_free(folder.path)
    done = max(steps_in(folder.checkpoints), default=0)
    last = summary.read(folder)
    if done > steps or (done == steps and last is not None and last.is_finished):
        raise ConfigError(f"{done} of {steps} steps are done: say --steps N, with N above {done}, for more")
