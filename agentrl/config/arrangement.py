"""How many engines and ranks a run has, and whether they share GPUs, where its configuration leaves that open."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from agentrl.config.machine import Machine
from agentrl.config.schema import Config
from agentrl.config.validate import most_ranks, other_gpus, served_on_several
from agentrl.errors import ConfigError


class Numbers(NamedTuple):
    """How many learner ranks and engines there are."""

    ranks: int
    engines: int


def arranged(config: Config, machine: Machine | None, *, learns: bool) -> Config:
    """Return the configuration with a number of engines and ranks; one of each without GPUs, where machine is None.

    A run that does not learn has no ranks: its engines take all GPUs. Of other runs, engines and ranks may share GPUs
    and take turns if sampling waits for updates, because each of two halves would wait for the other. If any numbers
    can run on the machine with what is set, those that are chosen can.
    """
    engine, learner = config.engine, config.learner
    choice = Choice(config, machine) if machine else None
    if machine:
        _check_numbers(config, machine, learns=learns)
    placement = engine.placement
    if not learns:
        placement = "separate"
    elif placement == "auto":
        placement = "colocate" if choice and choice.is_best_shared else "separate"
    if choice is None:
        numbers = Numbers((learner.ranks or learner.sharers) * learns, engine.count or 1)
    elif not learns:
        numbers = choice.of_engines
    else:
        numbers = choice.shared if placement == "colocate" else choice.apart
    update = {"count": numbers.engines, "tensor_parallel": max(1, engine.tensor_parallel), "placement": placement}
    return config.model_copy(
        update={
            "engine": engine.model_copy(update=update),
            "learner": learner.model_copy(update={"ranks": numbers.ranks}),
        }
    )


def _check_numbers(config: Config, machine: Machine, *, learns: bool) -> None:
    """Raise ConfigError if a number is open and a role may use the GPUs of only some of several machines.

    Which machines have the resource that a role names is not known here.
    """
    numbers = {"engine.count": config.engine.count} | ({"learner.ranks": config.learner.ranks} if learns else {})
    left = " and ".join(key for key, number in numbers.items() if not number)
    if config.engine.placement == "colocate" and learns and any(numbers.values()):
        return  # the other follows from it
    has_gpus = {
        "engine": True,
        "learner": learns,
        "critic": config.critic.placement == "separate",
        "scorers": config.scorers.placement == "separate",
        "reward": bool(config.reward.groups),
    }
    asked = {role: getattr(config, role).nodes for role, has in has_gpus.items() if has}
    named = " and ".join(f"{role}.nodes {nodes}" for role, nodes in asked.items() if nodes)
    if left and named and sum(map(bool, machine.gpus_by_host)) > 1:
        raise ConfigError(
            f"{named}: {left} would be chosen for the GPUs of all machines together, also of those without the "
            f"resource. Set {left} by the GPUs of the machines that have it"
        )


@dataclass(frozen=True)
class Choice:
    """The numbers that are possible on the GPUs of a machine, or of a cluster.

    A batch has samples for so many ranks, and ranks that share micro-batches or weight matrices come in whole groups.
    An engine is on one machine.
    """

    config: Config
    machine: Machine

    @cached_property
    def apart(self) -> Numbers:
        """Ranks and engines that share no GPU: one takes what the other leaves, or each about a half."""
        engine, ranks, group = self.config.engine, self.config.learner.ranks, self.config.learner.sharers
        if ranks:
            return Numbers(ranks, engine.count or self._engines(self.free - ranks, self.episodes))
        left = (self.free - max(1, engine.count) * engine.gpus) // self.gpus_of_rank
        most = min(left, most_ranks(self.config))
        half = most if engine.count else min(most, self.free // (1 + self.gpus_of_rank))
        least = _multiple(half, group) or group
        engines = engine.count or self._engines(self.free - least * self.gpus_of_rank, self.episodes)
        rest = (self.free - engines * engine.gpus) // self.gpus_of_rank
        return Numbers(max(least, _multiple(min(rest, most), group)), engines)

    @cached_property
    def shared(self) -> Numbers:
        """Ranks and engines that share GPUs: as many ranks as all engines have GPUs."""
        engine, learner, size = self.config.engine, self.config.learner, self.config.engine.gpus
        unit, most = math.lcm(size, learner.sharers), min(self.most_shared, most_ranks(self.config))
        ranks = learner.ranks or engine.count * size or _multiple(most, unit) or unit
        return Numbers(ranks, engine.count or max(1, ranks // size))

    @property
    def of_engines(self) -> Numbers:
        """The engines of an evaluation."""
        episodes = self.config.eval.tasks * self.config.eval.samples or sys.maxsize
        return Numbers(0, self.config.engine.count or self._engines(self.free, episodes))

    @property
    def is_best_shared(self) -> bool:
        """Whether ranks and engines must share GPUs to fit, or are more if they do: by the product of their numbers."""
        (ranks, engines), shared, most = self.apart, self.shared, most_ranks(self.config)
        is_whole = shared.ranks == shared.engines * self.config.engine.gpus
        if not (self.may_share and is_whole) or shared.ranks % self.config.learner.sharers:
            return False
        if ranks * self.gpus_of_rank + engines * self.config.engine.gpus > self.free or engines > self.room:
            return shared.ranks <= most
        is_more = shared.ranks * min(shared.engines, self.episodes) > ranks * engines
        return is_more and shared.ranks <= min(self.most_shared, most)

    @property
    def may_share(self) -> bool:
        """Whether ranks and engines may share GPUs by all other keys."""
        learner, engine, weights = self.config.learner, self.config.engine, self.config.weights
        is_asked = learner.nodes in ("", engine.nodes) and weights.transfer != "nccl"
        return is_asked and self.config.rollout.max_staleness == 0

    @property
    def episodes(self) -> int:
        """The most episodes that a training run samples at once."""
        rollout = self.config.rollout
        return rollout.samples * (1 + rollout.max_staleness)

    @cached_property
    def free(self) -> int:
        """The GPUs for engines and ranks."""
        return len(self.machine.gpus) - other_gpus(self.config)

    @cached_property
    def room(self) -> int:
        """How many engines the machines have room for."""
        return max(0, self.machine.room_for(self.config.engine.gpus, *served_on_several(self.config)))

    @property
    def most_shared(self) -> int:
        """How many ranks can share the GPUs of engines."""
        return min(self.free // self.gpus_of_rank, self.room * self.config.engine.gpus)

    @property
    def gpus_of_rank(self) -> int:
        """The GPUs that a rank takes: two if its number is open, and a separate critic gets as many ranks."""
        critic = self.config.critic
        return 2 if critic.placement == "separate" and not (critic.ranks or self.config.learner.ranks) else 1

    def _engines(self, gpus: int, episodes: int) -> int:
        """Return how many engines fit, none of which would be without an episode."""
        return max(1, min(gpus // self.config.engine.gpus, self.room, episodes))


def _multiple(number: int, of: int) -> int:
    """Return the largest multiple up to a number, 0 if there is none."""
    return max(0, number - number % of)
