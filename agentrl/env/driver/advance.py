"""One turn of an episode that somebody else drives, with its rewards: what Gymnasium and OpenEnv call a step."""

from __future__ import annotations

from dataclasses import dataclass

from agentrl.env.driver.driver import EnvDriver
from agentrl.errors import VerifierError
from agentrl.types import Message, Signal, StopReason


@dataclass(frozen=True, slots=True)
class Advance:
    """Result of a turn: the new messages, the new signals, and why the episode ended, if it did."""

    messages: tuple[Message, ...]
    signals: tuple[Signal, ...]
    stop_reason: StopReason | None

    @property
    def reward(self) -> float:
        """The weighted sum of the new signals. Raises VerifierError for an invalid one with a weight: it is never 0."""
        for signal in self.signals:
            if signal.weight and not signal.valid:
                raise VerifierError(f"{signal.verifier or signal.name}: {signal.reason}")
        return sum((s.weight * s.value for s in self.signals if s.value is not None), 0.0)


async def advance(driver: EnvDriver, turn: Message | str) -> Advance:
    """Take the assistant's turn, and score the episode if the turn is its last. Does not close the episode."""
    result = await driver.step(turn)
    signals = result.signals
    is_last = len(driver.ctx.turns) >= driver.max_turns
    stop_reason = driver.done_reason if result.done else StopReason.MAX_TURNS if is_last else None
    if stop_reason is not None:
        paid = len(driver.ctx.signals) - len(signals)
        signals = (await driver.finish(stop_reason))[paid:]
    return Advance(result.messages, signals, stop_reason)
