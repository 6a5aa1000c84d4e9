"""The canary: engine and learner must give a fixed text the same logprobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean

from agentrl.errors import WeightsError

FLOAT32_TOLERANCE = 1e-4
_CALIBRATION_FACTOR = 4.0
_CALIBRATION_FLOOR = 0.04
_CALIBRATION_LIMIT = 0.5


class LogprobCanary:
    """A fixed text, and how much the logprobs of engine and learner may differ on any of its tokens.

    With a tolerance the difference is that of the worst token. Without one (bfloat16, where two implementations never
    agree, and a single token may differ by half a nat) it is the mean over the tokens, in units of 1 + |logprob|, since
    rounding grows with the logits; the first check calibrates its bound, to four times the difference seen then. A
    calibrated canary finds gross faults only.
    """

    def __init__(self, ids: Sequence[int], dtype: str, tolerance: float = 0.0) -> None:
        self.ids = tuple(ids)
        self._is_calibrated = not tolerance and dtype != "float32"
        self._bound = None if self._is_calibrated else tolerance or FLOAT32_TOLERANCE

    def check(self, engine: Sequence[float], learner: Sequence[float]) -> float:
        """Return the difference over ids[1:], the worst or the mean; raises WeightsError if it exceeds the bound."""
        if len(engine) != len(self.ids) - 1 or len(learner) != len(engine):
            raise WeightsError(
                f"the canary of {len(self.ids)} tokens got {len(engine)} logprobs from the engine, {len(learner)} from "
                "the learner"
            )
        differences = [self._difference(pair) for pair in zip(engine, learner, strict=True)]
        index = max(range(len(differences)), key=differences.__getitem__)
        difference = mean(differences) if self._is_calibrated else differences[index]
        bound = self._calibrated(difference) if self._bound is None else self._bound
        if not difference <= bound:
            raise WeightsError(
                f"the logprobs of the canary's {len(self.ids)} tokens differ by {difference:.2g} "
                f"{'on average' if self._is_calibrated else 'at most'}, allowed {bound:.2g}: token {index + 1} has "
                f"{engine[index]:.6f} in the engine and {learner[index]:.6f} in the learner; the engine does not serve "
                "the published weights and must be restarted"
            )
        return difference

    def _difference(self, pair: tuple[float, float]) -> float:
        engine, learner = pair
        difference = abs(engine - learner) / (1 + abs(learner) if self._is_calibrated else 1)
        return math.inf if math.isnan(difference) else difference

    def _calibrated(self, difference: float) -> float:
        if difference > _CALIBRATION_LIMIT:
            return _CALIBRATION_LIMIT
        self._bound = max(_CALIBRATION_FLOOR, _CALIBRATION_FACTOR * difference)
        return self._bound
