"""Games of a few tokens whose expected reward is known exactly, because every course of play can be enumerated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

VOCABULARY = 32
START, ASK, OPEN, SHUT, FIRST_CONTEXT = 0, 1, 2, 3, 8
"""Tokens that the environment uses. Every token can be an action."""

Actions = tuple[int, ...]
"""One token for each turn so far."""


@dataclass(frozen=True)
class Game:
    """A game in which every turn is one token. A model of `layers` layers learns it in `batches` batches.

    `prompts` holds the first tokens of each task, all of one length. `rewards(task, actions)` returns the reward of
    each turn of a complete game, `best(task, turn)` the best actions. `replies(actions)` returns the tokens of the
    environment after an action.
    """

    name: str
    layers: int
    batches: int
    turns: int
    prompts: tuple[tuple[int, ...], ...]
    rewards: Callable[[int, Actions], tuple[float, ...]]
    best: Callable[[int, int], frozenset[int]]
    replies: Callable[[Actions], tuple[int, ...]]

    def context(self, task: int, actions: Actions) -> list[int]:
        """Return the tokens that the model sees before its next action."""
        ids = list(self.prompts[task])
        for turn, action in enumerate(actions):
            ids += [action, *self.replies(actions[: turn + 1])]
        return ids


def quarter(offset: int) -> frozenset[int]:
    return frozenset(range(offset, VOCABULARY, 4))


EVEN, ODD = frozenset(range(0, VOCABULARY, 2)), frozenset(range(1, VOCABULARY, 2))

OFFSET = 10.0

BANDIT = Game(
    "bandit",
    layers=1,
    batches=10,
    turns=1,
    prompts=((START, ASK),),
    rewards=lambda task, actions: (OFFSET + float(actions[0] in quarter(0)),),
    best=lambda task, turn: quarter(0),
    replies=lambda actions: (),
)
"""A quarter of the arms pays 1 more than the others; all pay so much that credit without a baseline is noise."""

CONTEXTUAL = Game(
    "contextual",
    layers=2,
    batches=15,
    turns=1,
    prompts=tuple((START, FIRST_CONTEXT + context, ASK) for context in range(4)),
    rewards=lambda task, actions: (float(actions[0] in quarter(task)),),
    best=lambda task, turn: quarter(task),
    replies=lambda actions: (),
)
"""A quarter of the arms pays 1; the token before the last one of the prompt decides which quarter."""


def _late(task: int, actions: Actions) -> tuple[float, ...]:
    first, second = actions
    return (0.0, float(second not in EVEN)) if first in EVEN else (0.25, 0.0)


CHAIN = Game(
    "chain",
    layers=1,
    batches=11,
    turns=2,
    prompts=((START, ASK),),
    rewards=_late,
    best=lambda task, turn: ODD if turn else EVEN,
    replies=lambda actions: (ASK, OPEN if actions[0] in EVEN else SHUT, START),
)
"""An odd first token pays 0.25 at once. An even one pays nothing, but then an odd second token pays 1.

A policy whose turns are credited with nothing but their own rewards learns to take the 0.25.
"""

GAMES = {game.name: game for game in (BANDIT, CONTEXTUAL, CHAIN)}
