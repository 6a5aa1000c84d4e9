"""`agentrl serve-rm` serves a model until a signal, and refuses at once what it cannot serve."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from agentrl.cli.main import main
from agentrl.reward_models.server import TOKEN
from tests.tiny import tiny_reward_model

SECRET = "a-token-of-16-characters"
COMMAND = [sys.executable, "-c", "import sys; from agentrl.cli.main import main; sys.exit(main())", "serve-rm"]


def test_a_model_is_served_with_a_token_until_sigterm(tmp_path: Path) -> None:
    model = tiny_reward_model(tmp_path / "model")
    env = os.environ | {TOKEN: SECRET, "OMP_NUM_THREADS": "1"}
    command = [*COMMAND, str(model), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().rpartition(" ")[2].strip()
            body = {"inputs": ["one", [{"role": "user", "content": "two"}]]}
            answer = httpx.post(f"{url}/v1/score", json=body, headers={"Authorization": f"Bearer {SECRET}"}, timeout=50)
            assert len(set(answer.json()["scores"])) == 2
            assert httpx.post(f"{url}/v1/score", json=body).status_code == 401
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0
            assert server.stderr is not None
            assert "Traceback" not in server.stderr.read()
        finally:
            server.kill()


@pytest.mark.parametrize(
    ("words", "secret", "said"),
    [
        (["./nowhere"], "", "there is no such folder"),
        (["x", "--host", "0.0.0.0"], "", f"set {TOKEN}"),
        (["x"], "short", "has 5 characters"),
        (["x"], "a-token of two lines,\nand a half", f"the environment variable {TOKEN} must be a token of printable"),
        (["x", "--max-queue", "0"], "", "--max-queue: must be a whole number of at least 1, got '0'"),
        ([], "", "MODEL"),
    ],
)
def test_what_cannot_be_served_is_refused_with_what_to_do(
    words: list[str], secret: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN, secret)
    assert main(["serve-rm", *words]) == 2
    assert said in capsys.readouterr().err
