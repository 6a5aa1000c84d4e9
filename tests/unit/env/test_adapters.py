"""A scheme names the environments of another library: one class per id, its version and its files on record."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import agentrl
from agentrl.env import Adapter, close_shared, play, resolve, testing, wraps_of
from agentrl.env.adapter import adapted
from agentrl.env.registry import ENVIRONMENTS
from agentrl.errors import ConfigError, UnknownNameError
from agentrl.packaging.added import interpreter_of
from agentrl.plugins import registry
from agentrl.plugins.pickles import name_of
from agentrl.records import manifest
from agentrl.training.launch import default_out

ROOT = Path(__file__).parents[3]
ADAPTER = """
from agentrl.env import Adapter, EnvConfig, Limits, Message, Task, reward
from agentrl.errors import UnknownNameError

class Games(Adapter):
    class Config(EnvConfig):
        size: int = 3
    wraps = ("acme-games",)

    @classmethod
    def bound(cls, name):
        if name not in ("maze", "go-9x9"):
            raise UnknownNameError("game", name, ["maze", "go-9x9"])
        return cls.subclass(name, limits=Limits(max_turns=2))

    def tasks(self, split):
        return [Task(f"{split}/{n}", n) for n in range(self.config.size)]

    def setup(self, task, ctx):
        return [Message(role="user", content=f"{self.id} {task.data}")]

    @reward
    def right(self, ctx):
        return float(ctx.text == self.id)

    def oracle(self, task):
        return [self.id]
"""


def distribution(folder: Path, name: str, version: str, files: dict[str, str], announced: str = "") -> None:
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    written = {f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", **files}
    written |= {f"{info}/entry_points.txt": announced} if announced else {}
    written[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in written)
    for path, text in written.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


@pytest.fixture(autouse=True)
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An adapter with the scheme `acme`, and the library that it wraps."""
    files = {"acme_adapter.py": ADAPTER}
    distribution(tmp_path, "agentrl-adapter-acme", "9.0", files, "[agentrl.adapters]\nacme = acme_adapter:Games\n")
    distribution(tmp_path, "acme-games", "1.2.3", {"acme_games/__init__.py": "x = 1\n"})
    monkeypatch.syspath_prepend(str(tmp_path))
    caches = (registry.announced, adapted)
    for cache in caches:
        cache.cache_clear()
    yield tmp_path
    sys.modules.pop("acme_adapter", None)
    for cache in caches:
        cache.cache_clear()


def test_a_scheme_names_one_class_for_each_id() -> None:
    maze, go = resolve("acme:maze"), resolve("acme:go-9x9")
    assert issubclass(maze, Adapter)
    assert [maze.id, go.id] == ["maze", "go-9x9"]
    assert resolve("acme:maze") is maze is resolve("acme:maze@1.2") is not go
    assert name_of(ENVIRONMENTS, maze) == name_of(ENVIRONMENTS, resolve("acme:maze@1.2.3")) == "acme:maze"
    assert agentrl.load_config(env=maze).env[0].name == "acme:maze"
    assert name_of(ENVIRONMENTS, type("Mine", (maze,), {})) != "acme:maze"
    assert default_out("acme:maze").name.startswith("acme-maze-")


async def test_it_is_played_configured_and_rehearsed_as_any_environment() -> None:
    testing.check_environment(resolve("acme:maze"), tasks=2, episodes=4)
    [episode] = play(resolve("acme:maze")(size=1), ["maze"])
    assert (episode.reward, episode.messages[0]["content"]) == (1.0, "maze 0")
    assert testing.rehearse(resolve("acme:go-9x9")(), ["maze"], index=2).reward == 0.0
    testing.close_shared_sync()
    await close_shared()


def test_unknown_schemes_and_ids_get_the_nearest_one_and_what_to_install() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown scheme 'acm'.*'acme'") as unknown:
        resolve("acm:maze")
    assert "agentrl-adapter-acm" not in str(unknown.value)
    folders = re.findall(r"(\./adapters/\w+) \((\w+)\)", str(unknown.value))
    assert len(folders) == 5
    for folder, scheme in folders:
        announced = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]["entry-points"]
        assert list(announced["agentrl.adapters"]) == [scheme]
    with pytest.raises(UnknownNameError, match=r"unknown game 'mase'\. Did you mean 'maze'"):
        resolve("acme:mase")
    with pytest.raises(ConfigError, match="no_such_name"):
        resolve("json:no_such_name")  # a package of that name, and no scheme


def test_a_scheme_without_an_id_is_refused_with_how_to_list_ids() -> None:
    assert interpreter_of("acme:") is None
    with pytest.raises(
        ConfigError, match=r"'acme:': its id is missing; write acme:ID.*acme:x, is refused with the known"
    ):
        resolve("acme:")


def test_a_version_is_that_of_what_is_wrapped() -> None:
    with pytest.raises(ConfigError, match=r"acme-games 1\.2\.3 is installed; pip install 'acme-games==9\.0\.\*'"):
        resolve("acme:maze@9.0")
    assert resolve("acme:go-9x9>=1.2,<2") is resolve("acme:go-9x9")
    with pytest.raises(ConfigError, match=r"acme-games 1\.2\.3 is installed"):
        resolve("acme:go-9x9<1")


def test_the_manifest_names_what_is_wrapped_and_sees_a_changed_byte(acme: Path) -> None:
    first = manifest.plugin_source("acme:maze", resolve("acme:maze"))
    assert first.distribution == "agentrl-adapter-acme"
    assert [(w.distribution, w.version, len(w.sha256)) for w in first.wraps] == [("acme-games", "1.2.3", 64)]
    (acme / "acme_games/__init__.py").write_text("x = 2\n")
    second = manifest.plugin_source("acme:maze", resolve("acme:maze"))
    assert (first.sha256, first.version) == (second.sha256, second.version)
    one, two = (manifest.build_manifest([source], [], {}) for source in (first, second))
    assert manifest.changes(one, one) == []
    assert manifest.changes(one, two) == ["wrapped acme-games: its files"]


def test_a_module_is_wrapped_by_its_distribution_else_by_its_files(acme: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (acme / "loose.py").write_text("x = 1\n")
    distribution(acme, "acme-linked", "1.0", {"acme_linked-1.0.dist-info/top_level.txt": "linked\n"})
    (acme / "linked").mkdir()
    (acme / "linked/__init__.py").write_text("")
    for name in ("acme_games", "loose", "linked"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setitem(sys.modules, name, import_module(name))
    assert wraps_of("acme_games") == ("acme-games",)
    assert wraps_of("loose") == (str(acme / "loose.py"),)
    assert wraps_of("linked") == ("acme-linked", str(acme / "linked"))


def test_wraps_is_a_tuple_of_names() -> None:
    with pytest.raises(ConfigError, match=r"Mine: wraps is 'acme-games'; write a tuple"):
        type("Mine", (Adapter,), {"wraps": "acme-games", "__module__": "mine"})
