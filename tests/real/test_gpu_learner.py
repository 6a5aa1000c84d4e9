"""The learner of a run on GPUs sends its weights: two ranks over gloo, vLLM's transfer engines, fakes of GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrl.cluster.ports import free_port
from agentrl.config.loading import load, of_flags
from agentrl.config.resolve import resolve_run
from agentrl.records.folder import RunFolder, marked
from tests.real.gpu_ranks import Fault, Job, Sent
from tests.real.rank_processes import run_ranks
from tests.tiny import tiny_model
from verification.combinations import GPUS, SHAPE

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
RANKS = 2
DEADLINE_S, HANG_S, SLACK_S = 60.0, 8.0, 30.0
FAULTS: tuple[Fault, ...] = ("", "", "dies", "", "hangs", "")
ON_SHARED: tuple[Fault, ...] = (*FAULTS[:-1], "elsewhere", "")
LEARNER = {
    "learner.ranks": str(RANKS),
    "learner.zero_stage": "3",  # both ranks take part in gathering a tensor
    "learner.step_timeout_s": "60",
    "learner.threads": "1",
    "learner.lr": "1e-3",
    "learner.micro_batch_tokens": "64",
}


def sent(folder: Path, placement: str, engines: int, workers: int, faults: tuple[Fault, ...]) -> list[list[Sent]]:
    """What every rank says of every send."""
    flags = {
        **SHAPE,
        **LEARNER,
        "model.name": str(tiny_model(folder / "model")),
        "model.dtype": "float32",
        "engine.placement": placement,
        "engine.count": str(engines),
        "engine.tensor_parallel": str(workers),
    }
    config = resolve_run(load(None, of_flags(flags.items())), GPUS)
    job = Job(config, faults, DEADLINE_S, HANG_S, free_port(), folder, marked(RunFolder(folder)))
    found = run_ranks("tests.real.gpu_ranks", job, folder, RANKS, 360.0)
    assert None not in found, "a rank died"
    return found


@pytest.mark.parametrize(
    ("placement", "engines", "workers"), [("separate", 2, 2), ("colocate", 2, 1), ("colocate", 1, 2)]
)
def test_engines_hold_what_two_ranks_send_and_a_failure_or_a_deadline_leaves_no_rank_waiting(
    tmp_path: Path, placement: str, engines: int, workers: int
) -> None:
    faults = ON_SHARED if placement == "colocate" else FAULTS
    sender, other = sent(tmp_path, placement, engines, workers, faults)
    for fault, of_sender, of_other in zip(faults, sender, other, strict=True):
        assert of_other.said == "", fault
        assert of_other.loss == of_sender.loss, "the ranks are in the same collectives after the send"
        assert max(of_sender.seconds, of_other.seconds) < SLACK_S, fault
        if not fault:
            assert (of_sender.said, of_sender.differing) == ("", [])
            assert of_sender.received == [of_sender.declared] * (engines * workers)
    assert sender[2].said == "WeightsError: its process died while it received weights"
    assert sender[4].said == f"WeightsError: receiving weights: {engines} engines did not answer in 8 s"
    for calls in sender[1].calls:
        others = [call for call in calls if call != "load"]
        assert others == ["init_transfer", *["start_update", "finish_update"] * 2]
        assert placement == "separate" or calls.count("load") > 4, "several buckets for each of two sends"
    if placement == "colocate":
        assert sender[0].mapped == ["GPU-0", "GPU-1"], "each worker maps the memory of the rank on its own GPU"
        assert sender[5].said == (
            "WeightsError: ValueError: IPC handle not found for GPU UUID GPU-2. Available UUIDs: ['GPU-0', 'GPU-1']"
        )
