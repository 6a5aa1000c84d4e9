"""The canary: engine and learner must give one fixed text the same logprobs."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.errors import WeightsError

FLOAT32_TOLERANCE = 1e-4
_CALIBRATION_FACTOR = 4.0
_CALIBRATION_FLOOR = 0.02
_CALIBRATION_LIMIT = 0.5


class LogprobCanary:
    """A fixed text and how far the logprobs of engine and learner may lie apart on any of its tokens.

    With a tolerance the difference is absolute. Without one (bfloat16, where two implementations never agree) the first
    check calibrates: the bound is four times what is seen then, in units of 1 + |logprob|, since rounding grows with
    the logits. A calibrated canary sees gross faults only.
    """

    def __init__(self, ids: Sequence[int], dtype: str, tolerance: float = 0.0) -> None:
        self.ids = tuple(ids)
        self._is_calibrated = not tolerance and dtype != "float32"
        self._bound = None if self._is_calibrated else tolerance or FLOAT32_TOLERANCE

    def check(self, engine: Sequence[float], learner: Sequence[float]) -> float:
        """The largest difference over ids[1:]; raises WeightsError when it is beyond the bound or not a number."""
        if len(engine) != len(self.ids) - 1 or len(learner) != len(engine):
            raise WeightsError(
                f"the canary of {len(self.ids)} tokens got {len(engine)} logprobs from the engine, {len(learner)} from "
                "the learner"
            )
        differences = [self._difference(pair) for pair in zip(engine, learner, strict=True)]
        place = max(range(len(differences)), key=differences.__getitem__)
        bound = self._calibrated(differences[place]) if self._bound is None else self._bound
        if not differences[place] <= bound:
            raise WeightsError(
                f"the canary's token {place + 1} has logprob {engine[place]:.6f} in the engine and "
                f"{learner[place]:.6f} in the learner: {differences[place]:.2g} apart, allowed {bound:.2g}; "
                "the engine does not serve the published weights and must be restarted"
            )
        return differences[place]

    def _difference(self, pair: tuple[float, float]) -> float:
        engine, learner = pair
        difference = abs(engine - learner) / (1 + abs(learner) if self._is_calibrated else 1)
        return difference if difference == difference else float("inf")

    def _calibrated(self, difference: float) -> float:
        if difference > _CALIBRATION_LIMIT:
            return _CALIBRATION_LIMIT
        self._bound = max(_CALIBRATION_FLOOR, _CALIBRATION_FACTOR * difference)
        return self._bound
