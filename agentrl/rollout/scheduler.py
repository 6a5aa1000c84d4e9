"""The scheduler: keeps groups outstanding, retries attempts, and hands out batches."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from types import MappingProxyType

from agentrl.errors import DeadlineError, WorkerLostError
from agentrl.rollout.curriculum import Curriculum, outcome_of
from agentrl.rollout.faults import FaultMonitor
from agentrl.rollout.groups import AttemptLog, GroupBuffer, OpenGroup, RolloutSettings, without_group_rewards
from agentrl.rollout.task_order import TaskSampler
from agentrl.types import (
    AttemptId,
    Batch,
    EpisodeRequest,
    Group,
    GroupTask,
    SampleId,
    StopReason,
    Trajectory,
    Version,
)
from agentrl.types.outcomes import GroupOutcome

GroupScore = Callable[[Sequence[Trajectory]], Awaitable[Sequence[Trajectory]]]


class Scheduler:
    """Keeps `capacity` groups outstanding and hands out batches within the staleness bound.

    Runs on one asyncio loop. `dispatch` runs an episode somewhere and raises WorkerLostError if its process dies.
    `version` is the version of the learner's weights after `trained` steps; `forks` is where each incarnation of the
    run began (see `types.age`). `history` holds the task of every group that was dispatched before, `outcomes` how such
    groups ended. `score_group` adds group rewards to the finished members of a group, if its environment has any;
    `has_signal` is given if groups without a signal are to be replaced.
    """

    def __init__(
        self,
        settings: RolloutSettings,
        dispatch: Callable[[EpisodeRequest], Awaitable[Trajectory]],
        log: AttemptLog,
        version: Version,
        forks: tuple[int, ...] = (0,),
        history: Mapping[int, GroupTask] = MappingProxyType({}),
        outcomes: Iterable[GroupOutcome] = (),
        score_group: GroupScore | None = None,
        has_signal: Callable[[Group], bool] | None = None,
        trained: int = 0,
    ) -> None:
        self.settings, self.next_group = settings, max(history, default=-1) + 1
        self._history, self._curriculum = history, Curriculum(settings.seed, outcomes, trained)
        is_visited = {"is_visited": self._curriculum.is_visited} if settings.has_curriculum else {}
        self._sampler = TaskSampler(settings.seed, settings.envs, history.values(), **is_visited)
        self._dispatch, self._log, self._score_group, self._trained = dispatch, log, score_group, trained
        self._restored: collections.deque[tuple[OpenGroup, list[EpisodeRequest]]] = collections.deque()
        self._open: dict[int, OpenGroup] = {}
        self._buffer = GroupBuffer(settings, log, version, forks, has_signal)
        self._in_training = 0  # groups
        self._in_flight: set[AttemptId] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._monitors = {
            plan.label: FaultMonitor(settings.samples_of(plan), settings.max_invalid, settings.named(plan))
            for plan in settings.envs
        }
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
        run again. Those that the resume has made too old, because it rolled back the weights that sampled them, run
        again in their groups. Call before `start`.
        """
        groups = {
            group: OpenGroup(group, self._history[group]) for group in sorted({sample.group for sample in attempts})
        }
        for trajectory in self._buffer.without_rolled_back(trajectories):
            group = groups[trajectory.sample.group]
            self._monitors[group.task.env].note(trajectory)
            group.back[trajectory.sample.member] = trajectory
            group.recorded.add(trajectory.sample.member)
        for sample in unanswered:
            groups[sample.group].given_up.add(sample.member)
        for group in groups.values():
            samples = [SampleId(group.id, m) for m in range(self.settings.members) if m not in group.settled]
            if samples:
                requests = [self.settings.request(group.task, s, attempts.get(s, -1) + 1) for s in samples]
                self._restored.append((group, requests))
            else:
                self._open[group.id] = group
                self._close_if_settled(group)

    async def next_batch(self, deadline_s: float) -> Batch:
        """Return the next `prompts` groups, every token at most `max_staleness` old.

        Raises RunError, and DeadlineError if no group is added to those that can be trained for `deadline_s`.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(deadline_s) as timeout:
                most = 0
                while (chosen := self._choose()) is None:
                    if self._buffer.progress > most:
                        most = self._buffer.progress
                        timeout.reschedule(loop.time() + deadline_s)
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise DeadlineError(
                f"no batch of {self.settings.prompts} groups, and none was added to it for {deadline_s:.0f} s: "
                f"{self._in_flight_words()}, "
                f"{len(self._buffer)} buffered, {self._in_training} in training. "
                "Raise rollout.episode_timeout_s, or look at the newest trajectories with `agentrl show`."
            ) from None
        self._in_training = len(chosen)
        return self._buffer.take(chosen)

    def trained(self, version: Version) -> None:
        """Continue after a batch was trained; learner and engines hold `version` now."""
        self._buffer.version, self._in_training = version, 0
        self._trained += 1
        self._curriculum.step = self._trained
        self._fill()

    def set_aside(self) -> dict[str, int]:
        """Return how many tasks the curriculum sets aside, by reason; {} without one."""
        return self._curriculum.set_aside() if self.settings.has_curriculum else {}

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

    def _in_flight_words(self) -> str:
        """'3 groups in flight', or with several environments '3 groups in flight (math 1, guess 2)'."""
        counts = collections.Counter(group.task.env for group in self._open.values())
        each = ", ".join(f"{env} {count}" for env, count in counts.items()) if len(self.settings.envs) > 1 else ""
        return f"{len(self._open)} groups in flight{f' ({each})' if each else ''}"

    def _choose(self) -> list[Group] | None:
        if self._failure is not None:
            raise self._failure
        for monitor in self._monitors.values():
            monitor.check()
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
        resting = self.settings.resting((group.task for group in self._open.values()), self._trained)
        group = OpenGroup(self.next_group, self._sampler.next(resting))
        self.next_group += 1
        samples = (SampleId(group.id, member) for member in range(self.settings.members))
        return group, [self.settings.request(group.task, sample, 0) for sample in samples]

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
            self._buffer.drop_lost(attempt, request.env, str(error))
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
        if self._rewards_of(group) is None:
            self._record(trajectory)
            group.recorded.add(request.sample.member)
        self._close_if_settled(group)

    def _record(self, trajectory: Trajectory) -> None:
        self._log.finished(trajectory)
        self._monitors[trajectory.env].note(trajectory)

    def _retry(self, request: EpisodeRequest) -> None:
        group = self._open[request.sample.group]
        group.failures[request.sample.member] += 1
        if group.failures[request.sample.member] < self.settings.max_attempts:
            self._launch([dataclasses.replace(request, attempt=request.attempt + 1)])
            return
        group.given_up.add(request.sample.member)
        self._close_if_settled(group)

    # --- groups ---------------------------------------------------------------------------------------------

    def _close_if_settled(self, group: OpenGroup) -> None:
        if len(group.settled) < self.settings.members:
            return
        rewards = self._rewards_of(group)
        if rewards is None or not group.unrecorded:
            self._close(group)
        else:
            self._spawn(self._score(group, rewards))

    def _rewards_of(self, group: OpenGroup) -> GroupScore | None:
        return self._score_group if self.settings.plan(group.task.env).has_group_rewards else None

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
            self._retry(self.settings.request(group.task, trajectory.sample, trajectory.attempt))

    def _close(self, group: OpenGroup) -> None:
        del self._open[group.id]
        members = [t for t in group.back.values() if not self.settings.is_baseline(t.sample)]
        if outcome := outcome_of(group.id, group.task, members, self._trained + 1):
            self._log.observed(self._curriculum.observe(outcome))
        self._buffer.add(group)
        self._fill()
        self._changed.set()
