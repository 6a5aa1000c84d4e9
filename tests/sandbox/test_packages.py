"""Packages by name: programs import what they were lent and what that requires, and nothing else of this machine."""

from __future__ import annotations

import json
import os
import tarfile
import warnings
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path

import httpx
import pytest
from agentrl_sandbox import (
    Limits,
    PackagesError,
    Pool,
    Python,
    Sandbox,
    UnavailableError,
    cgroups,
    choose,
    describe,
    leases,
    shell,
)
from agentrl_sandbox.backends.remote_httpx import RemoteBackend
from agentrl_sandbox.image import __main__ as image
from agentrl_sandbox.image.rootfs import write_rootfs
from agentrl_sandbox.packages import checked, paths, required
from agentrl_sandbox.server import Server

from tests.sandbox.conftest import LOCAL, TIGHT, backend

LENT = ("numpy", "sympy")
SECRET = "a-token-of-some-length"
pytestmark = pytest.mark.filterwarnings("ignore:sandbox backend 'process'")


def install(
    site: Path,
    name: str,
    files: Mapping[str, str],
    requires: Iterable[str] = (),
    url: object = None,
    entry_points: str = "",
    has_record: bool = True,
) -> None:
    """Put a distribution where pip would."""
    info = f"{name.replace('-', '_')}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n" + "".join(
        f"Requires-Dist: {r}\n" for r in requires
    )
    written = {**files, f"{info}/METADATA": metadata, f"{info}/entry_points.txt": entry_points}
    written |= {f"{info}/direct_url.json": json.dumps(url)} if url else {}
    written |= {f"{info}/RECORD": "".join(f"{path},,\n" for path in written)} if has_record else {}
    for path, text in written.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages like site-packages, and on the path like it."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


# --- what comes along -------------------------------------------------------------------------------------------


def test_what_a_package_requires_comes_along_and_extras_do_not(site: Path) -> None:
    wants = ["lower>=1 ; python_version > '3'", "Up_per[fast] (>=1)", "absent; sys_platform == 'win32'"]
    install(site, "top", {"top.py": ""}, [*wants, 'other; extra == "dev"', 'other ; (platform != "x") and extra=="b"'])
    install(site, "lower", {"lower.py": ""}, ["top"])
    install(site, "up.per", {"up/__init__.py": ""})
    install(site, "other", {"other.py": ""})
    assert sorted(required(checked(["Top"]))) == ["lower", "top", "up-per"]
    assert paths(["top"]) == {name: site / name for name in ("lower.py", "top.py", "up")}


def test_nothing_comes_along_that_shadows_python_or_runs_at_its_start(site: Path) -> None:
    evil = ["typing.py", "json/__init__.py", "_socket.cpython-311-x86_64-linux-gnu.so", "sitecustomize.py", "start.pth"]
    evil += ["usercustomize/__init__.py", "__pycache__/fine.cpython-311.pyc", "../bin/tool", "notes.txt"]
    install(site, "evil", dict.fromkeys([*evil, "fine.py", "good/__init__.py", "good/json.py", "good.libs/a.so"], ""))
    assert sorted(paths(["evil"])) == ["fine.py", "good", "good.libs"]


def test_of_a_folder_that_packages_share_only_the_own_part_comes_along(site: Path) -> None:
    install(site, "one", {"family/one/__init__.py": "", "family/deep/one.py": ""})
    install(site, "two", {"family/two/__init__.py": "", "family/deep/two.py": ""})
    assert sorted(paths(["one"])) == ["family/deep/one.py", "family/one"]
    install(site, "alone", {"single/part/__init__.py": "", "single/data/x.txt": ""})
    assert sorted(paths(["alone"])) == ["single"]


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOCAL[::2])
def test_a_package_that_is_not_installed_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(UnavailableError, match=r"'no-such' is not installed. pip install no-such in the environment"):
        choose(name, ["no.such"])


def test_the_choice_of_the_best_does_not_hide_a_missing_package() -> None:
    backend("bubblewrap")
    with pytest.raises(PackagesError, match=r"^package 'no-such' is not installed"):
        choose(packages=["no-such"])


def test_a_missing_requirement_is_told_with_who_requires_it(site: Path) -> None:
    install(site, "top", {"top.py": ""}, ["no-such>=2"])
    with pytest.raises(PackagesError, match=r"'no-such' is not installed \(top requires it\)"):
        paths(["top"])


def test_an_editable_install_and_one_without_a_record_are_refused(site: Path) -> None:
    install(site, "draft", {"draft.py": ""}, url={"url": "file:///x", "dir_info": {"editable": True}})
    install(site, "bare", {"bare.py": ""}, has_record=False)
    with pytest.raises(PackagesError, match="'draft' is an editable install"):
        paths(["draft"])
    with pytest.raises(PackagesError, match="'bare' has no record of its files"):
        paths(["bare"])


def test_agentrl_its_environments_and_what_requires_them_are_refused(site: Path) -> None:
    install(site, "agentrl", {"agentrl/__init__.py": ""})
    install(site, "agentrl-env-x", {"agentrl_x.py": ""})
    install(site, "theirs", {"theirs.py": ""}, entry_points="[agentrl.envs]\ntheirs = theirs:Env\n")
    install(site, "around", {"around.py": ""}, ["agentrl"])
    for name, asked in [("agentrl", "agentrl"), ("agentrl-env-x", "agentrl_env_x"), ("theirs", "theirs")]:
        with pytest.raises(PackagesError, match=f"'{name}' is not allowed: programs could read how"):
            paths(checked([asked]))
    with pytest.raises(PackagesError, match="'agentrl', which around requires, is not allowed"):
        paths(["around"])


@pytest.mark.parametrize("name", ["numpy>=2", "numpy,sympy", "../numpy", "", "-"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(PackagesError, match="is not a name; write it as for pip"):
        choose("process", [name])


def test_a_private_package_is_refused_with_what_to_do(site: Path) -> None:
    backend("bubblewrap")
    if os.geteuid():
        pytest.skip("programs have the user id of these tests")
    install(site, "hidden", {"hidden/__init__.py": ""})
    (site / "hidden").chmod(0o700)
    with pytest.raises(PackagesError, match=rf"programs could not read {site}/hidden.* chmod -R o\+rX"):
        choose("bubblewrap", ["hidden"])


def test_a_pool_of_a_backend_that_is_made_takes_no_packages() -> None:
    with pytest.raises(ValueError, match="packages need the name of a backend"):
        Pool(backend("process"), packages=LENT)


def test_an_image_that_does_not_list_the_packages_is_refused_with_the_command_that_makes_one() -> None:
    pytest.importorskip("docker")
    from agentrl_sandbox.backends import docker

    docker._check(("numpy",), "mpmath numpy")
    with pytest.raises(PackagesError, match=r"does not include the package sympy\. .*image --packages numpy sympy$"):
        docker._check(("numpy", "sympy"), "numpy")


# --- programs ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=LOCAL)
async def lent(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """A sandbox of each local backend that has the packages, with the default limits, but patient on a busy machine."""
    try:
        with warnings.catch_warnings(action="ignore"):
            made = choose(request.param, LENT)
    except (UnavailableError, ImportError) as error:
        pytest.skip(str(error))
    sandbox = await made.create(Limits(wall_s=60.0))
    yield sandbox
    await sandbox.close()
    assert not [*leases.folder().glob("packages/*")]
    await made.close()


USE = "import numpy, sympy; print(numpy.arange(4).sum(), sympy.sqrt(8))"


async def test_programs_sessions_and_commands_import_the_configured_packages(lent: Sandbox) -> None:
    assert (await lent.exec(Python(USE))).stdout == b"6 2*sqrt(2)\n"
    assert (await lent.run("import numpy, sympy")).is_ok
    assert (await lent.run("sympy.integrate(sympy.Symbol('x')), numpy.ones(2).sum() == 2")).stdout.startswith(
        b"(x**2/2"
    )
    await lent.write("x.py", USE.encode())
    assert (await lent.exec(shell("python3 x.py"))).stdout == b"6 2*sqrt(2)\n"


async def test_the_standard_library_comes_first_and_no_other_package_comes_at_all(lent: Sandbox) -> None:
    result = await lent.exec(Python("import sys, os; print(sys.path[-1], *os.listdir(sys.path[-1]))"))
    folder, *names = result.stdout.decode().split()
    assert set(names) >= {"numpy", "sympy", "mpmath"}
    assert not set(names) & {"pytest", "pydantic", "agentrl"}
    missing = await lent.exec(Python("import pydantic"))
    assert b"No module named 'pydantic'" in missing.stderr
    told = await lent.exec(Python("import os; print(os.environ['PYTHONPATH'])"))
    assert told.stdout.decode().strip() == folder


async def test_numpy_starts_no_threads(lent: Sandbox) -> None:
    source = "import numpy as n; n.ones((300, 300)) @ n.ones((300, 300)); print(open('/proc/self/status').read())"
    assert "Threads:\t1\n" in (await lent.exec(Python(source))).stdout.decode()


async def test_packages_cannot_be_written(lent: Sandbox, request: pytest.FixtureRequest) -> None:
    if "process" in request.node.name:
        pytest.skip("no boundary")
    folders = ("/packages", "/packages/numpy", "/packages/sympy/core")
    look = f"import os; print(all(os.statvfs(path).f_flag & os.ST_RDONLY for path in {folders}))"
    assert (await lent.exec(Python(look))).stdout == b"True\n"  # for their owner too, as whom programs may run
    for folder in folders:
        for name in ("new.py", "__init__.py"):
            assert b"Error: [Errno" in (await lent.exec(Python(f"open('{folder}/{name}', 'a')"))).stderr
    assert b"Errno" in (await lent.exec(Python("import os; os.chmod('/packages/numpy', 0o777)"))).stderr
    assert not (await lent.exec(shell("mv /packages/numpy /tmp || rm /packages/numpy/__init__.py"))).is_ok


async def test_without_packages_there_are_none_and_the_boot_is_as_before(any_sandbox: Sandbox) -> None:
    assert b"No module named 'numpy'" in (await any_sandbox.exec(Python("import numpy"))).stderr
    printed = (
        await any_sandbox.exec(Python("import sys, os; print(sys.path[-1]); print(*os.environ)"))
    ).stdout.decode()
    assert "lib-dynload" in printed.splitlines()[0]
    assert not {"PYTHONPATH", "OMP_NUM_THREADS"} & set(printed.splitlines()[1].split())


async def test_the_limits_leave_room_for_numpy_and_sympy_without_control_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend("bubblewrap")
    monkeypatch.setattr(cgroups, "cage", lambda lease_id: None)
    sandbox = await choose("bubblewrap", LENT).create(Limits(wall_s=50))  # there is no share of the CPU either
    result = await sandbox.exec(Python(USE))
    await sandbox.close()
    assert result.is_ok, result


async def test_a_pool_lends_and_says_so() -> None:
    backend("bubblewrap")
    assert describe("bubblewrap", ["NumPy"]).endswith(" with numpy")
    async with Pool("bubblewrap", TIGHT, ready=1, most=1, packages=("numpy",)) as pool, pool.lease() as sandbox:
        assert (await sandbox.exec(Python("import numpy; print(numpy.arange(3).sum())"))).stdout == b"3\n"
        assert b"No module named 'sympy'" in (await sandbox.exec(Python("import sympy"))).stderr


# --- image and server -------------------------------------------------------------------------------------------


def test_the_image_has_the_packages_readable_and_nothing_else_of_theirs(site: Path, tmp_path: Path) -> None:
    install(site, "small", {"small/__init__.py": "", "../bin/small": "", "sitecustomize.py": ""})
    (site / "small").chmod(0o700)
    with (tmp_path / "image.tar").open("wb") as file:
        write_rootfs(file, paths(["small"]))
    with tarfile.open(tmp_path / "image.tar") as archive:
        entries = {entry.name: entry.mode for entry in archive if entry.name.startswith("packages")}
    assert entries == {"packages/small": 0o755, "packages/small/__init__.py": 0o644}


@pytest.mark.skipif(not Path("/usr/share/zoneinfo/UTC").exists(), reason="this machine has no time zones")
def test_the_image_has_this_machines_time_zones(tmp_path: Path) -> None:
    with (tmp_path / "image.tar").open("wb") as file:
        write_rootfs(file)
    with tarfile.open(tmp_path / "image.tar") as archive:
        zone = archive.extractfile("usr/share/zoneinfo/UTC")
        assert zone is not None
        assert zone.read() == Path("/usr/share/zoneinfo/UTC").read_bytes()


def test_an_image_with_a_package_that_is_not_there_is_not_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["image", "--packages", "no-such"])
    with pytest.raises(SystemExit):
        image.main()
    assert "pip install no-such" in capsys.readouterr().err


async def test_a_server_lends_what_it_was_started_with_and_refuses_the_rest_in_words() -> None:
    server = Server(backend("bubblewrap"), SECRET, packages=["numpy"], package_backend=choose("bubblewrap", ["numpy"]))
    async with server.listening("127.0.0.1", 0) as port:
        url = f"http://127.0.0.1:{port}"
        client = RemoteBackend(url, SECRET, packages=("numpy",))
        sandbox = await client.create(TIGHT)
        assert (await sandbox.exec(Python("import numpy; print(numpy.arange(3).sum())"))).stdout == b"3\n"
        await sandbox.close()
        plain = RemoteBackend(url, SECRET)
        sandbox = await plain.create(TIGHT)
        assert b"No module named 'numpy'" in (await sandbox.exec(Python("import numpy"))).stderr
        await sandbox.close()
        greedy = RemoteBackend(url, SECRET, packages=("numpy", "sympy"))
        with pytest.raises(
            PackagesError, match=r"does not have the package sympy\. Start it with --packages numpy sympy"
        ):
            await greedy.create(TIGHT)
        headers = {"Authorization": f"Bearer {SECRET}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as raw:
            answer = await raw.post("/sandboxes", content=b'{"packages": [7]}')
        assert (answer.status_code, "invalid limits" in answer.text) == (400, True)
        for each in (client, plain, greedy):
            await each.close()


def test_the_client_is_told_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTRL_SANDBOX_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(RemoteBackend, "check", lambda _: None)  # whether anybody is there
    assert choose(packages=["Num.py"])._packages == ("num-py",)  # type: ignore[attr-defined]
