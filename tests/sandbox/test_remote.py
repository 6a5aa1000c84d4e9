"""A sandbox server and its client: the same promises over HTTP, for who has the token, as long as the client lives."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from agentrl_sandbox import (
    FullError,
    Limit,
    LostError,
    Pool,
    Python,
    RefusedError,
    SandboxError,
    Stream,
    UnavailableError,
    choose,
    leases,
    server,
    shell,
)
from agentrl_sandbox.backends.remote_httpx import RemoteBackend
from agentrl_sandbox.choice import TOKEN, URL
from agentrl_sandbox.doctor import checks
from agentrl_sandbox.server import Server

from tests.sandbox.conftest import TIGHT, backend, running

SECRET = "a-token-of-some-length"


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """The address of a server that makes at most three sandboxes."""
    async with Server(backend("bubblewrap"), SECRET, most=3).listening("127.0.0.1", 0) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def remote(url: str) -> AsyncIterator[RemoteBackend]:
    made = RemoteBackend(url, SECRET)
    yield made
    await made.close()


async def gone() -> None:
    async with asyncio.timeout(20):
        while running():  # noqa: ASYNC110 (processes end when they end)
            await asyncio.sleep(0.01)


async def test_programs_sessions_files_and_snapshots_go_over_the_wire(remote: RemoteBackend) -> None:
    sandbox = await remote.create(TIGHT)
    heard: list[tuple[Stream, bytes]] = []
    result = await sandbox.exec(
        Python("import sys; print(input()); sys.exit(3)"), b"hello\n", on_output=lambda *printed: heard.append(printed)
    )
    assert (result.exit_code, result.stdout, heard) == (3, b"hello\n", [(Stream.STDOUT, b"hello\n")])
    await sandbox.run("x = 41")
    assert (await sandbox.run("x + 1")).stdout == b"42\n"
    await sandbox.write("a/f", bytes(range(256)))
    assert await sandbox.read("a/f") == bytes(range(256))
    taken = await sandbox.snapshot()
    await sandbox.exec(shell("rm -r a"))
    await sandbox.restore(taken)
    assert await sandbox.read("a/f") == bytes(range(256))
    await sandbox.close()


async def test_limits_and_refusals_go_over_the_wire(remote: RemoteBackend) -> None:
    sandbox = await remote.create(TIGHT)
    timed = await sandbox.exec(Python("while True: pass"), limits=replace(TIGHT, wall_s=0.3))
    assert timed.hits == {Limit.TIME}
    filled = await sandbox.exec(Python(f"x = bytearray({4 * TIGHT.memory_bytes})"))
    assert Limit.MEMORY in filled.hits
    with pytest.raises(RefusedError, match="working folder"):
        await sandbox.read("../x")
    await sandbox.close()


async def test_a_wrong_token_is_refused_with_what_to_do(url: str) -> None:
    stranger = RemoteBackend(url, "another-token-of-length")
    with pytest.raises(UnavailableError, match=TOKEN):
        await stranger.create(TIGHT)
    await stranger.close()
    assert not running()


async def test_a_server_without_a_token_does_not_start() -> None:
    with pytest.raises(SandboxError, match=TOKEN):
        Server(backend("bubblewrap"), "")


@pytest.mark.parametrize(
    ("token", "words", "printed"),
    [
        ("", [], f"error: {TOKEN} has 0 characters"),
        (SECRET, ["--certificate", "none.pem", "--key", "none.key"], "error: cannot use none.pem with none.key"),
        (SECRET, ["--key", "none.key"], "--certificate and --key belong together"),
        (SECRET, ["--host", "192.0.2.1"], "error: .*192.0.2.1"),
        (SECRET, ["--backend", "dokcer"], "error: unknown sandbox backend 'dokcer'. Did you mean 'docker'"),
    ],
)
def test_a_server_that_cannot_start_says_why_in_one_line(token: str, words: list[str], printed: str) -> None:
    backend("bubblewrap")
    ran = subprocess.run(
        [sys.executable, "-m", "agentrl_sandbox.server", *words],
        env=dict(os.environ) | {TOKEN: token},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert ran.returncode
    assert re.search(printed, ran.stderr)
    assert "Traceback" not in ran.stderr


async def test_a_server_uses_its_own_machine_whatever_server_the_environment_names() -> None:
    backend("bubblewrap")
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agentrl_sandbox.server", "--port", "0"),
        stderr=subprocess.PIPE,
        env=dict(os.environ) | {TOKEN: SECRET, URL: "http://127.0.0.1:9"},
    )
    assert started.stderr
    async with asyncio.timeout(40):
        assert (await started.stderr.readline()).startswith(b"sandboxes by bubblewrap")
        started.terminate()
        await started.communicate()


async def test_an_absent_server_is_reported_as_unavailable() -> None:
    nowhere = RemoteBackend("http://127.0.0.1:9", SECRET)
    with pytest.raises(UnavailableError, match="remote"):
        await nowhere.create(TIGHT)
    await nowhere.close()


async def test_a_full_server_says_so(remote: RemoteBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "QUEUE_S", 0.05)
    held = [await remote.create(TIGHT) for _ in range(3)]
    with pytest.raises(FullError, match="already has 3"):
        await remote.create(TIGHT)
    for sandbox in held:
        await sandbox.close()
    await gone()


async def test_who_finds_the_server_full_waits_as_long_as_for_its_own(
    url: str, remote: RemoteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "QUEUE_S", 0.05)
    first, *others = [await remote.create(TIGHT) for _ in range(3)]
    async with Pool(RemoteBackend(url, SECRET), TIGHT, ready=1) as pool:
        with pytest.raises(FullError, match=r"no sandbox was free within 0\.3 s"):
            await pool.take(wait_s=0.3)
        waiting = asyncio.create_task(pool.take())
        await first.close()
        assert (await (await waiting).exec(Python("print(1)"))).stdout == b"1\n"
    for sandbox in others:
        await sandbox.close()
    await gone()


async def test_a_sandbox_that_dies_on_the_server_is_lost_here(remote: RemoteBackend) -> None:
    sandbox = await remote.create(TIGHT)
    leases.kill_marked({sandbox.id}, 10)
    with pytest.raises(LostError):
        await sandbox.exec(Python("pass"))
    assert not sandbox.is_healthy()
    await sandbox.close()


async def test_a_pool_of_remote_sandboxes_works_like_any_other(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL, url)
    monkeypatch.setenv(TOKEN, SECRET)
    async with Pool(await asyncio.to_thread(choose), TIGHT, ready=1, most=2) as pool:
        assert pool.backend.name == "remote"
        for _ in range(4):
            async with pool.lease() as sandbox:
                assert (await sandbox.exec(Python("print(1)"))).stdout == b"1\n"
    await gone()


async def test_a_server_that_does_not_answer_or_not_to_this_token_is_refused_before_anything_starts(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address, token, printed in (
        (url, "another-token-of-length", TOKEN),
        ("http://127.0.0.1:9", SECRET, r"no server answers at 'http://127\.0\.0\.1:9'"),
        ("sandboxes:8900", SECRET, "no server answers at 'sandboxes:8900'"),
        ("http://me:mine@127.0.0.1:9", SECRET, rf"{URL} has a user name or password"),
    ):
        monkeypatch.setenv(URL, address)
        monkeypatch.setenv(TOKEN, token)
        with pytest.raises(UnavailableError, match=printed) as caught:
            await asyncio.to_thread(choose)
        assert "mine" not in str(caught.value)
        [found] = [check for check in await asyncio.to_thread(checks) if check[0] == "sandbox"]
        assert not found[1]


CLIENT = """
import asyncio, sys
from agentrl_sandbox import Limits
from agentrl_sandbox.backends.remote_httpx import RemoteBackend
async def main():
    sandbox = await RemoteBackend(sys.argv[1], sys.argv[2]).create(Limits())
    await sandbox.run("x = 1")
    print(sandbox.id, flush=True)
    await sandbox.run("while True: pass")
asyncio.run(main())
"""


async def test_the_sandboxes_of_a_client_that_is_killed_end(url: str) -> None:
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, url, SECRET, stdout=subprocess.PIPE, env=dict(os.environ)
    )
    assert client.stdout
    async with asyncio.timeout(40):
        assert (await client.stdout.readline()).startswith(b"agentrl-")
    assert running()
    client.kill()
    await client.communicate()
    await gone()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (("GET", "/sandboxes", b""), 404),
        (("POST", "/elsewhere", b""), 404),
        (("POST", "/sandboxes/none", b""), 404),
        (("POST", "/sandboxes", b"no json"), 400),
        (("POST", "/sandboxes", b'{"wall_s": -1}'), 400),
        (("POST", "/sandboxes", b'{"speed": 1}'), 400),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(
    url: str, request_: tuple[str, str, bytes], status: int
) -> None:
    method, path, content = request_
    async with httpx.AsyncClient(
        base_url=url, headers={"Authorization": f"Bearer {SECRET}"}, trust_env=False
    ) as client:
        assert (await client.request(method, path, content=content)).status_code == status


async def test_a_server_with_a_certificate_of_its_own_is_trusted_by_who_knows_it(certificate: Path) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    async with Server(backend("bubblewrap"), SECRET).listening("127.0.0.1", 0, tls) as port:
        knowing = RemoteBackend(f"https://localhost:{port}", SECRET, str(certificate))
        sandbox = await knowing.create(TIGHT)
        assert (await sandbox.exec(Python("print(1)"))).stdout == b"1\n"
        await sandbox.close()
        await knowing.close()
        stranger = RemoteBackend(f"https://localhost:{port}", SECRET)
        with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            await stranger.create(TIGHT)
        await stranger.close()
    await gone()


def test_a_certificate_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()
    for name in ("none.pem", "empty.pem"):
        with pytest.raises(UnavailableError, match=f"{name} contains no valid certificate"):
            RemoteBackend("https://localhost", SECRET, str(tmp_path / name))


async def test_what_is_no_http_at_all_harms_nobody(url: str, remote: RemoteBackend) -> None:
    port = int(url.rpartition(":")[2])
    for noise in (b"\0" * 1000, b"GET\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"x" * 100_000):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(noise)
        writer.write_eof()
        async with asyncio.timeout(10):
            answer = await reader.read()
        assert not answer or answer.startswith(b"HTTP/1.1 400")
        writer.close()
    sandbox = await remote.create(TIGHT)
    assert (await sandbox.exec(Python("print(1)"))).is_ok
    await sandbox.close()
