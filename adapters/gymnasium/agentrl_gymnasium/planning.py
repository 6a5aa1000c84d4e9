"""The best actions in an environment whose transitions are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Transitions = Mapping[int, Mapping[int, Sequence[tuple[float, int, float, bool]]]]
"""By state and action: probability, next state, reward, and whether the episode ends."""
DISCOUNT, SWEEPS, CLOSE = 0.99, 1000, 1e-9


def best_actions(transitions: Transitions) -> dict[int, int]:
    """Return the best action in each state, by value iteration (Sutton and Barto, section 4.4)."""
    values = dict.fromkeys(transitions, 0.0)

    def worth(outcomes: Sequence[tuple[float, int, float, bool]]) -> float:
        return sum(p * (reward + (0.0 if ends else DISCOUNT * values[to])) for p, to, reward, ends in outcomes)

    for _ in range(SWEEPS):
        before = dict(values)
        for state, actions in transitions.items():
            values[state] = max(map(worth, actions.values()))
        if max(abs(values[state] - before[state]) for state in values) < CLOSE:
            break
    return {state: max(actions, key=lambda a: worth(actions[a])) for state, actions in transitions.items()}


def planned(env: Any, seed: int, most: int) -> list[int]:
    """Play an environment with known transitions from `seed`, and return up to `most` actions of the best policy."""
    best, (state, _), actions = best_actions(env.unwrapped.P), env.reset(seed=seed), []
    for _ in range(most):
        actions.append(best[int(state)])
        state, _, terminated, truncated, _ = env.step(actions[-1])
        if terminated or truncated:
            break
    return actions
