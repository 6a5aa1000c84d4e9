"""The token that processes of a Ray cluster show each other: Ray runs the code of anyone who can connect."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

import ray._raylet
from ray.exceptions import AuthenticationError, RpcError

from agentrl.errors import RunError

MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
FILE = "ray-token"
_raylet: Any = ray._raylet


class Authentication:
    """Authentication of this process and its children. A token that the user has named is left as it is.

    Ray itself would write a token into the home folder for every cluster that is started here, which then differs from
    that of other machines and keeps them from joining.
    """

    def __init__(self) -> None:
        self._before = {name: os.environ.get(name) for name in (MODE, TOKEN_PATH)}
        self._file: Path | None = None

    def begin(self, folder: Path) -> None:
        """Protect a cluster that is started now with a token of its own, in the folder of the run."""
        if os.environ.get(MODE, "token").lower() != "token" or os.environ.get(TOKEN) or os.environ.get(TOKEN_PATH):
            return
        self._file = folder / FILE
        self._file.unlink(missing_ok=True)
        self._file.touch(0o600)
        self._file.write_text(secrets.token_hex(32))
        os.environ[TOKEN_PATH] = str(self._file)
        _raylet.AuthenticationTokenLoader.instance().reset_cache()

    def join(self, address: str) -> None:
        """Show the token of this machine to the cluster at `address`, "" if it is not known.

        Raises RunError at once if there is none to show, where Ray would abort the process, or if the cluster refuses
        it, where Ray would try for twenty seconds.
        """
        mode, loader = os.environ.get(MODE, ""), _raylet.AuthenticationTokenLoader.instance()
        has_token = loader.has_token(ignore_auth_mode=True)
        if mode.lower() == "token" and not has_token:
            raise self._refused(address)
        if not mode and has_token:
            os.environ[MODE] = "token"
            _raylet.Config.initialize("")
        if not address:
            return
        try:
            _raylet.GcsClient(address=address)
        except RpcError:
            return  # it is not for the token that Ray will fail
        except AuthenticationError:
            raise self._refused(address) from None

    def _refused(self, address: str) -> RunError:
        self.end()
        cluster, host = (f" at {address}", address.rpartition(":")[0]) if address else ("", "HEAD")
        return RunError(
            f"the Ray cluster{cluster} refuses this machine: its token is missing or another one. Copy it from the "
            f'head: mkdir -p ~/.ray && scp {host}:.ray/auth_token ~/.ray/ (docs/scale-out.md, "On several machines")'
        )

    def end(self) -> None:
        """Restore the environment, and remove the token. Idempotent."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if self._file is not None:
            self._file.unlink(missing_ok=True)
        _raylet.Config.initialize("")
        _raylet.AuthenticationTokenLoader.instance().reset_cache()
