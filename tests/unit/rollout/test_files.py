"""Files without an environment class train: agent functions, and agents and rewards written to OpenRLHF's contract."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentrl.engine.scripted import ScriptedEngine
from agentrl.env import EnvDriver, env_config, folders_apart, play, resolve
from agentrl.env.dry_run.tasks import overlap, read_tasks
from agentrl.env.dry_run.verdict import DryRunRequest, verdict
from agentrl.env.files.openrlhf import MultiTurnAgentExecutor
from agentrl.errors import AgentRLError, ConfigError
from agentrl.rollout.worker import RolloutWorker
from agentrl.types import Signal, StopReason, Trajectory
from tests.unit.rollout.cases import Listening, check_law_1, request
from tests.unit.rollout.templates import encode, tokenizer

INSTANCE = """
import torch
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor


class Quiz(AgentInstanceBase):
    def __init__(self, *args, **kwargs):
        self.tries = 0

    async def reset(self, states, **kwargs):
        return {"observation": "<|im_start|>user\\n" + states["observation"] + "<|im_end|>\\n"}

    async def step(self, states, **kwargs):
        self.tries += 1
        right = states["action_text"] == states["label"]
        return {
            "rewards": torch.tensor(1.0 if right else -0.25),
            "scores": torch.tensor([float(right)]),
            "environment_feedback": "" if right else "<|im_start|>user\\nNo.<|im_end|>\\n",
            "done": right,
            "sampling_params": states["sampling_params"],
            "extra_logs": {"tries": torch.tensor(self.tries), "note": "text"},
        }
"""
MULTI = (
    INSTANCE
    + """

class AgentExecutor(MultiTurnAgentExecutor):
    def __init__(self):
        super().__init__(Quiz)
"""
)
EXECUTOR = """
from copy import deepcopy
from openrlhf.utils.agent import AgentExecutorBase


class AgentExecutor(AgentExecutorBase):
    async def execute(self, prompt, label, sampling_params, max_length, hf_tokenizer, llm_engine):
        params = deepcopy(sampling_params)
        params.stop = ["END"]
        ids = hf_tokenizer.encode(prompt, add_special_tokens=False)
        output = (await llm_engine.generate(ids, params)).outputs[0]
        assert [len(one) for one in output.logprobs] == [1] * len(output.token_ids)
        ids = ids + output.token_ids
        CHANGE
        return {"reward": float(output.text.strip() == label), "observation_tokens": ids,
                "action_ranges": [(len(ids) - len(output.token_ids), len(ids))], "extra_logs": {}}
"""
REWARD = """
import torch


def reward_func(queries, prompts, labels, **kwargs):
    right = [query[len(prompt):].startswith(label) for query, prompt, label in zip(queries, prompts, labels)]
    assert len(queries) == 1 and queries[0].endswith("<|im_end|>")
    reward = torch.tensor(right).float()
    return {"rewards": reward, "scores": reward, "extra_logs": {"length": torch.tensor([len(queries[0]), -1])}}
"""
FUNCTION = """
async def agent(task, ctx, model):
    completion = await model.client.chat.completions.create(
        model=model.name, messages=[{"role": "user", "content": task.data["prompt"]}]
    )
    text = completion.choices[0].message.content
    return {"reward": float(text == task.data["label"]), "length": len(text), "text": text}
"""
ROW = {"prompt": "2 + 2?", "label": "four"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    return tmp_path


def written(folder: Path, code: str) -> str:
    (folder / "agent_func.py").write_text(code)
    return str(folder / "agent_func.py")


def options(folder: Path, **more: Any) -> dict[str, Any]:
    rows = str(folder / "rows.jsonl")
    return {"data": rows, "data_heldout": rows, **more}


async def run(folder: Path, code: str, *script: Any, **more: Any) -> tuple[Trajectory, Listening]:
    changes = {key: more.pop(key) for key in ("max_turns", "max_tokens") if key in more}
    engine = await ScriptedEngine.ready(
        script, encode=lambda text: encode(tokenizer(), text), vocab_size=len(tokenizer())
    )
    heard = Listening(engine)
    worker = RolloutWorker(written(folder, code), options(folder, **more), str(folder / "model"), heard, 4000)
    try:
        return await worker.run(request(task_index=0, **{"max_tokens": 200, **changes})), heard
    finally:
        await worker.close()


def values(trajectory: Trajectory) -> dict[str, Any]:
    return {signal.name: signal.value for signal in trajectory.signals}


async def test_a_prompt_that_is_too_long_is_told_as_such(folder: Path) -> None:
    code = MULTI.replace('states["observation"] +', 'states["observation"] * 2000 +')
    trajectory, heard = await run(folder, code, "four")
    assert (trajectory.stop_reason, heard.calls) == (StopReason.CONTEXT_OVERFLOW, [])
    assert "maximum context length is 4000 tokens" in trajectory.error


async def test_the_engine_of_another_episode_is_refused_by_name(folder: Path) -> None:
    kept = "self.kept = getattr(self, 'kept', llm_engine)\n        output = (await self.kept.generate"
    code = EXECUTOR.replace("CHANGE", "pass").replace("output = (await llm_engine.generate", kept)
    engine = await ScriptedEngine.ready(
        ["four", "four"], encode=lambda text: encode(tokenizer(), text), vocab_size=len(tokenizer())
    )
    worker = RolloutWorker(written(folder, code), options(folder), str(folder / "model"), Listening(engine), 4000)
    try:
        own, other = [await worker.run(request(task_index=0, max_tokens=200)) for _ in range(2)]
    finally:
        await worker.close()
    assert (own.error, own.is_valid) == ("", True)
    assert "was called for another episode than its own" in other.error


@pytest.mark.parametrize("code", [INSTANCE, MULTI])
async def test_an_instance_plays_until_it_is_done(folder: Path, code: str) -> None:
    trajectory, heard = await run(folder, code, "five", "four", input_template="Q: {}")
    assert (trajectory.stop_reason, trajectory.error, trajectory.turns) == (StopReason.AGENT_DONE, "", 2)
    check_law_1(trajectory, heard.calls)
    [sequence] = trajectory.sequences
    text = "<|im_start|>user\nQ: 2 + 2?<|im_end|>\nfive<|im_end|><|im_start|>user\nNo.<|im_end|>\nfour<|im_end|>"
    assert tokenizer().decode(sequence.ids) == text
    found = values(trajectory)
    assert (trajectory.reward, found["reward"], found["scores"]) == (0.75, 0.75, 1.0)
    assert (found["extra_logs.tries"], found["extra_logs.note"]) == (2.0, None)
    assert trajectory.is_trainable


async def test_what_is_no_number_in_extra_logs_costs_no_sample(folder: Path) -> None:
    trajectory, _ = await run(folder, INSTANCE, "four")
    [note] = [signal for signal in trajectory.signals if signal.name == "extra_logs.note"]
    assert (note.valid, note.weight, trajectory.is_valid) == (False, 0.0, True)


async def test_an_instance_ends_where_its_context_is_full(folder: Path) -> None:
    trajectory, heard = await run(folder, INSTANCE.replace('"No.', '"' + "No. " * 400), "five")
    assert (trajectory.stop_reason, trajectory.error) == (StopReason.AGENT_DONE, "")
    assert len(heard.calls) > 1
    check_law_1(trajectory, heard.calls)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ('"rewards": torch.tensor(1.0 if right else -0.25),', "step returned no rewards"),
        ('"sampling_params": states["sampling_params"],', "top_p=0.9"),
        ('"scores": torch.tensor([float(right)]),', "environment_images"),
    ],
)
async def test_what_a_run_cannot_do_is_refused_by_name(folder: Path, change: str, error: str) -> None:
    instead = {
        "step returned no rewards": "",
        "top_p=0.9": '"sampling_params": type("P", (), {"top_p": 0.9, "max_tokens": 5}),',
        "environment_images": '"environment_images": ["x.png"],',
    }[error]
    trajectory, _ = await run(folder, INSTANCE.replace(change, instead), "five")
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.ENV_ERROR, False)
    assert error in trajectory.error
    assert "docs/migrate-from-openrlhf.md" in trajectory.error


@pytest.mark.parametrize(
    ("change", "instead", "error"),
    [
        ("async def step", "def step", "cannot be awaited: write async def step"),
        ("async def reset", "def reset", "cannot be awaited: write async def reset"),
        ('return {"observation":', 'return {"observations":', "Quiz.reset returned no observation"),
        ('return {"observation":', "return None and {1:", "Quiz.reset returned None; return a dict with 'observation'"),
        ('return {"observation":', 'return {"observation": 5, "text":', "Quiz.reset returned 5 as 'observation'"),
        ('"environment_feedback": ""', '"environment_feedback": []', "Quiz.step returned [] as 'environment_feedback'"),
        ("torch.tensor(1.0 if right else -0.25)", "torch.ones(2)", "[1.0, 1.0]: 2 rewards for 1 answer"),
        ("torch.tensor(1.0 if right else -0.25)", "'high'", "'high', which is not a number"),
        ("torch.tensor(1.0 if right else -0.25)", "None", "Quiz.step returned 'rewards' that is None"),
        ("torch.tensor(1.0 if right else -0.25)", "10**400", "which is larger than any float"),
        ('"done": right', '"done": torch.tensor([True, False])', "Quiz.step returned 'done' [True, False]"),
        ('"done": right', '"done": torch.tensor([])', "Quiz.step returned 'done' []"),
        ('"done": right', '"done": right, "environment_images": torch.zeros(3)', "the policy reads text only"),
        ('states["sampling_params"]', '{"max_tokens": 1}', "Quiz.step returned 'sampling_params' {'max_tokens': 1}"),
    ],
)
async def test_what_an_instance_returns_is_checked_by_name(folder: Path, change: str, instead: str, error: str) -> None:
    assert change in INSTANCE
    trajectory, _ = await run(folder, INSTANCE.replace(change, instead), "four")
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.ENV_ERROR, False)
    assert error in trajectory.error
    assert "docs/migrate-from-openrlhf.md" in trajectory.error


async def test_a_method_may_be_wrapped_if_what_it_returns_can_be_awaited(folder: Path) -> None:
    wrapped = INSTANCE.replace("    async def step(", "    @wrapped\n    async def step(").replace(
        "\n\nclass", "\n\ndef wrapped(method):\n    return lambda *values: method(*values)\n\n\nclass", 1
    )
    trajectory, _ = await run(folder, wrapped, "four")
    assert (trajectory.error, trajectory.reward) == ("", 1.0)


async def test_an_executor_samples_through_the_engine(folder: Path) -> None:
    trajectory, heard = await run(folder, EXECUTOR.replace("CHANGE", "pass"), "fourENDmore")
    assert (trajectory.stop_reason, trajectory.error, values(trajectory)) == (StopReason.AGENT_DONE, "", {"reward": 1})
    check_law_1(trajectory, heard.calls)
    prompt = tokenizer().apply_chat_template(
        [{"role": "user", "content": "2 + 2?"}], tokenize=False, add_generation_prompt=True
    )
    assert tokenizer().decode(heard.calls[0][0].ids) == prompt
    assert heard.calls[0][1].stop == ("END",)


SINGLE = """
from openrlhf.utils.agent import SingleTurnAgentExecutor


class AgentExecutor(SingleTurnAgentExecutor):
    async def execute(self, prompt, label, **rest):
        result = await super().execute(prompt=prompt, label=label, **rest)
        text = rest["hf_tokenizer"].decode(result["observation_tokens"], skip_special_tokens=True)
        return {**result, "reward": float(text.endswith(label))}
"""


async def test_an_executor_of_one_turn_adds_its_reward(folder: Path) -> None:
    trajectory, heard = await run(folder, SINGLE, "four")
    assert (trajectory.error, values(trajectory)) == ("", {"reward": 1.0})
    check_law_1(trajectory, heard.calls)
    trajectory, _ = await run(folder, SINGLE, "four", max_tokens=2)
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.MAX_TOKENS, True)


async def test_actions_that_were_not_sampled_are_refused(folder: Path) -> None:
    trajectory, _ = await run(folder, EXECUTOR.replace("CHANGE", "ids[-1] += 1"), "four")
    assert trajectory.stop_reason is StopReason.ENV_ERROR
    assert "action_ranges that are not" in trajectory.error


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("(len(ids) - len(output.token_ids), len(ids))]", "returned action_ranges (1, 2); return pairs (start, end)"),
        (
            "ids = hf_tokenizer.encode(prompt, add_special_tokens=False)",
            "got the id 1000000; the tokenizer has ids from",
        ),
        ("hf_tokenizer.encode(prompt, add_special_tokens=False)", "got an empty prompt"),
        ("hf_tokenizer.encode(prompt, add_special_tokens=False)", "got 'text' as prompt_token_ids"),
        ('["END"]', "stop='': '' is not a text to stop at"),
        ('["END"]', "stop=['END', 5]: 5 is not a text to stop at"),
    ],
)
async def test_what_an_executor_gives_is_checked_by_name(folder: Path, change: str, error: str) -> None:
    instead = {
        "returned action_ranges (1, 2); return pairs (start, end)": "(1, 2)][0]",
        "got the id 1000000; the tokenizer has ids from": "ids = [1000000]",
        "got an empty prompt": "[]",
        "got 'text' as prompt_token_ids": "'text'",
        "stop='': '' is not a text to stop at": "''",
        "stop=['END', 5]: 5 is not a text to stop at": "['END', 5]",
    }[error]
    code = EXECUTOR.replace("CHANGE", "pass")
    assert change in code
    trajectory, _ = await run(folder, code.replace(change, instead), "four")
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.ENV_ERROR, False)
    assert error in trajectory.error


@pytest.mark.parametrize("made", ["partial(score, 'four')", "Scorer()"])
async def test_a_reward_function_is_anything_that_is_called_as_one(folder: Path, made: str) -> None:
    code = (
        "from functools import partial\n\ndef score(wanted, queries, prompts, labels):\n"
        "    return [float(wanted in query) for query in queries]\n\nclass Scorer:\n"
        "    def __call__(self, queries, prompts, labels):\n        return score('four', queries, prompts, labels)\n\n"
        f"reward_func = {made}\n"
    )
    trajectory, _ = await run(folder, code, "four")
    assert (trajectory.error, trajectory.reward) == ("", 1.0)


@pytest.mark.parametrize("template", ["Question:", "{prompt}", "{} {}", "{", "{:d}"])
def test_a_template_that_cannot_hold_a_prompt_is_refused(folder: Path, template: str) -> None:
    env_class = resolve(written(folder, REWARD))
    with pytest.raises(ConfigError, match=r"must have one \{\} for the prompt"):
        env_config(env_class, options(folder, input_template=template))


@pytest.mark.parametrize(("answer", "reward"), [("four", 1.0), ("five", 0.0)])
async def test_a_reward_file_scores_one_answer(folder: Path, answer: str, reward: float) -> None:
    trajectory, heard = await run(folder, REWARD, answer)
    assert (trajectory.reward, trajectory.stop_reason, trajectory.error) == (reward, StopReason.AGENT_DONE, "")
    assert values(trajectory).keys() == {"reward", "scores", "extra_logs.length"}
    assert values(trajectory)["extra_logs.length"] > 0  # the first of two values, as OpenRLHF logs it
    check_law_1(trajectory, heard.calls)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("None", "None: there is no reward"),
        ("{'scores': 1.0}", "None: there is no reward"),
        ("{'rewards': 'high'}", "'high'"),
        ("torch.tensor([1.0, 2.0])", "[1.0, 2.0]: 2 rewards for 1 answer"),
        ("[]", "[]: 0 rewards for 1 answer"),
        ("{'rewards': float('nan')}", "nan"),
    ],
)
async def test_a_reward_that_fails_is_invalid_and_never_0(folder: Path, result: str, reason: str) -> None:
    trajectory, _ = await run(
        folder, f"import torch\n\ndef reward_func(queries, prompts, labels):\n    return {result}\n", "four"
    )
    assert (trajectory.stop_reason, trajectory.is_valid) == (StopReason.VERIFIER_ERROR, False)
    [signal] = [signal for signal in trajectory.signals if signal.weight]
    assert (signal.value, signal.valid) == (None, False)
    assert reason in signal.reason


async def test_an_agent_function_is_scored_by_what_it_returns(folder: Path) -> None:
    trajectory, heard = await run(folder, FUNCTION, "four")
    assert (trajectory.stop_reason, trajectory.error) == (StopReason.AGENT_DONE, "")
    assert [(s.name, s.value, s.weight) for s in trajectory.signals] == [("reward", 1.0, 1.0), ("length", 4.0, 0.0)]
    check_law_1(trajectory, heard.calls)


async def test_a_plain_agent_function_needs_a_call_to_the_model(folder: Path) -> None:
    trajectory, _ = await run(folder, "def agent(task, ctx, model):\n    return 0.5\n", "four")
    assert "without a call to the model" in trajectory.error


async def test_a_function_that_returns_nothing_is_invalid(folder: Path) -> None:
    trajectory, _ = await run(folder, FUNCTION.replace("return {", "return None and {"), "four")
    assert trajectory.stop_reason is StopReason.VERIFIER_ERROR
    assert "the result of agent is None" in trajectory.error


async def test_an_agent_that_a_limit_of_the_run_ends_has_no_reward(folder: Path) -> None:
    trajectory, _ = await run(folder, INSTANCE, "five", max_turns=2)
    assert (trajectory.stop_reason, trajectory.signals, trajectory.is_valid) == (StopReason.MAX_TURNS, (), False)


@pytest.mark.parametrize(
    "code", [INSTANCE, EXECUTOR.replace("CHANGE", "pass"), REWARD.replace("<|im_end|>", ""), FUNCTION]
)
async def test_the_dry_run_takes_each_kind_of_file(folder: Path, code: str) -> None:
    result = await verdict(DryRunRequest(written(folder, code), options(folder), ["train"]))
    assert (result.fault, result.notes) == ("", ())
    assert "2 + 2?" in result.prompt


OTHER_MARKS = "{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}[assistant]"


@pytest.mark.parametrize(("template", "mark"), [("", "<|im_start|>user\\n"), (OTHER_MARKS, "[user] ")])
async def test_a_file_may_read_the_marks_of_the_template_in_a_dry_run(folder: Path, template: str, mark: str) -> None:
    code = EXECUTOR.replace("CHANGE", f"assert prompt.split('{mark}')[1].startswith('2 + 2?')")
    asked = DryRunRequest(written(folder, code), options(folder), ["train"])
    if template:
        (folder / "model" / "chat_template.jinja").write_text(template)
        assert "list index out of range" in (await verdict(asked)).fault
        asked = replace(asked, model=str(folder / "model"))
    result = await verdict(asked)
    assert (result.fault, result.notes) == ("", ())


# --- without openrlhf ---------------------------------------------------------------------------------------------


def test_the_stand_in_is_there_only_while_the_file_is_imported(folder: Path) -> None:
    assert resolve(written(folder, INSTANCE)).__name__ == "Quiz"
    assert [name for name in sys.modules if name.partition(".")[0] == "openrlhf"] == []


def test_an_instance_whose_init_is_async_is_refused_by_name() -> None:
    class Quiz:
        async def __init__(self) -> None: ...  # type: ignore[misc]

    with pytest.raises(ConfigError, match=r"Quiz\.__init__ is async, so no object can be made"):
        MultiTurnAgentExecutor(Quiz)


@pytest.mark.parametrize("code", [INSTANCE, MULTI])
def test_an_instance_without_init_is_refused_by_name(folder: Path, code: str) -> None:
    without = code.replace("def __init__(self, *args, **kwargs)", "def start(self)")
    with pytest.raises(ConfigError, match=r"Quiz is abstract: define __init__"):
        resolve(written(folder, without))


def test_a_class_has_a_name_by_which_every_process_finds_it(folder: Path) -> None:
    file = written(folder, MULTI)
    assert resolve(file).__name__ == "AgentExecutor"
    assert resolve(f"{file}:AgentExecutor") is resolve(file)
    assert resolve(f"{file}:Quiz").__name__ == "Quiz"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (
            "import no_such_heavy_library\nfrom openrlhf.utils.agent import Team",
            "py:2: openrlhf is not installed,.* no openrlhf.utils.agent.Team;",
        ),
        ("from openrlhf.utils.math_utils import grade", "provides no openrlhf.utils.math_utils.grade"),
        ("import openrlhf.trainer", "no openrlhf.trainer"),
        (MULTI.replace("def __init__(self):\n", "async def __init__(self):\n"), "__init__ is async"),
        (INSTANCE.replace("async def step", "async def steps"), "abstract: define step"),
        ("def agent(task):\n    return 1", r"agent\(task, ctx, model\)"),
        ("def reward_func(queries):\n    return 1", r"reward_func\(queries, prompts, labels\)"),
        ("async def reward_func(queries, prompts, labels):\n    return 1", "reward_func is async"),
        (
            "class Scorer:\n    async def __call__(self, queries, prompts, labels):\n        return 1\n\n"
            "reward_func = Scorer()",
            "reward_func is async",
        ),
        ("async def step(observation, action, label, **kwargs): ...", "older versions of OpenRLHF.* AgentInstanceBase"),
        ("x = 1", "must define an .*Env subclass.*async def agent.*AgentExecutor.*reward_func"),
    ],
)  # fmt: skip
def test_what_a_file_lacks_is_named_at_once(folder: Path, code: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        resolve(written(folder, code))


def test_an_environment_class_comes_first(folder: Path) -> None:
    code = FUNCTION + (
        "\nfrom agentrl.env import Env, Task\n\nclass Mine(Env):\n"
        "    def tasks(self, split):\n        return [Task('1')]\n"
        "    def setup(self, task, ctx):\n        return [{'role': 'user', 'content': 'hi'}]\n"
    )
    assert resolve(written(folder, code)).__name__ == "Mine"


# --- rows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "more", "error"),
    [
        (
            '{"input": "2 + 2?", "label": ""}',
            {},
            r"rows.jsonl:1: no column 'prompt' \(env.prompt_column\).*Known: input",
        ),
        ("[1]", {}, "rows.jsonl:1: a row is an object"),
        (json.dumps(ROW), {"data_heldout": ""}, "has no row in the split"),
        (
            '{"prompt": [], "label": ""}',
            {"input_template": "{}"},
            r"the prompt in the column 'prompt' \(env.prompt_column\) is no text",
        ),
        (
            '{"prompt": null, "label": ""}',
            {},
            r"rows.jsonl:1: the prompt .* is None; write text, or a list of messages",
        ),
        ('{"prompt": [], "label": ""}', {}, "write text, or a list of messages"),
        ('{"prompt": [{"content": "2 + 2?"}], "label": ""}', {}, "a list of messages with role and content"),
        ('{"prompt": "", "label": ""}', {"input_template": "{}"}, "is empty, and env.input_template adds nothing"),
        ("", {}, r"env.data.*: .*rows.jsonl is empty; write one task per line"),
    ],
)
def test_rows_that_cannot_be_used_are_named(folder: Path, rows: str, more: dict[str, Any], error: str) -> None:
    (folder / "rows.jsonl").write_text(rows)
    env_class = resolve(written(folder, REWARD))
    env = env_class(env_config(env_class, options(folder, **more)))
    with pytest.raises(AgentRLError, match=error):
        [play(env, ["four"], split=split) for split in ("train", "test")]


async def test_rows_of_two_files_of_one_name_have_ids_of_their_own(folder: Path) -> None:
    files = {"data": folder / "train/data.jsonl", "data_heldout": folder / "test/data.jsonl"}
    for file in files.values():
        file.parent.mkdir()
        file.write_text(json.dumps(ROW | {"label": file.parent.name}))
    env_class = resolve(written(folder, REWARD))
    driver = EnvDriver(env_class(env_config(env_class, {key: str(file) for key, file in files.items()})))
    train, held_out = [await read_tasks(driver, split, 0) for split in ("train", "test")]
    assert (train.ids, held_out.ids) == (["train/data.jsonl:1"], ["test/data.jsonl:1"])
    assert not list(overlap([train, held_out]))


@pytest.mark.parametrize(
    ("path", "other", "folders"),
    [
        ("a/x.jsonl", "b/x.jsonl", "a/"),
        ("a/train/x.jsonl", "b/train/x.jsonl", "a/train/"),
        ("x.jsonl", "b/../x.jsonl", ""),
        ("a/x.jsonl", "b/y.jsonl", ""),
        ("a/x.jsonl", "", ""),
    ],
)
def test_folders_distinguish_files_of_one_name_alone(path: str, other: str, folders: str) -> None:
    assert folders_apart(Path(path), Path(other)) == folders


def test_a_number_in_a_tensor_or_a_list_is_a_reward(folder: Path) -> None:
    import torch

    from agentrl.env.files.results import signals

    for value in (1.0, [1.0], torch.tensor(1.0), torch.tensor([[1.0]]), [torch.tensor(1)], True):
        assert signals({"rewards": value}, "rewards", "it") == [Signal("reward", 1.0)]
