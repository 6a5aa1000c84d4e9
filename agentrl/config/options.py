"""The keys of a plugin, such as `--env.*` and `--algorithm.*`: checked by its own `class Config`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from agentrl.config.schema import Config, Keys
from agentrl.errors import ConfigError, UnknownNameError

C = TypeVar("C", bound=Keys)
LIST_ERRORS = {"tuple_type", "list_type", "set_type", "frozen_set_type"}
"""pydantic's error types for a value that should be one of these."""


def checked_options(
    schema: type[C], options: Mapping[str, Any], section: str, owner: str, beside: Iterable[str] = ()
) -> C:
    """Validate `options`, the keys of `section`, as the configuration of the class called `owner`.

    `beside` are keys of the section that every class has.

    A comma-separated string is accepted for list and tuple fields: `--env.kinds single,multiple`. Raises ConfigError
    that names each invalid key and, for an unknown key, the nearest known one.
    """
    for key, value in options.items():
        if key not in schema.model_fields:
            hint = f"A file has {key} above its first section." if key in Config.model_fields else ""
            if isinstance(value, Mapping) and value:
                hint = f"Its keys have no name before them: write {section}.{next(iter(value))}."
            known = [f"{section}.{k}" for k in (*schema.model_fields, *beside)]
            raise UnknownNameError(f"key of {owner}", f"{section}.{key}", known, hint)
    try:
        return _validated(schema, options)
    except ValidationError as error:
        faults = (_explained(fault, section) for fault in error.errors(include_url=False))
        raise ConfigError(f"{owner}: {'; '.join(faults)}") from error


def _validated(schema: type[C], options: Mapping[str, Any]) -> C:
    try:
        return schema.model_validate(options)
    except ValidationError as error:
        if not (lists := _split_lists(error)):
            raise
        return schema.model_validate({**options, **lists})


def _split_lists(error: ValidationError) -> dict[str, list[str]]:
    """Return the strings that were given for list fields, split at their commas."""
    texts = {e["loc"][0]: e["input"] for e in error.errors() if e["type"] in LIST_ERRORS and len(e["loc"]) == 1}
    return {
        str(key): [item.strip() for item in text.split(",") if item.strip()]
        for key, text in texts.items()
        if isinstance(text, str)
    }


def _explained(fault: ErrorDetails, section: str) -> str:
    """Return a pydantic error in the words of a run's own keys: the key, what is wrong, and the value."""
    key = ".".join(map(str, (section, *fault["loc"])))
    if fault["type"] == "missing":
        return f"{key} is required: give --{key} VALUE"
    what = fault["msg"].removeprefix("Value error, ")
    if not fault["loc"]:
        return what
    must = what.replace("Input should", "must", 1)
    return f"{key}{'' if must.startswith('must') else ':'} {must}, got {fault['input']!r}"
