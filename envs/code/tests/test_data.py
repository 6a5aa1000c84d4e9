"""HumanEval's, MBPP's and the general columns become problems; a fault names its place."""

import gzip
import json
import logging

import pytest
from agentrl_code import Assert, Call, Io
from agentrl_code.data import load

from agentrl.env import testing
from agentrl.errors import DataError

HUMANEVAL = {
    "task_id": "X/0",
    "prompt": 'import math\n\n\ndef twice(x):\n    return 2 * x\n\n\ndef four(x: int) -> int:\n    """ Four times x.\n'
    '    >>> four(2)\n    8\n    >>> print(four(1))\n    4\n    >>> undefined\n    <x>\n    """\n',
    "entry_point": "four",
    "canonical_solution": "    return twice(twice(x))\n",
    "test": "\n\nMETADATA = {}\n\n\ndef check(candidate):\n    assert candidate(3) == 12\n"
    "    assert candidate(twice(1)) == twice(4)\n",
}
MBPP = {
    "text": "Write a function to add.",
    "code": "def helper(x):\n\treturn x\r\ndef sum(a, b):\r\n\treturn helper(a) + b",
    "task_id": 5,
    "test_setup_code": "",
    "test_list": ["assert sum(1, 2) == 3", "assert sum(2, 2) == 4"],
    "challenge_test_list": [],
}
GENERAL = {
    "prompt": "Double it.",
    "entry_point": "f",
    "tests": [{"args": [2], "expected": 4}, {"stdin": "2", "expected_stdout": "4"}, "assert f(3) == 6"],
    "public_tests": [{"args": [1], "expected": 2}],
    "solution": "def f(x): return 2 * x\nif __name__ == '__main__': print(f(int(input())))",
}


def write(path, *rows):
    text = "\n".join(map(json.dumps, rows))
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


async def passes(grade, problem, answer, tests=None):
    program = problem.program(answer)
    verdict = await grade(program, *(tests or problem.hidden), entry=problem.entry, setup=problem.setup)
    return verdict.reward


async def test_humaneval(grade, tmp_path):
    [problem] = load(write(tmp_path / "h.jsonl.gz", HUMANEVAL))
    assert problem.entry == "four"
    assert problem.public == (Assert("assert four(2) == 8"),)
    for answer in (
        problem.solution,
        "    return 4 * x\n",
        "def four(x):\n    return twice(2 * x)",
        "four = lambda x: 4 * x",
    ):
        assert await passes(grade, problem, answer) == 1.0, answer
    for answer in (
        "    return 2 * x",
        "def four(x): pass",
        "def twice(x): return 0\ndef four(x): return 0",
        "def f(x): 1",
    ):
        assert await passes(grade, problem, answer) == 0.0, answer
    assert HUMANEVAL["test"].strip() not in problem.question


async def test_mbpp(grade, tmp_path):
    [problem] = load(write(tmp_path / "m.jsonl", MBPP))
    assert (problem.entry, len(problem.public), len(problem.hidden)) == ("sum", 1, 2)
    assert "assert sum(1, 2) == 3" in problem.question
    assert "assert sum(2, 2) == 4" not in problem.question
    assert await passes(grade, problem, problem.solution) == 1.0
    assert await passes(grade, problem, "def sum(a, b): return 3") == 0.0


@pytest.mark.parametrize(("name", "rows"), [("humaneval.jsonl.gz", 164), ("mbpp.jsonl", 974)])
def test_every_row_of_the_real_files_is_a_problem(name, rows):
    problems = load(str(testing.data_file(f"code/{name}")))
    assert len(problems) == rows


async def test_the_general_form(grade, tmp_path):
    [problem] = load(write(tmp_path / "g.jsonl", GENERAL))
    assert problem.hidden == (Call("f", [2], expected=4), Io("2", "4"), Assert("assert f(3) == 6"))
    assert problem.public == (Call("f", [1], expected=2),)
    assert await passes(grade, problem, problem.solution) == 1.0
    assert await passes(grade, problem, "def f(x): return 2 * x") == 0.0


def test_rows_that_cannot_be_graded_are_left_out_and_counted(tmp_path, caplog):
    bad = [
        MBPP | {"test_list": []},
        MBPP | {"test_list": ["f(1)"]},
        MBPP | {"text": " "},
        GENERAL | {"tests": [{"args": [1]}]},
    ]
    with caplog.at_level(logging.WARNING):
        assert len(load(write(tmp_path / "m.jsonl", MBPP, *bad))) == 1
    assert "4 of 5 rows cannot be graded, for example m.jsonl:2: there are no tests" in caplog.text
    with pytest.raises(DataError, match="4 of 4 rows"):
        load(write(tmp_path / "n.jsonl", *bad))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file has no rows"),
        ("{", "x.jsonl, line 1: not JSON"),
        ("[]", "must be an object with named columns, not list"),
        ('{"question": 1}', "x.jsonl:1: unknown columns question; expected HumanEval's"),
        ('{"prompt": 5, "tests": []}', "x.jsonl:1: ValueError: prompt must be a string"),
        ('{"prompt": "p", "tests": [{}]}', "x.jsonl:1: ValueError: a test with `args` needs a `function`"),
        ('{"text": "p", "test_list": "assert"}', "test_list must be a list of strings"),
    ],
)
def test_a_fault_names_its_place(tmp_path, text, said):
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(DataError) as raised:
        load(str(path))
    assert said in str(raised.value)


def test_files_that_cannot_be_read(tmp_path):
    write(tmp_path / "train.jsonl", MBPP)
    with pytest.raises(DataError, match=r"no such file. Did you mean .*train.jsonl"):
        load(str(tmp_path / "trian.jsonl"))
    (tmp_path / "a.csv").write_text("x")
    with pytest.raises(DataError, match=r"must end in \.jsonl or \.jsonl\.gz"):
        load(str(tmp_path / "a.csv"))
    (tmp_path / "a.jsonl.gz").write_text("no gzip")
    with pytest.raises(DataError, match="cannot be read"):
        load(str(tmp_path / "a.jsonl.gz"))
