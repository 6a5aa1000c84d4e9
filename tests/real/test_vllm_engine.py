"""vLLM keeps the Engine contract: the shared suite, and what only a real engine process can show."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from agentrl.engine.protocol import Engine
from agentrl.engine.vllm.engine import VllmEngine
from tests.conformance.engine import EngineConformance, publish
from tests.real.vllm_kit import UNCLOSED, VllmKit, model_at, spec, without_eos

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings(UNCLOSED),
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> VllmKit:
    return VllmKit(without_eos(model_at(tmp_path_factory.mktemp("model"))), tmp_path_factory.mktemp("scratch"))


@pytest.fixture(scope="module", autouse=True)
def faults_can_be_sent() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")
        yield


async def started(kit: VllmKit) -> VllmEngine:
    engine = VllmEngine(spec(kit.trainer.folder))
    await engine.start(240.0)
    return engine


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine(kit: VllmKit) -> AsyncIterator[Engine]:
    engine = await started(kit)
    await publish(engine, kit)
    yield engine
    await engine.close()


@pytest_asyncio.fixture(loop_scope="module")
async def disposable_engine(kit: VllmKit) -> AsyncIterator[Engine]:
    engine = await started(kit)
    yield engine
    await engine.close()


class TestVllmEngine(EngineConformance):
    """The suite."""
