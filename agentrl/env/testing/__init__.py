"""The testing kit: rehearse episodes with a scripted model, and check that an environment keeps its promises.

    from agentrl.env.testing import check_environment, rehearse

    def test_sums():
        check_environment(Sums)
        assert rehearse(Sums(), ["It is 8."], index=3).reward == 1.0

`rehearse` runs the code that training runs. `check_environment` runs every check below; the async ones can be awaited
one by one, with limits and policies of your own. A check that fails raises AssertionError.
"""

from agentrl.engine.scripted import Die, Hang, Raise
from agentrl.env.testing.cancellation import Cancellation, cancel_everywhere, model_turns, waits
from agentrl.env.testing.checks import (
    check_canaries,
    check_cancellation,
    check_concurrent,
    check_environment,
    check_oracle,
    check_tasks,
    check_twins,
    close_shared_sync,
    no_leaks,
)
from agentrl.env.testing.episodes import Moment, data_file, moments, play_signals, sample_tasks, signals_of, values
from agentrl.env.testing.rehearsal import rehearse, tool_call

__all__ = [
    "Cancellation",
    "Die",
    "Hang",
    "Moment",
    "Raise",
    "cancel_everywhere",
    "check_canaries",
    "check_cancellation",
    "check_concurrent",
    "check_environment",
    "check_oracle",
    "check_tasks",
    "check_twins",
    "close_shared_sync",
    "data_file",
    "model_turns",
    "moments",
    "no_leaks",
    "play_signals",
    "rehearse",
    "sample_tasks",
    "signals_of",
    "tool_call",
    "values",
    "waits",
]
