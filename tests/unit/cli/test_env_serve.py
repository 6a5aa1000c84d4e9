"""`agentrl env serve` serves an environment until a signal, and refuses at once what it cannot serve."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from agentrl.cli.main import main

SECRET = "a-token-of-16-characters"
COMMAND = [sys.executable, "-c", "import sys; from agentrl.cli.main import main; sys.exit(main())", "env", "serve"]


def test_an_environment_is_served_with_a_token_until_sigterm(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text(f"{SECRET}\n")
    command = [*COMMAND, "guess", "--env.high", "9", "--port", "0", "--token-file", str(secret)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[3]
            with httpx.Client(base_url=url, timeout=50) as client:
                headers = {"Authorization": f"Bearer {SECRET}"}
                seen = client.post("/reset", json={"split": "train", "index": 0}, headers=headers).json()
                assert "Answer with one number" in seen["observation"]["text"]
                assert client.post("/reset", json={}).status_code == 401
            server.send_signal(signal.SIGTERM)
            assert server.wait(50) == 0
            assert server.stderr is not None
            assert "Traceback" not in server.stderr.read()
        finally:
            server.kill()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gess"], "Did you mean 'guess'?"),
        (["guess", "--env.hihg", "9"], "Did you mean 'env.high'?"),
        (["guess:1,math:1"], "several environments"),
        (["guess", "--host", "0.0.0.0"], "--token-file"),
        (["guess", "--token-file", "short"], "write 16 or more random ones"),
        (["guess", "--token-file", "nowhere"], "cannot be read"),
        (["guess", "--max-sessions", "0"], "--max-sessions: must be a whole number of at least 1"),
        (["guess", "--port", "99999"], "cannot listen"),
        ([], "NAME|PATH"),
    ],
)
def test_what_cannot_be_served_is_refused_with_what_to_do(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("short")
    assert main(["env", "serve", *words]) == 2
    assert said in capsys.readouterr().err
