"""An adapter on a real vLLM engine: it serves exactly what was published, under a new id for each version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaForCausalLM

from agentrl.config.schema import LoraSection
from agentrl.engine.vllm.engine import VllmEngine
from agentrl.engine.vllm.settings import VllmSpec
from agentrl.learner.lora import WEIGHTS, adapter_state, add_adapters, write_adapter
from agentrl.types import Completion, Prompt, Sampling, Version
from agentrl.weights.canary import FLOAT32_TOLERANCE, LogprobCanary
from agentrl.weights.publisher import Publisher
from agentrl.weights.staging import StagedBucket, stage_adapter
from agentrl.weights.transfer import StagedTransfer
from tests.real.vllm_kit import DEADLINE_S, ENGINE, MAX_LEN, UNCLOSED, model_at
from tests.unit.weights.recording import Fleet

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings(UNCLOSED),
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]
CANARY = tuple(range(20, 84))
TARGETS = ("all-linear", "self_attn.q_proj,layers.0.mlp.down_proj")  # vLLM wraps the other down_proj too


class Trainer:
    """Adapters on a frozen model, and every version of them."""

    def __init__(self, folder: Path, scratch: Path, targets: str) -> None:
        self.folder, self.scratch, self.version = folder, scratch, Version(0, -1)
        self.model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.lora = LoraSection(rank=4, alpha=8, publish="adapter", targets=targets)
        add_adapters(self.model, self.lora)
        self._states: dict[Version, dict[str, Tensor]] = {}
        self._random = torch.Generator().manual_seed(0)

    def step(self) -> None:
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.requires_grad:
                    parameter += 0.1 * torch.randn(parameter.shape, generator=self._random)
        self.version = Version(0, self.version.n + 1)
        self._states[self.version] = {name: value.clone() for name, value in self.model.state_dict().items()}

    def stage(self) -> StagedBucket:
        named = list(adapter_state(self.model, lambda tensor: tensor.detach()))
        return stage_adapter(named, self.scratch, partial(write_adapter, self.model, named, self.folder))

    def logprobs(self, ids: Sequence[int], version: Version | None = None) -> list[float]:
        """Logprobs of ids[1:] by transformers and peft, under any version."""
        self.model.load_state_dict(self._states[version or self.version])
        with torch.no_grad():
            logits = self.model(torch.tensor([list(ids)])).logits[0, :-1]
        self.model.load_state_dict(self._states[self.version])
        chosen = torch.log_softmax(logits, -1).gather(1, torch.tensor(ids[1:]).unsqueeze(1))
        return [float(value) for value in chosen.squeeze(1)]


@pytest.fixture(scope="module", params=TARGETS)
def trainer(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Trainer:
    folder, scratch = (tmp_path_factory.mktemp(name) for name in ("model", "scratch"))
    return Trainer(model_at(folder), scratch, request.param)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine(trainer: Trainer) -> AsyncIterator[VllmEngine]:
    engine = VllmEngine(VllmSpec(str(trainer.folder), ENGINE, "float32", MAX_LEN, lora=trainer.lora))
    await engine.start(240.0)
    yield engine
    await engine.close()


async def publish(
    trainer: Trainer, engine: VllmEngine, change: Callable[[StagedBucket], None] = lambda staged: None
) -> tuple[float, dict[int, str]]:
    """Train and publish; returns the canary's difference, and why which engine must be replaced."""

    async def staged(version: Version, deadline_s: float) -> AsyncGenerator[StagedBucket]:
        bucket = trainer.stage()
        change(bucket)
        yield bucket

    async def score(ids: tuple[int, ...], deadline_s: float) -> Sequence[float]:
        return trainer.logprobs(ids)

    trainer.step()
    fleet = Fleet(engine)
    canary = LogprobCanary(CANARY, "float32")
    timings = await Publisher(fleet, StagedTransfer(staged), DEADLINE_S, canary, score).publish(trainer.version)
    return timings.canary, fleet.replaced


async def test_requests_in_flight_continue_under_each_new_adapter_and_name_it(
    engine: VllmEngine, trainer: Trainer
) -> None:
    async def sample(seed: int) -> Completion:
        return await engine.generate(Prompt((5, 6, 7, seed)), Sampling(400, seed=seed), DEADLINE_S)

    assert await publish(trainer, engine) == (pytest.approx(0, abs=FLOAT32_TOLERANCE), {})
    requests = [asyncio.create_task(sample(seed)) for seed in range(8, 16)]
    for _ in range(3):  # one more than vLLM keeps
        await engine.generate(Prompt((5,)), Sampling(1), DEADLINE_S)
        assert (await publish(trainer, engine))[1] == {}
    completions = await asyncio.gather(*requests)
    assert max(len(completion.versions) for completion in completions) == 4
    for seed, completion in zip(range(8, 16), completions, strict=True):
        assert (len(completion.ids), completion.finish_reason) == (400, "length")
        assert [span.start for span in completion.versions[1:]] == [span.end for span in completion.versions[:-1]]
        for span in completion.versions:
            expected = trainer.logprobs((5, 6, 7, seed, *completion.ids), span.version)[3:]
            sampled = list(completion.logprobs[span.start : span.end])
            assert sampled == pytest.approx(expected[span.start : span.end], abs=FLOAT32_TOLERANCE)


async def test_what_is_staged_is_an_adapter_that_peft_loads(trainer: Trainer) -> None:
    trainer.step()
    staged = trainer.stage()
    base = LlamaForCausalLM.from_pretrained(trainer.folder, dtype=torch.float32)
    loaded = PeftModel.from_pretrained(base, staged.load["adapter"])
    ids = torch.tensor([CANARY])
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, trainer.model(ids).logits)
    staged.discard()


def of_another_value(staged: StagedBucket) -> None:
    file = Path(staged.load["adapter"]) / WEIGHTS
    tensors = load_file(file)
    tensors[min(tensors)][0, 0] += 1e-6
    save_file(tensors, file)


def without_a_tensor(staged: StagedBucket) -> None:
    file = Path(staged.load["adapter"]) / WEIGHTS
    tensors = load_file(file)
    layer = min(tensors).partition("lora_")[0]
    save_file({name: tensor for name, tensor in tensors.items() if not name.startswith(layer)}, file)


@pytest.mark.parametrize(
    ("fault", "said"), [(of_another_value, "changed on the way"), (without_a_tensor, "did not arrive")]
)
async def test_an_adapter_that_did_not_arrive_whole_is_never_served(
    engine: VllmEngine, trainer: Trainer, fault: Callable[[StagedBucket], None], said: str
) -> None:
    _, replaced = await publish(trainer, engine, fault)
    assert said in replaced[0]
    assert await engine.version() is None
    engine._fault = ""  # for the next test: an engine of a run is restarted
