"""Behaviour: whether episodes are independent of each other, end in time, and leave nothing behind."""

from __future__ import annotations

import time

from agentrl.checking import crowd, hanging
from agentrl.checking.attempts import affordable
from agentrl.checking.calls import check_odd_calls
from agentrl.checking.check import Check, Level, Subject
from agentrl.checking.leftovers import check_leftovers
from agentrl.checking.truth import LOCAL
from agentrl.env.testing.checks import check_cancellation, check_concurrent, check_twins

TOGETHER, LEAST_TOGETHER = 32, 4
EACH_TURN_S = 60.0


async def twins(subject: Subject) -> str:
    """Check that the seed decides everything that an episode draws."""
    await check_twins(subject.make)
    return ""


async def state(subject: Subject) -> str:
    """Check that episodes which are open at once earn what each earns alone."""
    count = max(LEAST_TOGETHER, await affordable(subject, TOGETHER))
    await check_concurrent(subject.make, count)
    return "" if count == TOGETHER else f"its episodes are slow: {count} at once"


async def cancellation(subject: Subject) -> str:
    """Cancel an episode at every await; once those of each turn have taken long, at those of other lines only."""
    began = time.monotonic()
    await check_cancellation(subject.make, each_turn_s=EACH_TURN_S)
    is_whole = time.monotonic() < began + EACH_TURN_S
    return "" if is_whole else f"its episodes are slow: after {EACH_TURN_S:.0f} s, once in each line, not in each turn"


CHECKS = (
    Check(
        "twins", Level.BEHAVIOUR, "Does the seed decide everything that an episode draws?",
        "Draw from ctx.rng alone, in an order that does not depend on time.", twins,
        of_rows="Draw from ctx.rng, or from a random.Random that the prompt seeds, whatever the time is.",
    ),
    Check(
        "state", Level.BEHAVIOUR, "Do episodes that are open at once earn what each earns alone?",
        "Keep what belongs to an episode in ctx.state, and change nothing that is shared.", state,
        of_rows=LOCAL,
    ),
    Check(
        "crowd", Level.BEHAVIOUR, "Do 1, 64 and 1,000 episodes at once end well?",
        "Share what is expensive with @shared, and limit its concurrency with a semaphore.", crowd.crowd, 300.0,
        of_rows="Make what is expensive once for all episodes, and limit its concurrency with a semaphore.",
    ),
    Check(
        "event-loop", Level.BEHAVIOUR, "Does no method hold the event loop for more than 50 ms?",
        "Use plain methods without blocking = False, or asyncio.to_thread, for code that waits or computes.",
        crowd.unblocked, of_rows="Use asyncio.to_thread for code that waits or computes.",
    ),
    Check(
        "hanging-agent", Level.BEHAVIOUR, "Does an episode end when the model never answers?",
        "Release in teardown what setup acquired, without waiting for the model.", hanging.agent,
        of_rows="Release in `finally` or `with` what an episode acquired, without waiting for the model.",
    ),
    Check(
        "hanging-tool", Level.BEHAVIOUR, "Does an episode end when its tools never answer?",
        "Give respond a turn_timeout_s of seconds, and let it accept that a tool failed.", hanging.tool,
    ),
    Check(
        "odd-calls", Level.BEHAVIOUR, "Do tools answer whatever arguments a model gives?",
        "Check arguments where a tool begins, raise an error with a text for the model, and bound time and sizes.",
        check_odd_calls, 300.0,
    ),
    Check(
        "hanging-scorer", Level.BEHAVIOUR, "Does an episode end, without a reward, when scoring never answers?",
        "Do not wait for the verdict in teardown, and let a reward raise instead of returning a value.",
        hanging.scorer, of_rows="Do not wait for the verdict in `finally`, and raise an error where there is none.",
    ),
    Check(
        "cancellation", Level.BEHAVIOUR, "Does an episode end when it is cancelled at any wait?",
        "Raise CancelledError again where you catch it, and let teardown accept a setup that has not finished.",
        cancellation, 300.0,
        of_rows="Raise CancelledError again where you catch it, and let `finally` accept an unfinished start.",
    ),
    Check(
        "leftovers", Level.BEHAVIOUR, "Do episodes leave no thread, process, file or socket behind?",
        "Close in teardown what an episode opens, and use @shared with a context manager for the rest.",
        check_leftovers,
        of_rows="Close in `finally` or `with` what an episode opens, and open once for all what they share.",
    ),
)  # fmt: skip
