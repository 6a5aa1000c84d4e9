"""`agentrl env check`: results on the terminal, as JSON and as JUnit, and exit codes."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from agentrl.checking import apart
from agentrl.checking.catalogue import CHECKS
from agentrl.checking.check import Status, Subject
from agentrl.checking.process import Request
from agentrl.cli.main import main
from agentrl.hosting.interpreter import Process

GOOD = "./examples/countdown_env.py"
BROKEN = """
from agentrl.env import Env, Task, reward

class Broken(Env):
    def tasks(self, split):
        return [Task(f"{n}", n) for n in range(8)]

    def setup(self, task, ctx):
        return [{"role": "user", "content": f"Say {task.data}."}]

    @reward
    def right(self, ctx):
        return float(ctx.text == str(ctx.task.data))
"""


@pytest.fixture
def broken(tmp_path: Path) -> str:
    (tmp_path / "broken.py").write_text(BROKEN)
    return str(tmp_path / "broken.py")


def test_a_good_environment_passes_and_exits_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "check", GOOD, "--level", "contract", "--env.numbers", "4"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("contract\n  ok      definition: ")
    assert "7 passed, 0 failed, 0 skipped" in shown


def test_a_fault_exits_1_and_the_reports_say_what_and_what_to_do(
    broken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit = tmp_path / "report.xml"
    assert main(["env", "check", broken, "--level", "contract", "--json", "--junit", str(junit)]) == 1
    report = json.loads(capsys.readouterr().out)
    [fault] = [check for check in report["checks"] if check["status"] == "failed"]
    assert (report["passed"], fault["name"]) == (False, "disjoint")
    assert fault["text"] == (
        "8 of 8 held-out tasks are training tasks too, so their scores are not held out: '0', '1', '2' and 5 more"
    )
    assert "by a hash of its content" in fault["remedy"]
    [suite] = Xml.parse(junit).getroot()
    assert (suite.get("name"), suite.get("failures"), suite.get("tests")) == ("contract", "1", "7")
    assert [case.get("name") for case in suite if case.find("failure") is not None] == ["disjoint"]


def test_the_terminal_shows_what_is_wrong_and_what_to_do(broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "check", broken, "--level", "contract"]) == 1
    shown = capsys.readouterr().out
    assert "  FAILED  disjoint: Are the held-out tasks different from the training tasks?\n" in shown
    assert "\n          → Assign each task to one split" in shown


def test_checks_that_did_not_run_for_the_same_reason_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plain.py").write_text(BROKEN)
    assert main(["env", "check", str(tmp_path / "plain.py"), "--level", "package"]) == 0
    reason = "plain.py is in no package that announces it: see docs/share-an-env.md to share it"
    [level, line, summary] = filter(None, capsys.readouterr().out.splitlines())
    assert (level, line) == ("package", f"  skipped metadata, build, imports, offline, tests, clean: {reason}")
    assert summary.startswith("0 passed, 0 failed, 6 skipped")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["check", "gess"], "unknown environment 'gess'. Did you mean 'guess'?"),
        (["check", GOOD, "--level", "truths"], "(choose from 'contract', 'truth'"),
        (["check", GOOD, "--env.number", "3"], "Did you mean 'env.numbers'?"),
        (["check", GOOD, "--env.numbers"], "--env.numbers needs a value"),
        (["check", f"{GOOD},guess"], "one environment at a time"),
        (["chek", GOOD], "unknown command of agentrl env 'chek'. Did you mean 'check'?"),
        (["check", GOOD, "--level", "contract", "--junit", "/nowhere/report.xml"], "cannot be written"),
    ],
)
def test_what_cannot_be_checked_exits_2_with_one_message(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["env", *words]) == 2
    assert says in capsys.readouterr().err


def test_a_class_that_cannot_be_made_exits_2_with_its_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init = "    def __init__(self):\n        super().__init__()\n"
    (tmp_path / "bare.py").write_text(f"from tests.zoo.good import Sums\n\n\nclass Bare(Sums):\n{init}")
    assert main(["env", "check", str(tmp_path / "bare.py")]) == 2
    assert "def __init__(self, config=None, **options)" in capsys.readouterr().err


def test_a_working_folder_that_an_import_removes_exits_2_with_its_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leaving = "import os, tempfile\nwith tempfile.TemporaryDirectory() as folder:\n    os.chdir(folder)\n"
    (tmp_path / "leaving.py").write_text(leaving + BROKEN)
    assert main(["env", "check", str(tmp_path / "leaving.py")]) == 2
    assert "its import changes the working folder to one that no longer exists" in capsys.readouterr().err


def test_half_a_surrogate_pair_in_an_error_is_no_error_of_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refusing = BROKEN.replace("return float(", 'raise ValueError(os.fsdecode(b"caf\\xe9"))\n        float(')
    (tmp_path / "refusing.py").write_text(f"import os\n{refusing}")
    assert main(["env", "check", str(tmp_path / "refusing.py"), "--level", "contract", "--json"]) == 1
    [failed] = [check for check in json.loads(capsys.readouterr().out)["checks"] if check["status"] == "failed"]
    assert "ValueError: caf? (refusing.py:" in failed["text"]


def test_the_page_lists_every_check_with_its_question_and_remedy() -> None:
    page = Path("docs/check-an-env.md").read_text()
    shown = [line for line in page.splitlines() if line.startswith("| `")]
    assert shown == [f"| `{check.name}` | {check.question} | {check.remedy} |" for check in CHECKS]


ENDINGS = {
    "os._exit(0)": "ended with exit code 0",
    "ctypes.string_at(0)": "was killed by SIGSEGV",
    "os.kill(os.getpid(), 9)": "was killed by SIGKILL",
}


@pytest.mark.parametrize("code", ENDINGS)
def test_an_environment_that_ends_the_process_fails_the_check_that_ran(
    code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ending.py").write_text(
        "import ctypes, os\n" + BROKEN.replace("return float(", f"{code}\n        float(")
    )
    junit = tmp_path / "report.xml"
    words = [str(tmp_path / "ending.py"), "--level", "contract", "--json", "--junit", str(junit)]
    assert main(["env", "check", *words]) == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["passed"]
    checks = {check["name"]: check for check in report["checks"]}
    assert (checks["tasks"]["status"], checks["episode"]["status"]) == ("passed", "failed")
    assert checks["episode"]["text"] == f"the environment's process {ENDINGS[code]} while this check ran"
    assert {checks[name]["text"] for name in ("disjoint", "gymnasium")} == {"not checked: see episode"}
    [suite] = Xml.parse(junit).getroot()
    assert (suite.get("failures"), suite.get("errors"), suite.get("tests")) == ("1", "4", "7")


def test_an_environment_that_ends_its_import_fails_the_first_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ending.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    assert main(["env", "check", str(tmp_path / "ending.py"), "--level", "truth"]) == 1
    shown = capsys.readouterr().out
    assert "FAILED  oracle: " in shown
    assert "was killed by SIGKILL while the environment was loaded" in shown


@pytest.mark.parametrize("command", ["check", "show"])
def test_an_interpreter_that_cannot_run_agentrl_exits_2_with_one_message(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    for python, says in (
        ("/bin/true", "it is no Python (exit code 0)"),
        (str(bare), "lacks what agentrl needs (No module"),
    ):
        assert main(["env", command, "guess", "--env.python", python]) == 2
        assert says in capsys.readouterr().err


def test_an_environment_that_holds_the_interpreter_for_ever_fails_the_check_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    held = BROKEN.replace("ctx.text == str", "bool(re.fullmatch('(a+)+b', 'a' * 64)) == str")
    (tmp_path / "held.py").write_text("import re\n" + held)
    program = """
from dataclasses import replace
from agentrl.checking import process, running
running.GRACE_S = running.PLAY_S = 1.0
process.BY_NAME["noise"] = replace(process.BY_NAME["noise"], timeout_s=1.0)
process.main()
"""
    monkeypatch.setattr(apart, "SPARE_S", 1.0)
    request = Request(str(tmp_path / "held.py"), {}, ["noise", "order"])
    started = Process.of(None, "")
    [noise, order] = apart.results(request, (sys.executable, "-c", program), started.variables)
    assert noise.status is Status.FAILED
    assert "held the interpreter beyond every deadline" in noise.text
    assert order.text == "not checked: see noise"
    assert 'held.py", line 14 in right' in capfd.readouterr().err


def test_an_estimate_of_slow_checks_comes_before_their_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = (
        "async def setup(self, task, ctx):\n        await asyncio.sleep(0.6)\n        return super().setup(task, ctx)"
    )
    (tmp_path / "slow.py").write_text(
        f"import asyncio\nfrom tests.zoo.good import Sums\n\n\nclass Slow(Sums):\n    {slow}\n"
    )
    program = "import sys\nfrom agentrl.checking import process\nprocess.main()\n"
    request, told = Request(str(tmp_path / "slow.py"), {}, ["noise"]), list[str]()
    started = Process.of(None, "")
    [noise] = apart.results(request, (sys.executable, "-c", program), started.variables, told.append)
    assert noise.status is Status.PASSED
    assert told == ["an episode takes about 0.6 s: about 1 min for truth"]


LEAVES_A_FOLDER = """
import json, os, pathlib, sys, tempfile
home = tempfile.mkdtemp(dir=os.environ["AGENTRL_CHECK_SCRATCH"])
record = {"type": "Finished", "status": "passed", "text": home, "seconds": 0}
os.write(int(sys.argv[1]), json.dumps(record).encode() + b"\\n")
os.kill(os.getpid(), 19)
"""


def test_an_interrupted_check_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "EXIT_S", 0.5)
    request = Request("x", {}, ["metadata", "tests"])
    running = apart.results(request, [sys.executable, "-c", LEAVES_A_FOLDER], os.environ)
    home = Path(next(running).text)
    assert home.is_dir()
    running.close()  # type: ignore[attr-defined]
    assert not home.parent.exists()


FUNCTIONS = {
    "agent.py": "async def agent(task, ctx, model):\n    return float(await model.ask(task.data['prompt']) != '')\n",
    "rewards.py": "def reward_func(queries, prompts, labels):\n    return [float(q != '') for q in queries]\n",
}
OF_A_CLASS = re.compile(
    r"ctx\.state|\bsetup\b|teardown|respond|blocking|@shared|random\.Random alone|Write (oracle|canaries)"
)
"""What a function or a file of OpenRLHF does not have."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_file_with_a_function_gets_remedies_that_a_function_has(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(FUNCTIONS[name])
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"prompt": "Say {n}.", "label": "{n}"}}\n' for n in range(64)))
    words = [str(tmp_path / name), "--env.data", str(tmp_path / "rows.jsonl"), "--level", "truth", "--json"]
    assert main(["env", "check", *words]) == 1
    failed = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"] if check["remedy"]}
    assert {"oracle", "canaries", "noise"} <= failed.keys()
    assert "its file gives no solutions" in failed["oracle"]["text"]
    assert "derive a class from agentrl.env.resolve" in failed["canaries"]["remedy"]
    subject = Subject.named(str(tmp_path / name), {"data": str(tmp_path / "rows.jsonl")})
    not_in_files = [check.name for check in CHECKS if OF_A_CLASS.search(check.remedy_for(subject))]
    assert not_in_files == ["hanging-tool"]
