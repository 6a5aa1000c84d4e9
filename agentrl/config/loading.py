"""Where a run's configuration comes from: defaults, one TOML file, then flags. Anything unknown is refused here."""

from __future__ import annotations

import datetime
import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, to_jsonable_python

from agentrl.config.schema import Config
from agentrl.errors import ConfigError, did_you_mean

DEFAULT, CHOSEN, IDLE = "default", "chosen for this machine", "no effect without"

# The everyday flags; every other key is set by its dotted name.
SHORT_FLAGS = {
    "env": "env.name",
    "model": "model.name",
    "algo": "algorithm.name",
    "steps": "steps",
    "prompts": "rollout.prompts",
    "group-size": "rollout.group_size",
    "max-tokens": "rollout.max_tokens",
    "lr": "learner.lr",
    "seed": "seed",
    "out": "out",
}

RENAMED = {
    "algorithm.kl_weight": "algorithm.kl_coef",
    "algorithm.importance_cap": "algorithm.tis_cap",
    "algorithm.filter_equal": "algorithm.filter_zero_variance",
    "algorithm.filter_batches": "algorithm.max_filtered_batches",
    "learner.minibatches": "learner.updates_per_batch",
    "learner.zero": "learner.zero_stage",
    "engine.eager": "engine.enforce_eager",
    "engine.gpu_memory": "engine.gpu_memory_utilization",
    "engine.max_sequences": "engine.max_num_seqs",
}
"""Keys of earlier versions, which are refused, and their present names."""

# What a run does not learn from, and a resume may change.
RESUMABLE = re.compile(r"steps|eval\.every|(checkpoint|track|engine)\..+|rollout\.workers|.+_timeout_s")


@dataclass(frozen=True)
class Settings:
    """A configuration, and for each key that was set where that was done ("--learner.lr", "run.toml:12")."""

    config: Config
    sources: dict[str, str]

    def source(self, key: str) -> str:
        """Where the value of `key` comes from."""
        return self.sources.get(key, DEFAULT)


@dataclass(frozen=True)
class Setting:
    """One value that somebody gave: `key` is its dotted name, `source` says where it stands."""

    key: str
    value: Any
    source: str


def load(toml: Path | None = None, overrides: list[tuple[str, str]] | None = None) -> Config:
    """The configuration of a run: defaults, then the TOML file, then the flags (name without dashes, text)."""
    return read(toml, overrides or []).config


def read(toml: Path | None, overrides: list[tuple[str, str]]) -> Settings:
    """Like `load`, and where each value comes from. Raises one ConfigError that lists every problem."""
    given = [*(_from_file(toml) if toml else ()), *(_from_flag(name, text) for name, text in overrides)]
    problems = [problem for setting in given if (problem := _unknown(setting))]
    if problems:
        raise ConfigError("\n".join(problems))
    tree: dict[str, Any] = {}
    for setting in given:
        _plant(tree, setting)
    sources = {setting.key: setting.source for setting in given}
    try:
        return Settings(Config.model_validate(tree), sources)
    except ValidationError as error:
        lines = [_explain(detail, sources) for detail in error.errors(include_url=False)]
        raise ConfigError("\n".join(lines)) from None


def resumed(run: Path, overrides: list[tuple[str, str]]) -> Config:
    """The configuration of the run in the folder `run` with these flags.

    Raises ConfigError for a key that would make it another run.
    """
    config = read(run / "config.toml", overrides).config
    fixed = [f"--{name}" for name, _ in overrides if not RESUMABLE.fullmatch(key_of(name))]
    if fixed:
        raise ConfigError(
            f"{', '.join(fixed)} cannot change in a resume: the run would not be one run. Start another with "
            f"`agentrl train --config {run / 'config.toml'} {' '.join(fixed)} ... --out OTHER`"
        )
    return config


def key_of(flag: str) -> str:
    """The key that a flag, given without its dashes, sets."""
    return SHORT_FLAGS.get(flag) or flag.replace("-", "_")


def keys(section: type[BaseModel] = Config, prefix: str = "") -> dict[str, FieldInfo]:
    """Every key by its dotted name, in the order of the definition."""
    out: dict[str, FieldInfo] = {}
    for name, info in section.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            out |= keys(info.annotation, f"{prefix}{name}.")
        else:
            out[prefix + name] = info
    return out


def value_of(config: Config, key: str) -> Any:
    """The value of a dotted key."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def to_toml(
    config: Config,
    settings: Settings | None = None,
    env: BaseModel | None = None,
    idle: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """A TOML file that gives `config` again: every key with its value, its meaning and, by `settings`, its source.

    With `settings` what was chosen for this machine is commented out, so that another machine chooses for itself, and
    so are the `idle` keys, with what they need to have an effect. With `env`, the env's own checked Config, its keys
    are written in the same way; else they stand as they were given.
    """
    lines: list[str] = []
    section = ""
    for key, info in keys().items():
        head = key.rpartition(".")[0]
        if head != section:
            section = head
            lines += ["", f"[{head}]"]
        value = value_of(config, key)
        origin = f"{IDLE} {idle[key]}" if key in idle else _origin(value, settings, key)
        lines.append(_toml_line(key, value, origin, meaning_of(info)))
        if key == "env.name":
            lines += _env_lines(config, settings, env)
    return "\n".join(lines) + "\n"


def _env_lines(config: Config, settings: Settings | None, env: BaseModel | None) -> Iterator[str]:
    if env is None:
        yield from (_toml_line(f"env.{name}", value) for name, value in config.env.options.items())
        return
    for name, info in type(env).model_fields.items():
        given = config.env.options.get(name)
        # A table is told as it was given: what the env's Config made of it is an object of the author's.
        value = given if isinstance(given, dict | list) else getattr(env, name)
        yield _toml_line(f"env.{name}", value, _origin(given, settings, f"env.{name}"), meaning_of(info))


def meaning_of(info: FieldInfo) -> str:
    """What a key means, and its values where they are enumerated."""
    choices = ", ".join(map(str, _choices(info.annotation)))
    return "; ".join(filter(None, [info.description, choices and f"values: {choices}"]))


def _choices(annotation: Any) -> list[Any]:
    """The values of the Literal in a type, as in `Literal["a", "b"]` or `tuple[Literal["a", "b"], ...]`."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [choice for inner in get_args(annotation) for choice in _choices(inner)]


def _toml_line(key: str, value: Any, origin: str = "", meaning: str | None = "") -> str:
    text = f"{key.rpartition('.')[2]} = {'' if value is None else _toml_text(value)}".rstrip()
    text = f"# {text}" if value is None or origin.startswith((CHOSEN, IDLE)) else text
    comment = " ".join(filter(None, [origin and f"[{origin}]", meaning]))
    return f"{text:<36} # {comment}" if comment else text


def _origin(value: Any, settings: Settings | None, key: str) -> str:
    if settings is None:
        return ""
    is_chosen = key in keys() and value != value_of(settings.config, key)
    return CHOSEN if is_chosen else settings.source(key)


def _toml_text(value: Any) -> str:
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, dict):
        items = ((key, item) for key, item in value.items() if item is not None)  # TOML has no null
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml_text(item)}" for key, item in items) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_text(item) for item in value if item is not None) + "]"
    if isinstance(value, str | int | float):
        is_odd = isinstance(value, float) and not math.isfinite(value)
        return str(value) if is_odd else json.dumps(value, ensure_ascii=False)
    return _toml_text(to_jsonable_python(value, fallback=str))


def _from_file(path: Path) -> Iterator[Setting]:
    try:
        text = path.read_text(encoding="utf-8")
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
    """':12' for the line that sets `key`, '' where the file sets it in another form than `name = value`."""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
            current = header[1]
        elif re.match(rf"\s*{re.escape(key.removeprefix(f'{current}.'))}\s*=", line):
            return f":{number}"
    return ""


def _from_flag(name: str, text: str) -> Setting:
    key = key_of(name)
    info = keys().get(key)
    is_text = info is not None and info.annotation in (str, Path, Path | None)
    return Setting(key, text if is_text else _parse(text), f"--{name}")


def _parse(text: str) -> Any:
    """A flag's text as TOML would read it; what is no number, boolean or list is the text itself."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, int | float | bool | list | dict) else text


def _plant(tree: dict[str, Any], setting: Setting) -> None:
    *sections, name = setting.key.split(".")
    for part in sections:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise ConfigError(
                f"{setting.key!r} ({setting.source}): {part!r} is set to {tree!r}, so it has no keys inside"
            )
    tree[name] = setting.value


def _unknown(setting: Setting) -> str:
    """What is wrong with the name of a setting, '' when it is known. Keys of `env` belong to the env's own Config."""
    known = keys()
    key = setting.key
    if key in known or (key.startswith("env.") and key.count(".") and not key.endswith(".")):
        return ""
    if key in RENAMED:
        return f"{key} ({setting.source}) was renamed: write {RENAMED[key]}."
    sections = sorted({k.partition(".")[0] for k in known if "." in k})
    if key in sections:
        return f"{key!r} ({setting.source}) is a section, not a key: set one of {', '.join(_inside(key))}."
    section, _, name = key.rpartition(".")
    if section and section not in sections:
        return f"unknown section {section!r} ({setting.source}).{did_you_mean(section, sections)}"
    here = f"unknown key {key!r} ({setting.source})."
    if namesakes := [k for k in known if k.rpartition(".")[2] == name]:
        return f"{here} Did you mean {' or '.join(map(repr, namesakes))}?"
    if section:
        return here + did_you_mean(key, _inside(section))
    by_name = {k.rpartition(".")[2]: k for k in known} | {flag.replace("-", "_"): k for flag, k in SHORT_FLAGS.items()}
    near = difflib.get_close_matches(name, by_name, n=1)
    guess = f" Did you mean {by_name[near[0]]!r}?" if near else ""
    return f"{here}{guess} `agentrl config` lists every key."


def _inside(section: str) -> list[str]:
    return [key for key in keys() if key.startswith(f"{section}.")]


def _explain(detail: ErrorDetails, sources: dict[str, str]) -> str:
    """One line for one of pydantic's complaints: key, what is wrong, what was given, where."""
    known = keys()
    key = next((k for k in (".".join(map(str, detail["loc"][:n])) for n in (1, 2)) if k in known), "")
    what = re.sub("^Input should be a valid (?=[aeiou])", "must be an ", detail["msg"])
    what = what.replace("Input should be a valid", "must be a").replace("Input should", "must")
    place = f" ({sources[key]})" if key in sources else ""
    meaning = f". Meaning: {known[key].description}." if key in known else ""
    return f"{key or '.'.join(map(str, detail['loc']))} {what}, got {detail['input']!r}{place}{meaning}"
