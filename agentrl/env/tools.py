"""Tools: methods that the model may call, described to it by their annotations and docstring."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from agentrl.env.arguments import BadCallError, as_object
from agentrl.errors import ConfigError, Fault, did_you_mean
from agentrl.types import Message, ToolCall, ToolSpec, as_unicode

F = TypeVar("F", bound=Callable[..., Any])
MARK = "__agentrl_tool__"
MAX_NAME_CHARS = 200
"""Length at which a tool name is cut: a model may write any."""
MAX_CHARACTERS = 400_000
"""Length at which a result is cut, because tokenizing takes time."""
ARGUMENT = re.compile(r"^\s{2,}\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.+)$")


def tool(method: F) -> F:
    """Offer this method to the model, which reads its docstring; arguments are checked against its annotations.

    The first paragraph describes the tool; an `Args:` section describes its parameters. It returns text, or a value
    that JSON can represent. The model reads what it raises, unless the exception has `fault = "infra"`.
    """
    if not inspect.isfunction(method):
        raise ConfigError(f"@tool on {method!r}: it marks a plain method and has no options")
    setattr(method, MARK, True)
    return method


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: `spec` describes it to the model, `read` parses the arguments, `run` is called with them by name.

    `run` is plain or async; by default `read` accepts any JSON object. `silence` is the fault of a call that reaches
    its deadline: "program" is reported to the model, "infra" ends the episode. If a call fails because of
    infrastructure, `blame` is called with the same arguments; if the call caused the failure, it returns what the model
    reads instead.
    """

    spec: ToolSpec
    run: Callable[..., Any]
    read: Callable[[dict[str, Any] | str], dict[str, Any]] = as_object
    silence: Fault = "program"
    blame: Callable[..., Awaitable[str]] | None = None
    """Must prove it: the same call breaks a fresh service, and a known-good request works. "" ends the episode."""


def checked(model: type[BaseModel], arguments: dict[str, Any] | str) -> dict[str, Any]:
    """Check and convert the keyword arguments of a call; raises BadCallError."""
    try:
        values = model.model_validate(as_object(arguments))
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors()]
        raise BadCallError("; ".join(faults)) from error
    names = {field: info.alias or field for field, info in model.model_fields.items()}
    return {name: getattr(values, field) for field, name in names.items() if field in values.model_fields_set}


class Schema(GenerateJsonSchema):
    """JSON schema without pydantic's titles, because the model reads every token of it."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        """Return False for every field."""
        return False


@cache
def tools_of(owner: type) -> dict[str, Tool]:
    """Return the `@tool` methods of a class by name, unbound, in the order of definition; built once per class."""
    return {name: describe_tool(owner, name, method) for name, method in marked(owner, MARK)}


def bound_tools(owner: Any) -> list[Tool]:
    """Return the `@tool` methods of an object."""
    kind: type = type(owner)
    return [replace(tool, run=getattr(owner, name)) for name, tool in tools_of(kind).items()]


def marked(owner: type, mark: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the methods of a class that carry `mark`, in the order of definition, base classes first."""
    names = dict.fromkeys(name for base in reversed(owner.__mro__) for name in vars(base))
    for name in names:
        method = inspect.getattr_static(owner, name)
        if not hasattr(unwrapped(method), mark):
            continue
        if unwrapped(method) is not method:
            raise ConfigError(f"{owner.__name__}.{name}: agentrl reads methods only: remove @{type(method).__name__}")
        yield name, method


def unwrapped(value: Any) -> Any:
    """Return the function below @staticmethod, @classmethod, @property or @cached_property; anything else as it is."""
    return next((getattr(value, name) for name in ("__func__", "fget", "func") if hasattr(value, name)), value)


def why_no_method(method: Callable[..., Any]) -> str:
    """Return what is wrong with a `@tool` whose first parameter is not the object; '' if it is."""
    first = next(iter(inspect.signature(method).parameters.values()), None)
    if first and (first.name == "self" or first.annotation is first.empty):
        return ""
    return f"has {first or 'nothing'} as its first parameter: write self before the arguments of the model"


def describe_tool(owner: type, name: str, method: Callable[..., Any]) -> Tool:
    """Build a tool from a method's signature; raises ConfigError for a missing or unusable annotation."""
    where = f"@tool {owner.__name__}.{name}"
    if fault := why_no_method(method):
        raise ConfigError(f"{where} {fault}")
    summary, descriptions = read_docstring(method)
    arguments = argument_model(method, descriptions, where)
    try:
        parameters = arguments.model_json_schema(schema_generator=Schema)
    except PydanticUserError as error:
        raise ConfigError(f"{where}: {unusable(error)}") from error
    for schema in (parameters, *parameters.get("$defs", {}).values()):
        schema.pop("title", None)
    parameters.setdefault("properties", {})
    spec = ToolSpec(name=name, description=summary, parameters=parameters)
    return Tool(spec, method, partial(checked, arguments))


def argument_model(method: Callable[..., Any], descriptions: dict[str, str], where: str) -> type[BaseModel]:
    """Return a pydantic model of the method's parameters. Field names are neutral: a parameter may be called `copy`."""
    try:
        hints = get_type_hints(method, include_extras=True)
    except NameError as error:
        raise ConfigError(f"{where}: {error}; annotations must be names of its module") from error
    fields: dict[str, Any] = {}
    for number, parameter in enumerate(list(inspect.signature(method).parameters.values())[1:]):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ConfigError(f"{where}: parameter {parameter} cannot be given by name; write plain parameters")
        if parameter.name not in hints:
            raise ConfigError(
                f"{where}: parameter {parameter.name!r} has no annotation; write e.g. {parameter.name}: str"
            )
        if getattr(hints[parameter.name], "__module__", "") == "agentrl.env.context":
            raise ConfigError(f"{where}: the model gives {parameter}; the episode is self.ctx, without a parameter")
        default = ... if parameter.default is parameter.empty else parameter.default
        info = Field(default, alias=parameter.name, description=descriptions.get(parameter.name))
        fields[f"argument_{number}"] = (hints[parameter.name], info)
    try:
        return create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
    except PydanticUserError as error:
        raise ConfigError(f"{where}: {unusable(error)}") from error


def unusable(error: PydanticUserError) -> str:
    """Return what is wrong with an annotation, in one line."""
    return (
        f"annotate with a type that JSON can represent, such as int, str or list[str] ({str(error).partition('. ')[0]})"
    )


def read_docstring(method: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the first paragraph, and the descriptions of the `Args:` section by parameter."""
    text = inspect.getdoc(method) or ""
    summary = " ".join(text.split("\n\n")[0].split())
    section = re.split(r"^(?:Args|Arguments|Parameters):\s*$", text, maxsplit=1, flags=re.MULTILINE)
    descriptions: dict[str, str] = {}
    name = ""
    for line in section[1].splitlines() if len(section) > 1 else []:
        if match := ARGUMENT.match(line):
            name = match[1]
            descriptions[name] = match[2].strip()
        elif line.strip() and not line.startswith(" "):
            break
        elif line.strip() and name:
            descriptions[name] += f" {line.strip()}"
    return summary, descriptions


def unknown_tool(name: str, tools: dict[str, Tool]) -> str:
    """Return the answer to a call of a tool that does not exist."""
    shown = name[:MAX_NAME_CHARS]
    what = f"unknown tool {shown!r}" if shown else "the call cannot be read: it names no tool"
    return f"{what}.{did_you_mean(shown, tools)}"


def as_text(value: Any) -> str:
    """Return a tool's result as the model reads it: text as it is, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def tool_message(call: ToolCall, text: str) -> Message:
    """Return the tool message that answers a call; text too long for any context is cut."""
    if len(text) > MAX_CHARACTERS:
        text = f"{text[:MAX_CHARACTERS]}\n[{len(text) - MAX_CHARACTERS} more characters]"
    message = Message(role="tool", content=as_unicode(text), name=as_unicode(call["function"]["name"][:MAX_NAME_CHARS]))
    if "id" in call:
        message["tool_call_id"] = call["id"]
    return message
