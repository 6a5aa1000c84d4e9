"""The reward models of a run: asked for every finished episode, and replaced when the run serves them and they die."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from agentrl.cluster.placement import Placement
from agentrl.cluster.ray.actors import ActorHandle, ActorSpec, node_address
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.ray.start import is_local
from agentrl.cluster.signals import Stop, together
from agentrl.config.machine import thread_variables
from agentrl.config.models import tokenizer
from agentrl.config.schema import Config, RewardModelKeys
from agentrl.env.rewards import invalid
from agentrl.errors import AgentRLError, acatch
from agentrl.records.restarts import Restarts
from agentrl.reward_models import Query, RewardModel
from agentrl.reward_models.client import ServedRewardModel
from agentrl.reward_models.keys import Ask, client_of
from agentrl.reward_models.scorer import Scorer
from agentrl.reward_models.server import RewardServer, ServerLimits
from agentrl.reward_models.turns import Scoring, score_turns_of
from agentrl.roles.poster import MAX_SHOWN
from agentrl.rollout.boundary import with_signals
from agentrl.types import Signal, Trajectory, as_unicode

HEARTBEAT_S = 2.0
ANSWER_S = 120.0
END_S = 6.0


class RewardModels:
    """All reward models of a run. `policy` is the folder of the model that is trained.

    `ask` asks judges on engines. `devices(name)` are the GPUs that a served model shares with a learner rank. A served
    model that dies, hangs for `reward.score_timeout_s`, or scores nothing any more, is replaced, and its requests are
    sent again, once: one that two servers in a row do not answer fails. More than `engine.restarts` deaths stop the
    run.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: Config,
        policy: Path,
        restarts: Restarts,
        stop: Stop,
        ask: Ask,
        devices: Callable[[str], Awaitable[Sequence[str]]] | None = None,
    ) -> None:
        self._cluster, self._config, self._policy = cluster, config, policy
        self._restarts, self._stop, self._devices = restarts, stop, devices
        self._token = secrets.token_hex()
        timeout_s = config.reward.score_timeout_s
        replacement_s = timeout_s + HEARTBEAT_S + ANSWER_S + END_S + config.engine.start_timeout_s
        self._models = {
            keys.name: (keys, client_of(keys, timeout_s, self._token, replacement_s, ask))
            for keys in config.reward.models
        }
        self._servers = {keys.name: self._spawned(keys) for keys in config.reward.served}
        self._watches: list[asyncio.Task[None]] = []

    @property
    def is_serving(self) -> bool:
        """Whether the run serves a model itself."""
        return bool(self._servers)

    @property
    def shares_gpus(self) -> bool:
        """Whether the models that the run serves are on the GPUs of learner ranks."""
        return self._devices is not None

    async def start(self) -> None:
        """Wait until every served model answers, and replace those that die from then on."""
        await together(self._start(name) for name in self._servers)
        self._watches = [asyncio.create_task(self._watch(keys)) for keys in self._config.reward.served]
        for watch in self._watches:
            watch.add_done_callback(self._stop.if_failed)

    async def rewarded(self, trajectory: Trajectory) -> Trajectory:
        """Return a finished episode with the signals of all models; one that counts for nothing is not scored."""
        is_scored = trajectory.is_scored or trajectory.stop_reason.is_scored
        if not is_scored or not trajectory.action_tokens:
            return trajectory
        asked = (self._asked(keys, client, trajectory) for keys, client in self._models.values())
        return with_signals(trajectory, tuple(chain(*await asyncio.gather(*asked))))

    async def close(self) -> None:
        """End the served models and close the connections to all others. Idempotent."""
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*(self._end(actor) for actor in self._servers.values()))
        await asyncio.gather(*(client.aclose() for _, client in self._models.values()))

    # --- inside ---------------------------------------------------------------------------------------------

    async def _asked(self, keys: RewardModelKeys, client: Scoring, trajectory: Trajectory) -> tuple[Signal, ...]:
        """Return the signals of one model; an error that it raises makes them invalid, and ends no run."""
        outcome = await acatch(self._signals(keys, client, trajectory))
        if outcome.error is None:
            signals: tuple[Signal, ...] = outcome.value
            return signals
        first_line = f"{type(outcome.error).__name__}: {outcome.error}".partition("\n")[0]
        reason = as_unicode(first_line[:MAX_SHOWN])
        blank = Signal(keys.name, None, keys.weight, keys.scope, verifier=keys.url or keys.model or "")
        turns = range(trajectory.turns) if keys.scope == "turn" else (None,)
        return tuple(replace(invalid(blank, reason), turn=turn) for turn in turns)

    async def _signals(self, keys: RewardModelKeys, client: Scoring, trajectory: Trajectory) -> tuple[Signal, ...]:
        if keys.scope == "turn":
            return await score_turns_of(client, trajectory)
        is_openrlhf = isinstance(client, RewardModel) and client.is_openrlhf
        return (await client.score(self._query(trajectory) if is_openrlhf else trajectory.last_conversation),)

    def _query(self, trajectory: Trajectory) -> Query:
        """Return what OpenRLHF sends: the text of all tokens of the last sequence, and of those before the answer.

        The label is empty, as OpenRLHF's is without a `label_key`. Its own server reads neither prompt nor label; where
        another one needs the task's answer, a reward of the environment sends it in a `Query`.
        """
        segments = trajectory.sequences[-1].segments
        first = next(index for index, segment in enumerate(segments) if segment.is_action)
        ids = [[token for segment in part for token in segment.ids] for part in (segments, segments[:first])]
        text, prompt = (self._tokenizer.decode(part, skip_special_tokens=False) for part in ids)
        return Query(text, prompt)

    @cached_property
    def _tokenizer(self) -> Any:
        return tokenizer(self._policy)

    def _spawned(self, keys: RewardModelKeys) -> ActorHandle:
        config = self._config
        visible = {} if config.device == "cuda" else {"CUDA_VISIBLE_DEVICES": ""}
        spec = ActorSpec(
            f"reward model {keys.name}",
            make_served_model,
            (keys.model, self._token, config.reward.score_timeout_s, is_local()),
            env={"TOKENIZERS_PARALLELISM": "false", **thread_variables(config.reward.threads), **visible},
            place=Placement(config).reward_model(config.reward.served.index(keys)),
        )
        return self._cluster.spawn(spec)

    async def _start(self, name: str) -> None:
        actor, deadline_s = self._servers[name], self._config.engine.start_timeout_s
        devices = [list(await self._devices(name))] if self._devices else []
        self._cluster.register(await actor.make(*devices, deadline_s=deadline_s))
        _, client = self._models[name]
        assert isinstance(client, ServedRewardModel)
        client.move(await actor.call("start", deadline_s=deadline_s))

    async def _watch(self, keys: RewardModelKeys) -> None:
        """Replace the server of a model whenever it fails, as often as the run allows."""
        why = ""
        while not self._stop.is_called:
            await asyncio.sleep(HEARTBEAT_S)
            try:
                if why:
                    await self._replace(keys)
                await self._servers[keys.name].call("check", deadline_s=ANSWER_S)
                why = ""
            except AgentRLError as error:
                why = str(error)
                self._restarts.lost("reward models", {f"reward model {keys.name}": self._servers[keys.name].host}, why)

    async def _replace(self, keys: RewardModelKeys) -> None:
        await self._end(self._servers[keys.name])
        self._servers[keys.name] = self._spawned(keys)
        await self._start(keys.name)
        self._restarts.back(f"reward model {keys.name}")

    @staticmethod
    async def _end(actor: ActorHandle) -> None:
        with suppress(AgentRLError):
            await actor.call("close", deadline_s=END_S)
        actor.kill()


def make_served_model(
    model: str, token: str, timeout_s: float, is_local: bool, devices: Sequence[str] = ()
) -> ServedModel:
    """Load a reward model to serve; `devices` are the GPUs that it shares with a learner rank."""
    if devices:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    from agentrl.reward_models.classifier import Classifier  # the driver process imports no torch

    return ServedModel(Classifier(model), token, timeout_s, is_local)


class ServedModel:
    """The server of a reward model, alone in its process; `is_local` if it listens on the loopback address."""

    def __init__(self, scorer: Scorer, token: str, timeout_s: float, is_local: bool) -> None:
        self._server, self._is_local = RewardServer(scorer, token, ServerLimits(timeout_s=timeout_s)), is_local
        self._listening = AsyncExitStack()

    async def start(self) -> str:
        """Start to serve; returns the address."""
        host = "127.0.0.1" if self._is_local else node_address()
        port = await self._listening.enter_async_context(self._server.listening(host))
        return f"http://{host}:{port}"

    async def check(self) -> None:
        """Raise AgentRLError if the model scores nothing any more, or a batch takes longer than a request may."""
        self._server.check()

    async def close(self) -> None:
        """Answer what is under way and stop. Idempotent."""
        await self._listening.aclose()
