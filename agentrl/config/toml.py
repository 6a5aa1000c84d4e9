"""A configuration as a TOML file that gives the same configuration again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from types import MappingProxyType
from typing import Any

import tomlkit
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from agentrl.config.keys import keys, meaning_of, unset_of, value_of
from agentrl.config.loading import DEFAULT, ENV, Settings
from agentrl.config.schema import Config, PluginSection, Section
from agentrl.config.values import toml_text

CHOSEN, IDLE = "chosen for this", "no effect without"
FOR_MACHINE = f"{CHOSEN} machine"
OF_ALGORITHM = ("learner.epochs",)
"""Keys whose default depends on the algorithm."""


def to_toml(
    config: Config,
    settings: Settings | None = None,
    plugins: Mapping[str, Sequence[BaseModel | None]] = MappingProxyType({}),
    idle: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return a TOML file that gives `config` again: every key with value, meaning and, with `settings`, source.

    With `settings`, values chosen for this machine are commented out so that another machine chooses its own, as are
    the `idle` keys, each with what it needs to have an effect. `plugins`, the checked Configs of the environments
    ("env", None for one in another interpreter) and of the algorithm, add the keys that were not set, commented out:
    their values depend on the class and on the keys that were set.
    """
    lines: list[str] = []
    for head, group in groupby(keys().items(), key=lambda item: item[0].rpartition(".")[0]):
        known = dict(group)
        for header, section, plugin in _tables(config, head, plugins.get(head, ())):
            lines += ["", header] if header else []
            values = ((key, info, getattr(section, key.rpartition(".")[2])) for key, info in known.items())
            lines += [_key_line(key, info, value, settings, idle) for key, info, value in values]
            if isinstance(section, PluginSection):
                lines += _option_lines(head, section.options, settings, plugin, idle)
    return "\n".join(lines) + "\n"


def _tables(
    config: Config, head: str, plugins: Sequence[BaseModel | None]
) -> Iterator[tuple[str, Section, BaseModel | None]]:
    """Yield the tables of a section with their headers and plugins: several for several environments."""
    section = getattr(config, head) if head else config
    tables = section if isinstance(section, tuple) else (section,)
    header = f"[[{head}]]" if len(tables) > 1 else f"[{head}]" if head else ""
    yield from ((header, table, plugin) for table, plugin in zip_longest(tables, plugins))


def _option_lines(
    section: str,
    options: Mapping[str, Any],
    settings: Settings | None,
    plugin: BaseModel | None,
    idle: Mapping[str, str],
) -> Iterator[str]:
    if plugin is None:
        yield from (_line(name, value) for name, value in options.items())
        return
    for name, info in type(plugin).model_fields.items():
        # A table is written as it was set: the Config may have made an object of the author's from it.
        is_table = isinstance(options.get(name), dict | list)
        value = options[name] if is_table else getattr(plugin, name)
        yield _key_line(f"{section}.{name}", info, value, settings, idle, is_set=name in options)


def _key_line(
    key: str, info: FieldInfo, value: Any, settings: Settings | None, idle: Mapping[str, str], *, is_set: bool = True
) -> str:
    origin = f"{IDLE} {idle[key]}" if key in idle else _origin(value, settings, key, is_set=is_set)
    shown = None if unset_of(info) and value == info.default else value
    return _line(key.rpartition(".")[2], shown, origin, meaning_of(info), is_set=is_set)


def _origin(value: Any, settings: Settings | None, key: str, *, is_set: bool) -> str:
    if settings is None:
        return ""
    if not is_set:
        return DEFAULT
    if key.startswith(f"{ENV}."):  # of them only the interpreter of an added environment is chosen
        info, source = keys().get(key), settings.source(key)
        if info is None or key in settings.sources:
            return source
        return DEFAULT if value == info.default else FOR_MACHINE if source == DEFAULT else source
    if key in keys() and value != value_of(settings.config, key):
        return f"{CHOSEN} algorithm" if key in OF_ALGORITHM else FOR_MACHINE
    return settings.source(key)


def _line(name: str, value: Any, origin: str = "", meaning: str = "", *, is_set: bool = True) -> str:
    """`name = value  # [origin] meaning`; commented out when there is no value or this run does not set it."""
    text = f"{tomlkit.key(name).as_string()} = {'' if value is None else toml_text(value)}".rstrip()
    text = f"# {text}" if value is None or not is_set or origin.startswith((CHOSEN, IDLE)) else text
    comment = " ".join(filter(None, [origin and f"[{origin}]", meaning]))
    return f"{text:<36} # {comment}" if comment else text
