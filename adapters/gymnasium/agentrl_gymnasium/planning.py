"""The best actions in a game whose transitions are known, and whose random numbers a seed decides."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """What an action leads to with some probability."""

    probability: float
    state: int
    reward: float
    is_end: bool


Actions = Mapping[int, Sequence[tuple[float, int, float, bool]]]
"""The outcomes of each action in a state. The games of `gymnasium.envs.toy_text` have them by state, as `P`."""


class Plan(NamedTuple):
    """What can still be earned, the steps that it takes (negative: fewer are better), and the first action."""

    total: float
    steps: int
    action: int


def best_ending(table: Mapping[int, Actions]) -> float:
    """Return the most that the last step of a game pays, which ends somewhere."""
    outcomes = (Outcome(*each) for actions in table.values() for likely in actions.values() for each in likely)
    return max(outcome.reward for outcome in outcomes if outcome.is_end)


def planned(env: Any, seed: int, most: int) -> list[int]:
    """Return the actions that earn most within `most` steps of the game that begins with `seed`, as few as possible.

    A step draws one number whatever the action, so that the seed decides the numbers of all steps, and an action has
    one outcome at each: backward induction (Sutton and Barto, chapter 4) without expectations.
    """
    state, _ = env.reset(seed=seed)
    table, draws = env.unwrapped.P, copy.deepcopy(env.unwrapped.np_random).random(most)
    reached = [{state}]
    for draw in draws[:-1]:
        outcomes = (outcome for at in reached[-1] for _, outcome in _drawn(table[at], draw))
        reached.append({outcome.state for outcome in outcomes if not outcome.is_end})
    plans: list[dict[int, Plan]] = [{}]
    for draw, states in zip(reversed(draws), reversed(reached), strict=True):
        plans.append({at: _best(table[at], draw, plans[-1]) for at in states})
    return list(_followed(state, table, draws, plans[:0:-1]))


def _drawn(actions: Actions, draw: float) -> Iterator[tuple[int, Outcome]]:
    """Yield the outcome of each action for a number from [0, 1), chosen as `categorical_sample` of Gymnasium does."""
    for action, outcomes in actions.items():
        below, chosen = 0.0, outcomes[0]
        for outcome in outcomes:
            below += outcome[0]
            if below > draw:
                chosen = outcome
                break
        yield action, Outcome(*chosen)


def _best(actions: Actions, draw: float, later: Mapping[int, Plan]) -> Plan:
    def plans() -> Iterator[Plan]:
        for action, outcome in _drawn(actions, draw):
            rest = None if outcome.is_end else later.get(outcome.state)
            yield Plan(outcome.reward + (rest.total if rest else 0.0), (rest.steps if rest else 0) - 1, action)

    return max(plans(), key=lambda plan: plan[:2])


def _followed(
    state: int, table: Mapping[int, Actions], draws: Sequence[float], plans: Sequence[Mapping[int, Plan]]
) -> Iterator[int]:
    for draw, plan in zip(draws, plans, strict=True):
        action = plan[state].action
        yield action
        outcome = dict(_drawn(table[state], draw))[action]
        if outcome.is_end:
            return
        state = outcome.state
