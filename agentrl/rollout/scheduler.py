"""The scheduler: keeps groups outstanding, retries attempts, and hands out batches."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

from agentrl.errors import DeadlineError, WorkerLostError
from agentrl.rollout.faults import FaultMonitor
from agentrl.rollout.groups import AttemptLog, GroupBuffer, OpenGroup, RolloutSettings, without_group_rewards
from agentrl.types import AttemptId, Batch, EpisodeRequest, Group, SampleId, StopReason, Trajectory, Version

GroupScore = Callable[[Sequence[Trajectory]], Awaitable[Sequence[Trajectory]]]


class Scheduler:
    """Keeps `capacity` groups outstanding and hands out batches within the staleness bound.

    Runs on one asyncio loop. `dispatch` runs an episode somewhere and raises WorkerLostError if its process dies.
    `version` is the version of the learner's weights after `trained` steps; `forks` is where each incarnation of the
    run began (see `types.age`). `score_group` adds group rewards to the finished members of a group, if the environment
    has any; `has_signal` is given if groups without a signal are to be replaced.
    """

    def __init__(
        self,
        settings: RolloutSettings,
        dispatch: Callable[[EpisodeRequest], Awaitable[Trajectory]],
        log: AttemptLog,
        version: Version,
        forks: tuple[int, ...] = (0,),
        next_group: int = 0,
        score_group: GroupScore | None = None,
        has_signal: Callable[[Group], bool] | None = None,
        trained: int = 0,
    ) -> None:
        self.settings, self.next_group = settings, next_group
        self._dispatch, self._log, self._score_group, self._trained = dispatch, log, score_group, trained
        self._restored: collections.deque[tuple[OpenGroup, list[EpisodeRequest]]] = collections.deque()
        self._open: dict[int, OpenGroup] = {}
        self._buffer = GroupBuffer(settings, log, version, forks, has_signal)
        self._in_training = 0  # groups
        self._in_flight: set[AttemptId] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._monitor = FaultMonitor(settings.samples, settings.max_invalid)
        self._running = False

    # --- for the run ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to sample."""
        self._running = True
        self._fill()

    def restore(
        self, trajectories: Iterable[Trajectory], attempts: dict[SampleId, int], unanswered: Iterable[SampleId] = ()
    ) -> None:
        """Take back groups that an earlier incarnation did not train; their missing samples run first.

        `attempts` holds the last attempt number of every sample of those groups. Samples that were `unanswered` do not
        run again. Call before `start`.
        """
        groups = {group: OpenGroup(group) for group in sorted({sample.group for sample in attempts})}
        for trajectory in trajectories:
            group = groups[trajectory.sample.group]
            self._monitor.note(trajectory)
            group.back[trajectory.sample.member] = trajectory
            group.recorded.add(trajectory.sample.member)
        for sample in unanswered:
            groups[sample.group].given_up.add(sample.member)
        for group in groups.values():
            samples = [SampleId(group.id, m) for m in range(self.settings.members) if m not in group.settled]
            if samples:
                requests = [self.settings.request(sample, attempts.get(sample, -1) + 1) for sample in samples]
                self._restored.append((group, requests))
            else:
                self._open[group.id] = group
                self._close_if_settled(group)

    async def next_batch(self, deadline_s: float) -> Batch:
        """Return the next `prompts` groups, every token at most `max_staleness` old.

        Raises DeadlineError or RunError.
        """
        try:
            async with asyncio.timeout(deadline_s):
                while (chosen := self._choose()) is None:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise DeadlineError(
                f"no batch of {self.settings.prompts} groups within {deadline_s:.0f} s: {len(self._open)} groups in "
                f"flight, {len(self._buffer)} buffered, {self._in_training} in training. "
                "Raise rollout.episode_timeout_s, or look at the newest trajectories with `agentrl show`."
            ) from None
        self._in_training = len(chosen)
        return self._buffer.take(chosen)

    def trained(self, version: Version) -> None:
        """Continue after a batch was trained; learner and engines hold `version` now."""
        self._buffer.version, self._in_training = version, 0
        self._trained += 1
        self._fill()

    async def stop(self) -> None:
        """Cancel episodes in flight and settle every open attempt as cancelled. Finished samples stay finished."""
        self._running = False
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        unscored = [(t.sample, t.attempt) for group in self._open.values() for t in group.unrecorded]
        if self._in_flight or unscored:
            self._log.settled([*self._in_flight, *unscored], "cancelled", "the run stopped")
        self._in_flight.clear()
        self._open.clear()

    @property
    def outstanding(self) -> int:
        """Number of groups in flight, buffered, or in the batch in training."""
        return len(self._open) + len(self._buffer) + self._in_training

    def _choose(self) -> list[Group] | None:
        if self._failure is not None:
            raise self._failure
        self._monitor.check()
        self._buffer.drop_stale()
        self._fill()
        return self._buffer.choose(first_open=min(self._open, default=self.next_group))

    # --- attempts -------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Open groups up to the capacity."""
        while self._running and self.outstanding < self.settings.capacity(self._trained):
            group, requests = self._restored.popleft() if self._restored else self._new_group()
            self._open[group.id] = group
            self._launch(requests)

    def _new_group(self) -> tuple[OpenGroup, list[EpisodeRequest]]:
        group = OpenGroup(self.next_group)
        self.next_group += 1
        return group, [self.settings.request(SampleId(group.id, m), 0) for m in range(self.settings.members)]

    def _launch(self, requests: list[EpisodeRequest]) -> None:
        self._log.dispatched(requests)
        for request in requests:
            self._in_flight.add((request.sample, request.attempt))
            self._spawn(self._run(request))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
        self._changed.set()

    async def _run(self, request: EpisodeRequest) -> None:
        attempt = (request.sample, request.attempt)
        try:
            trajectory = await self._dispatch(request)
        except WorkerLostError as error:
            self._in_flight.discard(attempt)
            self._buffer.drop_lost(attempt, str(error))
            self._retry(request)
            return
        self._in_flight.discard(attempt)
        if trajectory.stop_reason in (StopReason.INFRA_ERROR, StopReason.MODEL_ERROR):
            self._record(trajectory)
            self._buffer.drop_faulty(trajectory)
            self._retry(request)
            return
        group = self._open[request.sample.group]
        group.back[request.sample.member] = trajectory
        if self._score_group is None:
            self._record(trajectory)
            group.recorded.add(request.sample.member)
        self._close_if_settled(group)

    def _record(self, trajectory: Trajectory) -> None:
        self._log.finished(trajectory)
        self._monitor.note(trajectory)

    def _retry(self, request: EpisodeRequest) -> None:
        if request.attempt + 1 < self.settings.max_attempts:
            self._launch([dataclasses.replace(request, attempt=request.attempt + 1)])
            return
        group = self._open[request.sample.group]
        group.given_up.add(request.sample.member)
        self._close_if_settled(group)

    # --- groups ---------------------------------------------------------------------------------------------

    def _close_if_settled(self, group: OpenGroup) -> None:
        if len(group.settled) < self.settings.members:
            return
        if self._score_group is None or not group.unrecorded:
            self._close(group)
        else:
            self._spawn(self._score(group, self._score_group))

    async def _score(self, group: OpenGroup, score_group: GroupScore) -> None:
        """Add the group rewards, and only then log the members as finished.

        Members that an earlier incarnation scored keep their stored rewards.
        """
        members = group.unrecorded
        try:
            scored = await score_group([without_group_rewards(t) for t in group.back.values()])
        except WorkerLostError as error:
            self._retry_members(group, members, str(error))
            return
        for trajectory in scored:
            if trajectory.sample.member not in group.recorded:
                self._record(trajectory)
                group.back[trajectory.sample.member] = trajectory
        self._close(group)

    def _retry_members(self, group: OpenGroup, members: list[Trajectory], reason: str) -> None:
        self._buffer.drop(members, "lost", reason)
        for trajectory in members:
            del group.back[trajectory.sample.member]
        for trajectory in members:
            self._retry(self.settings.request(trajectory.sample, trajectory.attempt))

    def _close(self, group: OpenGroup) -> None:
        del self._open[group.id]
        self._buffer.add(group)
        self._fill()
        self._changed.set()
