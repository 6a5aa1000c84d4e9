"""One check: its name, level and question, and its result for one environment."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

from agentrl.env.attributes import INIT
from agentrl.env.base import Env
from agentrl.env.config import env_config
from agentrl.env.files.rows import RowsEnv
from agentrl.env.registry import make_env, resolve
from agentrl.errors import AgentRLError, ConfigError, catch
from agentrl.plugins.files import anchored_value
from agentrl.plugins.tracebacks import defined_at, describe_error
from agentrl.types import Trajectory

SCRATCH = "AGENTRL_CHECK_SCRATCH"
"""The environment variable with the folder of a process of checks, which is removed after it."""
TASKS = 8
"""Tasks of each split that a check samples."""


class Level(StrEnum):
    """What a check is about. A level is run in this order."""

    CONTRACT = "contract"
    TRUTH = "truth"
    BEHAVIOUR = "behaviour"
    PACKAGE = "package"
    LEARNABILITY = "learnability"


WITHOUT_MODEL = frozenset(Level) - {Level.LEARNABILITY}
"""The levels that need no model."""


class Status(StrEnum):
    """Result of a check."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNCHECKED = "unchecked"

    @property
    def is_fine(self) -> bool:
        """Whether the check passed or does not apply."""
        return self in (Status.PASSED, Status.SKIPPED)


class FailedError(AssertionError):
    """A check found a fault; the message says what and where."""


class SkippedError(Exception):
    """A check does not apply to this environment or this machine; the message says why."""


class UncheckedError(Exception):
    """A check could not be finished, which need not be the environment's fault; the message says why."""


@dataclass(frozen=True)
class Subject:
    """The environment to check: its name or path, its class, and its `--env.*` options."""

    name: str
    env_class: type[Env]
    options: Mapping[str, Any] = field(default_factory=dict)
    is_clean: bool = False
    """Whether the package is also installed from an index, with all that it depends on."""
    episodes: Sequence[Trajectory] = ()
    """Samples of training tasks by a model, for the level learnability."""

    @classmethod
    def named(cls, name: str, options: Mapping[str, Any]) -> Subject:
        """Find the environment; raises ConfigError for an unknown name or options that it does not take.

        Options that are paths become absolute, as in a run.
        """
        env_class = resolve(name)
        made = catch(partial(make_env, name, **options))
        if made.error and not isinstance(made.error, AgentRLError):
            raise ConfigError(
                f"{env_class.__name__}{defined_at(env_class.__init__)} cannot be made: {describe_error(made.error)}; "
                f"write {INIT}"
            ) from made.error
        if made.error:
            raise made.error
        if catch(os.getcwd).error:
            raise ConfigError(
                f"{name}: its import changes the working folder to one that no longer exists: leave out os.chdir"
            )
        return cls(name, env_class, {key: anchored_value(value) for key, value in options.items()})

    def make(self) -> Env:
        """Return a new environment object."""
        return self.env_class(env_config(self.env_class, self.options))

    @property
    def has_rows(self) -> bool:
        """Whether the class is made from a function or from a file of OpenRLHF, which plays the rows of a data file."""
        return issubclass(self.env_class, RowsEnv)


@dataclass(frozen=True)
class Check:
    """A question about an environment. `ask` returns a note on a pass, and raises for anything else."""

    name: str
    level: Level
    question: str
    remedy: str
    """What to do if it fails, in one sentence."""
    ask: Callable[[Subject], Awaitable[str]]
    timeout_s: float = 120.0
    is_basis: bool = False
    """Every later check needs what this one tries: if it ends with an error, they are not checked."""
    plays_first: bool = False
    """It reports itself that an ordinary episode fails."""
    of_rows: str = ""
    """The remedy for what has rows (`Subject.has_rows`) and no methods of an environment, if it is another one."""

    @property
    def needs_episode(self) -> bool:
        """Whether an ordinary episode must end well first: its fault would be taken for what the check tries."""
        return self.level in (Level.TRUTH, Level.BEHAVIOUR) and not self.plays_first

    def remedy_for(self, subject: Subject) -> str:
        """Return what the author of an environment can do."""
        return self.of_rows if self.of_rows and subject.has_rows else self.remedy


@dataclass(frozen=True)
class Result:
    """Result of one check: what is wrong if it failed, why if it was skipped or unchecked, a note if it passed."""

    check: Check
    status: Status
    text: str = ""
    seconds: float = 0.0
    remedy: str = ""
    """What to do if the check failed."""


def unchecked(check: Check, basis: Check) -> Result:
    """Return the result of a check that does not run because an earlier one failed."""
    return Result(check, Status.UNCHECKED, f"not checked: see {basis.name}")
