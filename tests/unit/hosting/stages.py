"""Episodes with a scripted engine whose tokens are bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agentrl.endpoint import Endpoint
from agentrl.engine.client import EngineClient
from agentrl.engine.scripted import Sampled, ScriptedEngine
from agentrl.engine.server import EngineServer
from agentrl.hosting.host import HostedEnv
from agentrl.hosting.remote import RemoteEnv
from agentrl.records.store import decode, encode
from agentrl.roles import Casting
from agentrl.rollout import byte_renderer
from agentrl.rollout.byte_renderer import ByteRenderer
from agentrl.rollout.episode import Driver, EpisodeRunner, EpisodeRuntime
from agentrl.types import EpisodeRequest, EpisodeSettings, SampleId, Signal, Timings, Trajectory

FILE = Path(__file__).with_name("mine.py")
CONTEXT = 4000


@dataclass(frozen=True)
class Stage:
    """Plays episodes of one environment with a scripted engine."""

    env: HostedEnv | RemoteEnv
    client: EngineClient
    runtime: EpisodeRuntime

    @classmethod
    async def of(
        cls, env: HostedEnv | RemoteEnv, script: Sequence[Any], castings: Mapping[str, Casting] = MappingProxyType({})
    ) -> Stage:
        engine = await ScriptedEngine.ready(
            script or (Sampled(),),
            encode=byte_renderer.encode,
            vocab_size=byte_renderer.VOCAB_SIZE,
            max_model_len=CONTEXT,
        )
        client = EngineClient([EngineServer(engine)], "tests")
        driver: Callable[[int], Driver] = env.driver
        if isinstance(env, HostedEnv):
            driver = partial(env.driver, castings=castings)
        else:
            env.cast(castings)
        return cls(env, client, EpisodeRuntime(driver, ByteRenderer(), client, CONTEXT, Endpoint(CONTEXT)))

    async def run(self, member: int = 0, index: int = 7, **settings: Any) -> Trajectory:
        everyday = replace(EpisodeSettings(1.0, 12, 0, 200.0, 100.0), **settings)
        request = EpisodeRequest(SampleId(0, member), 0, "train", index, 11, everyday)
        return await EpisodeRunner(request, self.runtime).run()

    async def close(self) -> None:
        await self.env.close()
        await self.runtime.endpoint.close()
        await self.client.close()


def stored(trajectory: Trajectory) -> Trajectory:
    """The trajectory as a run stores it, without what time and processes decide."""

    def untraced(signal: Signal) -> Signal:
        return signal if signal.valid else replace(signal, evidence=None)

    signals = tuple(map(untraced, trajectory.signals))
    return decode(encode(replace(trajectory, timings=Timings(), traceback="", signals=signals)))
