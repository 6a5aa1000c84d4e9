"""Ray's token: one of its own for a cluster on this machine, and the command that copies it to join another."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray.exceptions import AuthenticationError

from agentrl.cluster.ray import authentication
from agentrl.cluster.ray.authentication import FILE, MODE, TOKEN, TOKEN_PATH, Authentication
from agentrl.errors import RunError

ADDRESS = "10.0.0.1:6379"
COPY = (
    r"the Ray cluster at 10\.0\.0\.1:6379 refuses this machine: .* "
    r"mkdir -p ~/\.ray && scp 10\.0\.0\.1:\.ray/auth_token ~/\.ray/"
)


class Raylet:
    """Ray's own part: whether this machine has a token, and whether the cluster accepts it."""

    def __init__(self) -> None:
        self.has_token, self.is_refused, self.asked, self.modes = True, False, list[str](), list[str]()
        loader = SimpleNamespace(has_token=lambda ignore_auth_mode: self.has_token, reset_cache=lambda: None)
        self.AuthenticationTokenLoader = SimpleNamespace(instance=lambda: loader)
        self.Config = SimpleNamespace(initialize=lambda _: self.modes.append(os.environ.get(MODE, "")))

    def GcsClient(self, address: str) -> None:  # noqa: N802
        self.asked.append(address)
        if self.is_refused:
            raise AuthenticationError("no")


@pytest.fixture
def raylet(monkeypatch: pytest.MonkeyPatch) -> Raylet:
    for name in (MODE, TOKEN, TOKEN_PATH):
        monkeypatch.delenv(name, raising=False)
    raylet = Raylet()
    monkeypatch.setattr(authentication, "_raylet", raylet)
    return raylet


@pytest.mark.parametrize("mode", ["", "token"])
@pytest.mark.usefixtures("raylet")
def test_a_cluster_on_this_machine_has_a_token_of_its_own_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """On a machine of a cluster RAY_AUTH_MODE is set, as docs/scale-out.md says."""
    if mode:
        monkeypatch.setenv(MODE, mode)
    made = Authentication()
    made.begin(tmp_path)
    token = tmp_path / FILE
    assert os.environ[TOKEN_PATH] == str(token)
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert len(token.read_text()) == 64
    made.end()
    made.end()
    assert not token.exists()
    assert TOKEN_PATH not in os.environ


@pytest.mark.parametrize(("name", "mine"), [(MODE, "disabled"), (TOKEN, "mine"), (TOKEN_PATH, "mine")])
@pytest.mark.usefixtures("raylet")
def test_a_choice_of_the_user_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mine: str
) -> None:
    monkeypatch.setenv(name, mine)
    made = Authentication()
    made.begin(tmp_path)
    made.end()
    assert list(tmp_path.iterdir()) == []
    assert os.environ[name] == mine


def test_the_token_of_this_machine_is_shown(raylet: Raylet) -> None:
    made = Authentication()
    made.join(ADDRESS)
    assert (os.environ[MODE], raylet.modes, raylet.asked) == ("token", ["token"], [ADDRESS])
    made.end()
    assert MODE not in os.environ


@pytest.mark.parametrize(("mode", "has_token"), [("", True), ("", False), ("token", True)])
def test_a_machine_that_is_refused_is_told_what_to_copy(
    raylet: Raylet, monkeypatch: pytest.MonkeyPatch, mode: str, has_token: bool
) -> None:
    raylet.has_token, raylet.is_refused = has_token, True
    if mode:
        monkeypatch.setenv(MODE, mode)
    with pytest.raises(RunError, match=COPY):
        Authentication().join(ADDRESS)
    assert os.environ.get(MODE, "") == mode, "a later run on this machine is not affected"


def test_a_machine_without_a_token_asks_no_cluster_that_wants_one(
    raylet: Raylet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray would abort the process."""
    raylet.has_token = False
    monkeypatch.setenv(MODE, "token")
    with pytest.raises(RunError, match=COPY):
        Authentication().join(ADDRESS)
    with pytest.raises(RunError, match=r"the Ray cluster refuses this machine: .* scp HEAD:\.ray/auth_token"):
        Authentication().join("")
    assert raylet.asked == []
