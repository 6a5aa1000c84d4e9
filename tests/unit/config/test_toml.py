"""The TOML file of a configuration gives the same configuration again, whatever values its keys hold."""

from __future__ import annotations

import datetime
import math
import tomllib
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from agentrl.config.keys import keys, unset_of
from agentrl.config.loading import load, of_arguments, read
from agentrl.config.schema import Config
from agentrl.config.toml import to_toml, toml_text
from agentrl.env import EnvConfig


class Level(Enum):
    EASY, HARD = "easy", "hard"


class Service(BaseModel):
    model_config = ConfigDict(frozen=True)
    url: str = "http://x"
    headers: dict[str, str | int | None] = Field({})
    ratio: float = math.inf


class Everything(EnvConfig):
    day: datetime.date = datetime.date(2026, 1, 2)
    hour: datetime.time = datetime.time(1, 2, 3, 4)
    moment: datetime.datetime = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC)
    ratio: float = 1e-7
    bounds: tuple[float, float] = (-math.inf, 1e22)
    by_day: dict[datetime.date, float] = Field({})
    by_ratio: dict[float, list[dict[str, tuple[int, ...]]]] = Field({})
    folder: Path = Path("a b")
    files: tuple[Path, ...] = ()
    level: Level = Level.EASY
    kinds: frozenset[str] = frozenset()
    service: Service = Service()
    services: list[Service] = Field([])
    text: str = ""
    nested: dict[str, dict[str, dict[str, str | bool | float | int]]] = Field({})
    none: int | None = None


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
OFFSETS = st.one_of(st.none(), st.integers(-1439, 1439).map(lambda n: datetime.timezone(datetime.timedelta(minutes=n))))
FLOATS = st.floats(allow_nan=False)
SERVICES = st.builds(
    Service, url=TEXT, headers=st.dictionaries(TEXT, st.one_of(TEXT, st.integers()), max_size=3), ratio=FLOATS
)
SCALARS = st.one_of(TEXT, st.booleans(), FLOATS, st.integers())
PATHS = TEXT.filter(lambda text: "\0" not in text).map(Path)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "day": st.dates(),
    "hour": st.times(timezones=OFFSETS),
    "moment": st.datetimes(timezones=OFFSETS),
    "ratio": FLOATS,
    "bounds": st.tuples(FLOATS, FLOATS),
    "by_day": st.dictionaries(st.dates(), FLOATS),
    "by_ratio": st.dictionaries(
        FLOATS, st.lists(st.dictionaries(TEXT, st.lists(st.integers(), max_size=3).map(tuple), max_size=2), max_size=2)
    ),
    "folder": PATHS,
    "files": st.lists(PATHS, max_size=3).map(tuple),
    "level": st.sampled_from(Level),
    "kinds": st.frozensets(TEXT, max_size=3),
    "service": SERVICES,
    "services": st.lists(SERVICES, max_size=3),
    "text": TEXT,
    "nested": st.dictionaries(
        TEXT, st.dictionaries(TEXT, st.dictionaries(TEXT, SCALARS, max_size=2), max_size=2), max_size=2
    ),
    "none": st.one_of(st.none(), st.integers()),
}
EXAMPLES = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@EXAMPLES
@given(options=st.fixed_dictionaries({}, optional=VALUES))
def test_the_environments_keys_are_read_back_equal(options: dict[str, Any], tmp_path: Path) -> None:
    wanted = Everything(**options)
    file = tmp_path / "run.toml"
    run = read(None, of_arguments({"env": {"name": "x", **options}}))
    printed = to_toml(run.config, run, {"env": [wanted]})
    for text in (to_toml(run.config), printed):
        file.write_text(text, encoding="utf-8", newline="")
        assert Everything(**load(file).env[0].options) == wanted


def test_every_strategy_has_a_key_and_every_key_a_strategy() -> None:
    assert VALUES.keys() == Everything.model_fields.keys()


@pytest.mark.parametrize("value", [math.nan, [math.nan], {"a": math.nan}])
def test_nan_is_read_back_as_nan(value: Any, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(to_toml(load(None, of_arguments({"env": {"x": value}}))))
    assert repr(load(tmp_path / "run.toml").env[0].options) == repr({"x": value})


NAMES = TEXT.filter(str.strip)
RUN = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.integers(0, 2**32 - 1),
        "steps": st.integers(1),
        "out": NAMES.filter(lambda text: "\0" not in text),
        "model": NAMES,
        "lr": st.floats(0, 1),
        "max_tokens": st.integers(0),
        "engine": st.fixed_dictionaries({}, optional={"enforce_eager": st.booleans(), "threads": st.integers(0)}),
        "rollout": st.fixed_dictionaries({}, optional={"max_turns": st.integers(0), "on_stale": st.just("wait")}),
        "track": st.fixed_dictionaries({}, optional={"wandb": st.booleans(), "wandb_project": NAMES}),
    },
)


@EXAMPLES
@given(arguments=RUN)
def test_the_keys_of_a_run_are_read_back_equal(arguments: dict[str, Any], tmp_path: Path) -> None:
    config = load(None, of_arguments(arguments))
    (tmp_path / "run.toml").write_text(to_toml(config), encoding="utf-8", newline="")
    assert load(tmp_path / "run.toml") == config


def test_no_sentinel_stands_for_a_default() -> None:
    unset = {key: info for key, info in keys().items() if unset_of(info)}
    assert {info.default for info in unset.values()} == {0, "", "auto", None}
    assert {key for key, info in keys().items() if info.default in ("", "auto", None)} <= unset.keys()
    text = to_toml(Config())
    tree = tomllib.loads(text)
    written = {f"{name}.{key}" for name, section in tree.items() if isinstance(section, dict) for key in section}
    assert (written | tree.keys()) & unset.keys() == set()
    for key, info in unset.items():
        unset_line = next(line for line in text.splitlines() if line.startswith(f"# {key.rpartition('.')[2]} = "))
        assert f"# {info.description}" in text
        assert unset_line.partition(" = ")[2].lstrip().startswith("#")


@pytest.mark.parametrize(
    "value", [datetime.time(1, tzinfo=datetime.UTC), Path("a"), {1, 2}, b"x", 10**40, "\x7f\r\n\t'\"\\"]
)
def test_any_value_is_one_line(value: Any) -> None:
    assert "\n" not in toml_text(value)
