"""Which sample is run when, and which may be trained: groups, staleness, retries, the bound on what is outstanding."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import hashlib
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from agentrl.errors import DeadlineError, RunError, WorkerLostError
from agentrl.rollout.faults import Fault, commonest, fault_of
from agentrl.types import Batch, DropReason, EpisodeRequest, Group, SampleId, StopReason, Trajectory, Version, age

GroupScore = Callable[[Sequence[Trajectory]], Awaitable[Sequence[Trajectory]]]
MOST_SILENT_BATCHES = 8  # in a row without any answer: the tasks are at fault, and sampling others is no help


class AttemptLog(Protocol):
    """Where the scheduler writes down what becomes of every attempt, before it acts on it."""

    def dispatched(self, requests: Iterable[EpisodeRequest]) -> None:
        """These attempts are about to run."""

    def finished(self, trajectory: Trajectory) -> None:
        """This attempt came back; its trajectory is stored first."""

    def settled(self, attempts: Iterable[tuple[SampleId, int]], outcome: DropReason, reason: str) -> None:
        """These attempts end here, untrained."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The rules of one run. `tasks` is the length of the training split, None when it is endless.

    For each batch at most `max_filtered_batches` times as many groups as it holds are left out for want of a signal.
    """

    seed: int
    prompts: int
    group_size: int
    max_tokens: int
    max_turns: int
    temperature: float
    max_staleness: int
    on_stale: Literal["drop", "wait"]
    episode_timeout_s: float
    turn_timeout_s: float
    max_invalid: float
    min_valid: int = 2
    max_filtered_batches: int = 0
    steps: int = 1 << 30
    tasks: int | None = None
    split: str = "train"
    max_attempts: int = 3

    def capacity(self, trained: int) -> int:
        """Groups that may be outstanding after `trained` steps: in flight, buffered, or in the batch being trained."""
        return min(self.max_staleness + 1, self.steps - trained) * self.prompts

    def request(self, sample: SampleId, attempt: int) -> EpisodeRequest:
        """The request for an attempt; a later epoch over the same tasks draws fresh randomness."""
        epoch, task_index = self._place(sample.group)
        seed = self.seed if epoch == 0 else stable_hash(self.seed, "epoch", epoch)
        return EpisodeRequest(
            sample, attempt, self.split, task_index, seed, self.temperature, self.max_tokens, self.max_turns,
            self.episode_timeout_s, self.turn_timeout_s,
        )  # fmt: skip

    def _place(self, group: int) -> tuple[int, int]:
        if not self.tasks:
            return 0, group
        epoch, position = divmod(group, self.tasks)
        return epoch, shuffled(self.seed, epoch, self.tasks)[position]


def _without_group_rewards(trajectory: Trajectory) -> Trajectory:
    signals = tuple(signal for signal in trajectory.signals if signal.scope != "group")
    return dataclasses.replace(trajectory, signals=signals)


def stable_hash(*parts: object) -> int:
    """A 63-bit hash of the parts that is the same in every process."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@functools.lru_cache(maxsize=2)
def shuffled(seed: int, epoch: int, tasks: int) -> tuple[int, ...]:
    """The order in which an epoch visits the tasks: a permutation of range(tasks)."""
    request = list(range(tasks))
    random.Random(stable_hash(seed, "shuffle", epoch)).shuffle(request)
    return tuple(request)


@dataclass(slots=True)
class _OpenGroup:
    """A group whose members are not all back."""

    id: int
    dispatched_at: Version
    back: dict[int, Trajectory] = field(default_factory=dict)
    given_up: set[int] = field(default_factory=set)
    recorded: set[int] = field(default_factory=set)
    is_scored: bool = False

    @property
    def settled(self) -> int:
        return len(self.back) + len(self.given_up)

    @property
    def unrecorded(self) -> list[Trajectory]:
        """The members that are back and do not yet count as finished."""
        return [t for member, t in self.back.items() if member not in self.recorded]


class Scheduler:
    """Keeps `capacity` groups outstanding and hands out batches within the staleness bound.

    Runs on one asyncio loop. `dispatch` runs an order somewhere and raises WorkerLostError when its process died.
    `held` is the version the learner holds after `trained` steps; `forks` is where each incarnation of the run began
    (see `types.age`). `score_group`, when the env has group rewards, adds them to the finished members of a group;
    `has_signal`, when groups without one are to be left out, says whether a group has one.
    """

    def __init__(
        self,
        schedule: Schedule,
        dispatch: Callable[[EpisodeRequest], Awaitable[Trajectory]],
        journal: AttemptLog,
        held: Version,
        forks: tuple[int, ...] = (0,),
        next_group: int = 0,
        score_group: GroupScore | None = None,
        has_signal: Callable[[Group], bool] | None = None,
        trained: int = 0,
    ) -> None:
        self.schedule, self.held, self.forks, self.next_group = schedule, held, forks, next_group
        self._dispatch, self._journal, self._score_group = dispatch, journal, score_group
        self._has_signal, self._trained = has_signal, trained
        self._left_out = 0  # groups without a signal, since the last batch
        self._open: dict[int, _OpenGroup] = {}
        self._ready: dict[int, Group] = {}
        self._cut_off: collections.deque[tuple[_OpenGroup, list[EpisodeRequest]]] = collections.deque()
        self._in_training = 0
        self._in_flight: set[tuple[SampleId, int]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._window: collections.deque[Fault | None] = collections.deque(maxlen=schedule.prompts * schedule.group_size)
        self._unanswered: list[Fault] = []  # since the last sample with an answer
        self._dropped: list[tuple[DropReason, str, int]] = []
        self._restored_dropped = 0  # tokens, since the last batch
        self._running = False

    # --- what the run calls ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to sample."""
        self._running = True
        self._fill()

    def restore(
        self, trajectories: Iterable[Trajectory], attempts: dict[SampleId, int], unanswered: Iterable[SampleId] = ()
    ) -> None:
        """Take back groups that an earlier incarnation did not train; what they lack of finished samples is run first.

        `attempts` holds the last attempt number of every sample of those groups; the `unanswered` ones among them are
        not run again. Call before `start`.
        """
        groups = {group: _OpenGroup(group, self.held) for group in sorted({sample.group for sample in attempts})}
        for trajectory in trajectories:
            group = groups[trajectory.sample.group]
            self._note(trajectory)
            group.back[trajectory.sample.member] = trajectory
            group.recorded.add(trajectory.sample.member)
        for sample in unanswered:
            groups[sample.group].given_up.add(sample.member)
        for group in groups.values():
            settled = group.back.keys() | group.given_up
            samples = [SampleId(group.id, m) for m in range(self.schedule.group_size) if m not in settled]
            if samples:
                requests = [self.schedule.request(sample, attempts.get(sample, -1) + 1) for sample in samples]
                self._cut_off.append((group, requests))
            else:
                self._open[group.id] = group
                self._close_if_complete(group)

    async def next_batch(self, deadline_s: float) -> Batch:
        """The next `prompts` groups, every token at most `max_staleness` old. Raises DeadlineError, RunError."""
        try:
            async with asyncio.timeout(deadline_s):
                while (chosen := self._choose()) is None:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise DeadlineError(
                f"no batch of {self.schedule.prompts} groups within {deadline_s:.0f} s: {self.describe()}. "
                "Raise rollout.episode_timeout_s, or look at the newest trajectories with `agentrl show`."
            ) from None
        for group in chosen:
            del self._ready[group.id]
        self._in_training, self._left_out = len(chosen), 0
        dropped, self._dropped = tuple(self._dropped), []
        members = [trajectory for group in chosen for trajectory in group.trajectories]
        restored, self._restored_dropped = self._restored_dropped + self._restored_tokens(members), 0
        return Batch(tuple(chosen), dropped, tuple(map(self._age, members)), restored)

    def trained(self, version: Version) -> None:
        """The batch is trained, and `version` is what the learner and the engines hold now."""
        self.held, self._in_training = version, 0
        self._trained += 1
        self._fill()

    async def stop(self) -> None:
        """Cancel what is in flight; every open attempt is settled as cancelled. Finished samples stay finished."""
        self._running = False
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        unscored = [
            (t.sample, t.attempt) for g in self._open.values() for m, t in g.back.items() if m not in g.recorded
        ]
        self._settle([*self._in_flight, *unscored], "cancelled", "the run stopped")
        self._in_flight.clear()
        self._open.clear()

    @property
    def outstanding(self) -> int:
        """Groups in flight, buffered, or in the batch being trained."""
        return len(self._open) + len(self._ready) + self._in_training

    def describe(self) -> str:
        """One line on where everything is."""
        return f"{len(self._open)} groups in flight, {len(self._ready)} buffered, {self._in_training} in training"

    # --- dispatch -------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        while self._running and self.outstanding < self.schedule.capacity(self._trained):
            group, requests = self._cut_off.popleft() if self._cut_off else self._new_group()
            self._open[group.id] = group
            self._launch(requests)

    def _new_group(self) -> tuple[_OpenGroup, list[EpisodeRequest]]:
        group = _OpenGroup(self.next_group, self.held)
        self.next_group += 1
        return group, [self.schedule.request(SampleId(group.id, m), 0) for m in range(self.schedule.group_size)]

    def _launch(self, requests: list[EpisodeRequest]) -> None:
        self._journal.dispatched(requests)
        for request in requests:
            self._in_flight.add((request.sample, request.attempt))
            self._begin(self._run(request))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
        self._changed.set()

    async def _run(self, request: EpisodeRequest) -> None:
        try:
            trajectory = await self._dispatch(request)
        except WorkerLostError as error:
            self._in_flight.discard((request.sample, request.attempt))
            self._settle([(request.sample, request.attempt)], "lost", str(error))
            self._dropped.append(("lost", str(error), 0))
            self._retry(request)
            return
        self._in_flight.discard((request.sample, request.attempt))
        if trajectory.stop_reason in (StopReason.INFRA_ERROR, StopReason.MODEL_ERROR):
            self._record(trajectory)
            self._settle_faulty(trajectory)
            self._retry(request)
            return
        group = self._open[request.sample.group]
        group.back[request.sample.member] = trajectory
        if self._score_group is None:
            self._record(trajectory)
            group.recorded.add(request.sample.member)
        self._close_if_complete(group)

    def _record(self, trajectory: Trajectory) -> None:
        self._journal.finished(trajectory)
        self._note(trajectory)

    def _retry(self, request: EpisodeRequest) -> None:
        if request.attempt + 1 < self.schedule.max_attempts:
            self._launch([dataclasses.replace(request, attempt=request.attempt + 1)])
            return
        group = self._open[request.sample.group]
        group.given_up.add(request.sample.member)
        self._close_if_complete(group)

    # --- groups ---------------------------------------------------------------------------------------------

    def _close_if_complete(self, group: _OpenGroup) -> None:
        if group.settled < self.schedule.group_size:
            return
        if self._score_group is None or group.is_scored or not group.unrecorded:
            self._close(group)
        else:
            self._begin(self._score(group, self._score_group))

    async def _score(self, group: _OpenGroup, score_group: GroupScore) -> None:
        """Add the group rewards; the members count as finished only now.

        Members that an earlier incarnation scored keep the rewards that are stored.
        """
        members = group.unrecorded
        try:
            scored = await score_group([_without_group_rewards(t) for t in group.back.values()])
        except WorkerLostError as error:
            self._lose(group, members, str(error))
            return
        for trajectory in scored:
            if trajectory.sample.member not in group.recorded:
                self._record(trajectory)
                group.back[trajectory.sample.member] = trajectory
        group.is_scored = True
        self._close(group)

    def _lose(self, group: _OpenGroup, members: list[Trajectory], why: str) -> None:
        self._drop(members, "lost", why)
        for trajectory in members:
            del group.back[trajectory.sample.member]
        for trajectory in members:
            self._retry(self.schedule.request(trajectory.sample, trajectory.attempt))

    def _close(self, group: _OpenGroup) -> None:
        del self._open[group.id]
        members = [group.back[m] for m in sorted(group.back)]
        for trajectory in members:
            if not trajectory.is_trainable:
                self._settle_faulty(trajectory)
        self._admit(Group(group.id, tuple(t for t in members if t.is_trainable)))
        self._fill()
        self._changed.set()

    def _admit(self, group: Group) -> None:
        if len(group.trajectories) < self.schedule.min_valid:
            self._filter(group, "too few members to compare")
        elif self._is_left_out(group):
            self._left_out += 1
            self._filter(group, "no signal")
        else:
            self._ready[group.id] = group

    def _is_left_out(self, group: Group) -> bool:
        """Whether another group is to be sampled in the place of one without a signal."""
        if self._has_signal is None or self._left_out >= self.schedule.max_filtered_batches * self.schedule.prompts:
            return False
        return not self._has_signal(group)

    def _choose(self) -> list[Group] | None:
        """The groups of the next batch, or None while there are not enough."""
        if self._failure is not None:
            raise self._failure
        self._refuse_if_rotten()
        for group in list(self._ready.values()):
            self._drop_stale(group)
        self._fill()
        candidates = sorted(self._ready.values(), key=lambda group: group.id)
        if self.schedule.on_stale == "wait" or self.schedule.max_staleness == 0:
            # In order of dispatch: with `capacity` enforced at dispatch this alone keeps every sample within the bound.
            first_open = min(self._open, default=self.next_group)
            candidates = [group for group in candidates if group.id < first_open]
        enough = len(candidates) >= self.schedule.prompts
        return candidates[: self.schedule.prompts] if enough else None

    def _drop_stale(self, group: Group) -> None:
        stale = [t for t in group.trajectories if self._age(t) > self.schedule.max_staleness]
        if not stale:
            return
        fresh = tuple(t for t in group.trajectories if self._age(t) <= self.schedule.max_staleness)
        self._drop(stale, "stale", f"older than {self.schedule.max_staleness} updates")
        del self._ready[group.id]
        self._admit(Group(group.id, fresh))

    def _age(self, trajectory: Trajectory) -> int:
        return max((age(self.held, version, self.forks) for version in trajectory.versions), default=0)

    def _restored_tokens(self, trajectories: Iterable[Trajectory]) -> int:
        """The sampled tokens of an earlier incarnation: no version of it is ever used again."""
        now = self.held.incarnation
        return sum(t.action_tokens for t in trajectories if any(v.incarnation < now for v in t.versions))

    # --- settling -------------------------------------------------------------------------------------------

    def _filter(self, group: Group, reason: str) -> None:
        self._drop(group.trajectories, "filtered", reason)

    def _settle_faulty(self, trajectory: Trajectory) -> None:
        fault = fault_of(trajectory)
        assert fault is not None, "only what cannot be trained is settled so"
        self._drop([trajectory], fault.outcome, fault.reason)

    def _drop(self, trajectories: Iterable[Trajectory], outcome: DropReason, reason: str) -> None:
        trajectories = list(trajectories)
        self._dropped.extend((outcome, reason, t.action_tokens) for t in trajectories)
        self._restored_dropped += self._restored_tokens(trajectories)
        self._settle([(t.sample, t.attempt) for t in trajectories], outcome, reason)

    def _settle(self, attempts: list[tuple[SampleId, int]], outcome: DropReason, reason: str) -> None:
        if attempts:
            self._journal.settled(attempts, outcome, reason)

    # --- the run stops when too much of what comes back is invalid, or nothing is answered ------------------

    def _note(self, trajectory: Trajectory) -> None:
        fault = fault_of(trajectory)
        if fault is not None and fault.outcome == "unanswered":
            self._unanswered.append(fault)
            return
        self._unanswered.clear()
        self._window.append(fault)

    def _refuse_if_rotten(self) -> None:
        silent, most = len(self._unanswered), MOST_SILENT_BATCHES * (self._window.maxlen or 0)
        if silent >= most:
            raise RunError(f"the last {silent} samples are all unanswered. {commonest(self._unanswered)}")
        bad = [fault for fault in self._window if fault]
        if len(self._window) < (self._window.maxlen or 0) or len(bad) <= self.schedule.max_invalid * len(self._window):
            return
        raise RunError(
            f"{len(bad)} of the last {len(self._window)} samples are invalid (rollout.max_invalid = "
            f"{self.schedule.max_invalid:g}). {commonest(bad)}"
        )
