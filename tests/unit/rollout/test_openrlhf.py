"""Files that import openrlhf, with a package of that name on the path: one that works, and one that does not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrl.env import make_env, play, resolve
from agentrl.env.files.openrlhf import STAND_INS, AgentInstanceBase
from agentrl.errors import ConfigError
from agentrl.types import StopReason
from tests.unit.rollout.cases import check_law_1
from tests.unit.rollout.test_files import INSTANCE, MULTI, REWARD, options, run, values, written
from tests.unit.rollout.test_files import folder as folder

AGENT = """
from abc import ABC, abstractmethod
from copy import deepcopy


class AgentExecutorBase(ABC):
    @abstractmethod
    async def execute(self, prompt, label, sampling_params, max_length, hf_tokenizer, llm_engine, images=None): ...


class AgentInstanceBase(ABC):
    @abstractmethod
    def __init__(self, *args, **kwargs): ...

    async def reset(self, states, **kwargs):
        return states

    @abstractmethod
    async def step(self, states, **kwargs): ...


class MultiTurnAgentExecutor(AgentExecutorBase):
    def __init__(self, agent_instance_cls):
        assert issubclass(agent_instance_cls, AgentInstanceBase)
        self.instance = agent_instance_cls

    async def execute(self, prompt, label, sampling_params, max_length, hf_tokenizer, llm_engine, images=None):
        def ids_of(text):
            return hf_tokenizer(text=text, add_special_tokens=False, return_tensors="pt")["input_ids"][0].tolist()

        instance = self.instance()
        text = (await instance.reset({"observation": prompt, "label": label}))["observation"]
        tokens, ranges, rewards, done = ids_of(text), [], 0, False
        while not done and len(tokens) < max_length:
            sampling_params.max_tokens = max_length - len(tokens)
            request = await llm_engine.generate(tokens, deepcopy(sampling_params), multi_modal_data=None)
            output = request.outputs[0]
            ranges.append((len(tokens), len(tokens) + len(output.token_ids)))
            states = {"observation_text": text, "action_text": output.text, "label": label}
            step = await instance.step({**states, "sampling_params": sampling_params})
            assert [one[token].logprob <= 0 for one, token in zip(output.logprobs, output.token_ids)]
            rewards, done = rewards + step["rewards"].item(), step["done"]
            text += output.text + step["environment_feedback"]
            tokens = tokens + output.token_ids + ids_of(step["environment_feedback"])
            sampling_params = step.get("sampling_params") or sampling_params
        return {"prompt": prompt, "label": label, "images": images, "mm_train_inputs": None, "reward": rewards,
                "scores": step.get("scores", rewards), "observation_tokens": tokens, "action_ranges": ranges,
                "rollout_log_probs": [], "truncated": False, "extra_logs": {"theirs": 1, **step.get("extra_logs", {})}}
"""
GRADED = """
from openrlhf.utils import grade_answer


def reward_func(queries, prompts, labels):
    return [float(grade_answer(query, label)) for query, label in zip(queries, labels)]
"""
TEAM = "from openrlhf.utils.agent import Team"
LATE = INSTANCE.replace("        self.tries = 0", "        from openrlhf.utils.logging_utils import init_logger\n\n"
                        "        init_logger(__name__).debug('made')\n        self.tries = 0")  # fmt: skip
GUARDED = """
try:
    import no_such_library
    from openrlhf.utils.agent import Team
except ImportError:
    Team = None
"""


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No module of a test's openrlhf is seen by the next test."""
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "openrlhf"]:
        del sys.modules[name]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package `openrlhf` whose classes follow OpenRLHF's contract."""
    utils = tmp_path / "site/openrlhf/utils"
    utils.mkdir(parents=True)
    (utils.parent / "__init__.py").touch()
    (utils / "__init__.py").write_text("def grade_answer(given, label):\n    return label in given\n")
    (utils / "agent.py").write_text(AGENT)
    (utils / "logging_utils.py").write_text("from logging import getLogger as init_logger\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return utils


@pytest.fixture
def broken(installed: Path) -> Path:
    """The same as it is without pylatexenc: its package imports something that is not installed."""
    init = installed / "__init__.py"
    init.write_text("import no_such_latex_library\n" + init.read_text())
    return installed


def theirs() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] == "openrlhf"]


@pytest.mark.usefixtures("installed")
async def test_the_installed_executor_plays(folder: Path) -> None:
    trajectory, heard = await run(folder, MULTI, "five", "four")
    assert (trajectory.stop_reason, trajectory.error, trajectory.turns) == (StopReason.AGENT_DONE, "", 2)
    check_law_1(trajectory, heard.calls)
    assert (trajectory.reward, values(trajectory)["extra_logs.theirs"]) == (0.75, 1.0)


@pytest.mark.usefixtures("installed")
def test_it_plays_without_a_model(folder: Path) -> None:
    [episode] = play(make_env(written(folder, MULTI), **options(folder)), ["five", "four"])
    assert (episode.reward, episode.stop_reason) == (0.75, "agent_done")


@pytest.mark.usefixtures("installed")
async def test_an_instance_of_the_installed_class_needs_no_executor(folder: Path) -> None:
    trajectory, _ = await run(folder, INSTANCE, "five", "four")
    assert (trajectory.reward, "extra_logs.theirs" in values(trajectory)) == (0.75, False)
    assert not issubclass(resolve(written(folder, INSTANCE))._make.args[0], AgentInstanceBase)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("installed")
async def test_a_reward_file_uses_what_is_installed(folder: Path) -> None:
    trajectory, _ = await run(folder, GRADED, "four")
    assert (trajectory.error, trajectory.reward) == ("", 1.0)


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("code", [INSTANCE, MULTI])
async def test_the_stand_in_serves_where_the_installed_package_cannot_be_imported(folder: Path, code: str) -> None:
    trajectory, _ = await run(folder, code, "five", "four")
    assert (trajectory.error, trajectory.reward) == ("", 0.75)
    assert "extra_logs.theirs" not in values(trajectory)
    assert theirs() == []


@pytest.mark.usefixtures("broken")
def test_what_the_stand_in_lacks_is_refused_with_what_the_package_raised(folder: Path) -> None:
    error = (
        r"py:2: openrlhf is installed, but openrlhf.utils cannot be imported \(ModuleNotFoundError: No module named "
        r"'no_such_latex_library'\), and agentrl provides no openrlhf.utils.grade_answer; .*"
        "pip install --no-deps openrlhf pylatexenc"
    )
    with pytest.raises(ConfigError, match=error):
        resolve(written(folder, GRADED))


def test_an_older_package_without_a_class_is_replaced(folder: Path, installed: Path) -> None:
    (installed / "agent.py").write_text("class AgentInstance: ...\n")
    assert resolve(written(folder, MULTI)).__name__ == "AgentExecutor"


@pytest.mark.parametrize("package", ["", "installed", "broken"])
@pytest.mark.parametrize("code", [GUARDED, GUARDED.replace("    import no_such_library\n", "")])
def test_a_file_that_can_do_without_an_import_is_not_refused(
    folder: Path, package: str, code: str, request: pytest.FixtureRequest
) -> None:
    if package:
        request.getfixturevalue(package)
    assert resolve(written(folder, code + REWARD)).__name__ == "reward_func"


@pytest.mark.parametrize(
    "where", ["try:\n    {}\nexcept ImportError:\n    AgentInstanceBase = object", "if 1:\n    {}"]
)
def test_a_guarded_import_gets_the_stand_in(folder: Path, where: str) -> None:
    line = "from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor"
    assert line in MULTI
    env = resolve(written(folder, MULTI.replace(line, where.format(line))))
    assert env.__name__ == "AgentExecutor"


@pytest.mark.parametrize("package", ["", "installed", "broken"])
async def test_an_import_in_a_function_works_when_it_runs(
    folder: Path, package: str, request: pytest.FixtureRequest
) -> None:
    if package:
        request.getfixturevalue(package)
    trajectory, _ = await run(folder, LATE, "five", "four")
    assert (trajectory.error, trajectory.reward) == ("", 0.75)


async def test_a_function_that_imports_what_the_stand_in_lacks_is_told_what_to_do(folder: Path) -> None:
    late = "def reward_func(queries, prompts, labels):\n    from openrlhf.utils import grade_answer\n    return [1.0]\n"
    trajectory, _ = await run(folder, late, "four")
    [signal] = trajectory.signals
    assert "agentrl provides no openrlhf.utils.grade_answer" in signal.reason
    assert "pip install --no-deps openrlhf pylatexenc" in signal.reason


def test_a_file_after_one_with_an_import_in_a_function_is_still_checked(folder: Path) -> None:
    resolve(written(folder, LATE))
    assert set(theirs()) == set(STAND_INS)
    (folder / "other.py").write_text(TEAM)
    with pytest.raises(ConfigError, match=r"openrlhf is not installed, .* no openrlhf\.utils\.agent\.Team"):
        resolve(str(folder / "other.py"))
