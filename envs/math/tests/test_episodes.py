"""Episodes without tools: many at once, cancelled wherever they wait, and as twins. No tool of theirs can hang."""

import json
from pathlib import Path

import pytest
from agentrl_math import MathEnv
from agentrl_math.extract import from_gold

from agentrl.env import testing


@pytest.fixture(autouse=True)
async def closed():
    async with testing.no_leaks():
        yield


@pytest.fixture
def make(tmp_path):
    """Makes environments of one file."""
    rows = [{"question": f"What is {i} halves?", "answer": str(i / 2)} for i in range(60)]
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return lambda: MathEnv(data=str(path))


def roundabout(env, task):
    """The gold in a form that only a worker of the verifier can read."""
    return [rf"\boxed{{{from_gold(task.data.answer)}+\sqrt{{2}}-\sqrt{{2}}}}"]


def some(env, task):
    """Two that are right, by a worker and without, and one that is wrong."""
    return [roundabout(env, task), env.oracle(task), env.canaries(task)["junk"]]


def is_running(pid):
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("count", [1, 64, 1000])
async def test_episodes_at_once_do_not_touch_each_other(make, count):
    await testing.check_concurrent(make, count, some)


async def test_an_episode_cancelled_wherever_it_waits_leaves_no_task_and_no_process(make):
    cuts, pids = [], set()
    async for cut in testing.cancel_everywhere(make, roundabout):
        cuts.append(cut)
        if cut.passed:
            pids |= {*cut.env.pool.pids}
    assert testing.model_turns(cuts) == [1, 2, 3]  # the reset, the turn, the signal
    assert testing.waits(cuts) >= {(0, "EnvDriver.task"), (2, "averify")}
    assert pids
    assert not any(map(is_running, pids))


@pytest.mark.parametrize("level", [1, 3])
async def test_interleaved_twins_see_the_same(level):
    one, member, other, others_member = await testing.check_twins(lambda: MathEnv(level=level), tasks=10)
    assert one == member
    assert other == others_member
    assert one != other


async def test_interleaved_twins_are_graded_alike_by_the_workers(make):
    first, *others = await testing.check_twins(make, roundabout)
    assert others == [first] * 3  # the rows are a list: the seed of a run orders them elsewhere
