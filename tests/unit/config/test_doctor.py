"""`agentrl doctor` names what is missing with its fix, and a broken check of another package does not end it."""

from __future__ import annotations

import dataclasses
from importlib import metadata

import pytest

from agentrl.config import doctor
from agentrl.config.doctor import CHECKS_GROUP, examine
from agentrl.config.machine import Machine, detect
from agentrl.errors import ConfigError


@pytest.fixture(scope="module")
def here() -> Machine:
    return detect()


def fixes(machine: Machine) -> dict[str, str]:
    return {check.name: check.fix for check in examine(machine) if not check.is_ok}


def test_the_torchvision_trap_is_found_with_its_fix(here: Machine) -> None:
    packages = {"torch": "2.13.0+cpu", "torchvision": "0.28.0", "torchaudio": "2.13.0"}
    trapped = dataclasses.replace(here, packages=packages)
    assert fixes(trapped)["torchvision trap"] == "pip uninstall -y torchvision torchaudio"


@pytest.mark.parametrize("packages", [{"torch": "2.13.0+cpu"}, {"torch": "2.13.0", "torchvision": "0.28.0"}])
def test_no_trap_without_a_mismatch(here: Machine, packages: dict[str, str]) -> None:
    assert "torchvision trap" not in fixes(dataclasses.replace(here, packages=packages))


def test_every_lack_has_a_fix(here: Machine) -> None:
    bare = dataclasses.replace(
        here,
        packages={},
        docker=False,
        bubblewrap=False,
        libnuma=False,
        shm_gib=0.06,
        free_memory_gib=1.0,
        disk_gib=1.0,
    )
    lacks = [check for check in examine(bare) if not check.is_ok]
    assert {"torch", "ray", "deepspeed", "docker", "bubblewrap", "/dev/shm", "memory", "disk"} <= {
        c.name for c in lacks
    }
    assert all(check.fix for check in lacks)


def test_environments_and_the_schemes_of_adapters_are_listed(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    points = [metadata.EntryPoint(name, "no_such_module:Class", "") for name in ("rg", "gym")]
    monkeypatch.setattr(doctor.metadata, "entry_points", lambda group: [] if group == CHECKS_GROUP else points)
    found = {check.name: check.found for check in examine(here)}
    assert (found["environments"], found["adapters"]) == ("gym, rg", "gym:, rg:")


def test_checks_of_other_packages_are_asked(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    good = metadata.EntryPoint("good", f"{__name__}:finding", CHECKS_GROUP)
    broken = metadata.EntryPoint("broken", f"{__name__}:raising", CHECKS_GROUP)
    gone = metadata.EntryPoint("gone", "no_such_module_at_all:check", CHECKS_GROUP)
    failing = metadata.EntryPoint("failing", f"{__name__}:fails", CHECKS_GROUP)
    refusing = metadata.EntryPoint("refusing", f"{__name__}:refuses", CHECKS_GROUP)
    mine = [good, broken, gone, refusing, failing]
    real = metadata.entry_points
    monkeypatch.setattr(
        doctor.metadata, "entry_points", lambda group: mine if group == CHECKS_GROUP else real(group=group)
    )
    found = {check.name: check for check in examine(here)}
    assert found["verifier pool"].found == "4 workers"
    assert found["broken"].found == "RuntimeError: no pool"
    assert "ModuleNotFoundError" in found["gone"].found
    assert found["refusing"].found == "ConfigError: no data"
    assert found["failing"].found == "PackagesOwnError: no folder"


def finding() -> list[tuple[str, bool, str, str]]:
    return [("verifier pool", True, "4 workers", "")]


class PackagesOwnError(Exception):
    """As a package may have them."""


def fails() -> list[tuple[str, bool, str, str]]:
    raise PackagesOwnError("no folder")


def refuses() -> list[tuple[str, bool, str, str]]:
    raise ConfigError("no data")


def raising() -> list[tuple[str, bool, str, str]]:
    raise RuntimeError("no pool")
