"""Where a run's configuration comes from: defaults, a TOML file, then flags or arguments. Unknown keys are refused."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from agentrl.config.keys import RESUMABLE, SHORT_FLAGS, absence_of, key_of, keys, keys_in, option_tables, renamed
from agentrl.config.schema import Config, EnvRolloutKeys, RewardModelKeys, RoleKeys, Section
from agentrl.config.values import plain
from agentrl.errors import ConfigError, did_you_mean

DEFAULT = "default"
MODELS = "reward.models"
ENV = "env"
ROLES = "roles"
"""The section whose keys have names that environments declare."""


@dataclass(frozen=True)
class Setting:
    """One value of a key: `key` is the dotted name, `source` says where it was set ("--lr", "run.toml:12")."""

    key: str
    value: Any
    source: str


@dataclass(frozen=True)
class Settings:
    """A configuration, and the source of each key that was set."""

    config: Config
    sources: dict[str, str]

    def source(self, key: str) -> str:
        """Return where the value of `key` comes from; keys of several environments come with their tables or names."""
        if key in self.sources or not (key.startswith(f"{ENV}.") and len(self.config.env) > 1):
            return self.sources.get(key, DEFAULT)
        return self.sources.get(ENV) or self.sources.get(f"{ENV}.name", DEFAULT)


def load(base: Path | Config | None = None, settings: Sequence[Setting] = ()) -> Config:
    """Return the configuration of a run: defaults, then `base`, a TOML file or a configuration, then the settings."""
    return read(base, settings).config


def read(base: Path | Config | None, settings: Sequence[Setting] = ()) -> Settings:
    """Return the configuration with the source of each value. Raises one ConfigError that lists every problem."""
    settings = _last_environments(
        [*(of_config(base) if isinstance(base, Config) else of_file(base) if base else ()), *settings]
    )
    problems = [problem for setting in settings if (problem := _unknown(setting))]
    if problems:
        raise ConfigError("\n".join(problems))
    tree: dict[str, Any] = {}
    for setting in settings:
        _plant(tree, setting)
    sources = {setting.key: setting.source for setting in settings}
    sources |= {
        table: source for table in option_tables() for key, source in sources.items() if key.startswith(f"{table}.")
    }
    try:
        return Settings(Config.model_validate(tree), sources)
    except ValidationError as error:
        lines = [_explain(detail, sources) for detail in error.errors(include_url=False)]
        raise ConfigError("\n".join(lines)) from None


def resumed(run: Path, settings: Sequence[Setting] = ()) -> Config:
    """Return the configuration of the run in the folder `run` with these settings.

    Raises ConfigError for a key that would make it another run.
    """
    file = run / "config.toml"
    config = load(file, settings)
    fixed = {setting.key: setting.source for setting in settings if not RESUMABLE.fullmatch(setting.key)}
    if MODELS in fixed and _are_same(load(file).reward.models, config.reward.models):
        del fixed[MODELS]
        models = tuple(keys.anchored for keys in config.reward.models)
        config = config.model_copy(update={"reward": config.reward.model_copy(update={"models": models})})
    if fixed:
        limit = ", except for url and token_env" if MODELS in fixed else ""
        raise ConfigError(
            f"{', '.join(fixed.values())} cannot change on resume{limit}. Start a new run: "
            f"`agentrl train --config {file} ... --out OTHER`"
        )
    way = config.weights.model_copy(update={"transfer": "auto"})  # it follows from the placement, which may change
    return config.model_copy(update={"weights": way})


def _are_same(old: Sequence[RewardModelKeys], new: Sequence[RewardModelKeys]) -> bool:
    """Return whether these are the same reward models, in the same order, if at other addresses."""
    return len(old) == len(new) and all(one.is_same(other) for one, other in zip(old, new, strict=True))


# --------------------------------------------------------------------------------------------------------------
# The ways to write settings.


def of_config(config: Config) -> list[Setting]:
    """Return the settings that a configuration was made of."""
    tree = config.model_dump(exclude_unset=True)
    if len(config.env) == 1 and "env" in tree:
        tree["env"] = tree["env"][0]
    return [Setting(key, value, "config") for key, value in _leaves(tree)]


def of_flags(flags: Iterable[tuple[str, str]]) -> list[Setting]:
    """Settings from flags: (name without dashes, text)."""
    texts = {key for key, info in keys().items() if info.annotation in (str, Path | None)}
    named = [(name, key_of(name), text) for name, text in flags]
    return [Setting(key, text if key in texts else _parse(text), f"--{name}") for name, key, text in named]


def of_arguments(arguments: Mapping[str, Any]) -> list[Setting]:
    """Settings from keyword arguments: short flags (lr, group_size), keys, or sections as dicts. None sets nothing.

    Raises ConfigError for two values of one key.
    """
    settings: list[Setting] = []
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            settings += of_section(name, value, f"argument {name}")
        elif value is not None:
            key = ENV if name == ENV and isinstance(value, list | tuple) else key_of(name)
            settings.append(_from_argument(key, value, f"argument {name}"))
    return distinct(settings)


def distinct(settings: list[Setting]) -> list[Setting]:
    """Return the settings. Raises ConfigError if two of them set the same key."""
    first: dict[str, Setting] = {}
    for setting in settings:
        other = first.setdefault(setting.key, setting)
        if other is not setting:
            raise ConfigError(f"{setting.key} is set twice ({other.source}, {setting.source}): leave one out")
    return settings


def of_section(section: str, values: Mapping[str, Any], source: str) -> list[Setting]:
    """Settings from the keys of one section."""
    items = ((key, value) for key, value in values.items() if value is not None)
    return [_from_argument(f"{section}.{key}", value, f"{source}[{key!r}]") for key, value in items]


def _from_argument(key: str, value: Any, source: str) -> Setting:
    try:
        return Setting(key, plain(value), source)
    except ValueError:
        kind = type(value).__name__
        raise ConfigError(f"{key} ({source}) has the type {kind}, which a run's config.toml cannot hold") from None


def of_file(path: Path) -> Iterator[Setting]:
    """Settings from a TOML file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        tree = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    for key, value in _leaves(tree):
        yield Setting(key, value, f"{path}{_line_of(text, key)}")


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict) and not prefix:
            yield from _leaves(value, f"{name}.")
        else:
            yield prefix + name, value


def _line_of(text: str, key: str) -> str:
    """':12' for the line that sets `key`, '' if the file does not set it as `name = value`."""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(rf"\s*\[\[\s*{re.escape(key)}\s*\]\]", line):
            return f":{number}"
        if header := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
            current = header[1]
        elif re.match(rf"\s*{re.escape(key.removeprefix(f'{current}.'))}\s*=", line):
            return f":{number}"
    return ""


def _parse(text: str) -> Any:
    """Parse a flag's text as TOML; what is not a number, boolean, list or table stays text."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, int | float | bool | list | dict) else text


def _last_environments(settings: list[Setting]) -> list[Setting]:
    """Leave out environments that others replace: tables by a later name, and the keys of one by later tables."""
    last = max((n for n, setting in enumerate(settings) if setting.key in (ENV, f"{ENV}.name")), default=0)
    is_tables = bool(settings) and settings[last].key == ENV
    return [
        setting
        for n, setting in enumerate(settings)
        if n >= last or not (setting.key.startswith(f"{ENV}.") if is_tables else setting.key == ENV)
    ]


def _plant(tree: dict[str, Any], setting: Setting) -> None:
    *sections, name = setting.key.split(".")
    for part in sections:
        tree = tree.setdefault(part, {})
        if part == ENV and isinstance(tree, list | tuple):
            raise ConfigError(
                f"{setting.key} ({setting.source}): the run has [[env]] tables; change the key there, or replace them "
                "all with --env"
            )
        if not isinstance(tree, dict):
            raise ConfigError(
                f"{setting.key!r} ({setting.source}): {part!r} is set to {tree!r}, so it has no keys inside"
            )
    tree[name] = setting.value


def _unknown(setting: Setting) -> str:
    """Return what is wrong with the name of a setting, '' if it is known; keys of plugins and roles come later."""
    known = keys()
    key = setting.key
    if key == ENV and isinstance(setting.value, list | tuple):
        return ""
    if now := renamed(key):
        return f"{key} ({setting.source}) is now called {now}."
    free = ("env.", "algorithm.", f"{ROLES}.", *(f"{table}." for table in option_tables()))
    if key in known or (key.startswith(free) and not key.endswith(".")):
        return ""
    sections = sorted({ROLES, *(k.partition(".")[0] for k in known if "." in k)})
    if key in sections:
        return f"{key!r} ({setting.source}) is a section, not a key: set one of {', '.join(keys_in(key))}."
    section, _, name = key.rpartition(".")
    if section and section not in sections:
        return f"unknown section {section!r} ({setting.source}).{did_you_mean(section, sections)}"
    unknown = f"unknown key {key!r} ({setting.source})."
    if why := absence_of(key):
        return f"{unknown} {why}."
    if namesakes := [k for k in known if k.rpartition(".")[2] == name]:
        return f"{unknown} Did you mean {' or '.join(map(repr, namesakes))}?"
    if section:
        return unknown + did_you_mean(key, keys_in(section))
    by_name = {k.rpartition(".")[2]: k for k in known} | {flag.replace("-", "_"): k for flag, k in SHORT_FLAGS.items()}
    near = difflib.get_close_matches(name, by_name, n=1)
    guess = f" Did you mean {by_name[near[0]]!r}?" if near else ""
    return f"{unknown}{guess} `agentrl config` lists every key."


TABLES: dict[str, type[Section]] = {"rollout": EnvRolloutKeys, "models": RewardModelKeys, ROLES: RoleKeys}
"""The keys of tables within a section, by the part of a key that names the table."""


def _explain(detail: ErrorDetails, sources: dict[str, str]) -> str:
    """Return one line per error of pydantic's: key, what is wrong, the value, where it was set."""
    known = keys()
    loc = [str(part) for n, part in enumerate(detail["loc"]) if not (n == 1 and isinstance(part, int))]
    key = next((k for k in (".".join(loc[:n]) for n in (1, 2)) if k in known), "")
    what = re.sub("^Input should be a valid (?=[aeiou])", "must be an ", detail["msg"])
    what = re.sub("^Input is not a valid path.*", "must be a path", what)
    what = what.replace("Input should be a valid", "must be a").replace("Input should", "must")
    if detail["type"] == "missing":
        what = "is required"
    elif detail["type"] == "extra_forbidden":
        others = next((table.model_fields for part, table in TABLES.items() if part in loc), {})
        what = f"is no key there.{did_you_mean(loc[-1], others)}"
    source = _source_within(loc, sources) or sources.get(key)
    source = source or (sources.get(ENV) or sources.get(f"{ENV}.name") if loc[0] == ENV else "")
    where = f" ({source})" if source else ""
    meaning = f". Meaning: {known[key].description}." if key in known else ""
    is_whole = key and loc[0] not in (ENV, ROLES) and detail["type"] != "extra_forbidden"
    name = key if is_whole else ".".join(loc)
    is_hidden = detail["type"] in ("missing", "extra_forbidden") or "@" in str(detail["input"])
    got = "" if is_hidden else f", got {detail['input']!r}"
    return f"{name} {what}{got}{where}{meaning}"


def _source_within(loc: Sequence[str], sources: dict[str, str]) -> str:
    """Return where the key at `loc` was set, or else where the keys of the table around it were; '' for a section."""
    for length in range(len(loc), 1, -1):
        name = ".".join(loc[:length])
        if found := [source for key, source in sources.items() if f"{key}.".startswith(f"{name}.")]:
            return ", ".join(dict.fromkeys(found))
    return ""
