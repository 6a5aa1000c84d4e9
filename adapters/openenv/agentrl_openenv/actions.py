"""From a model's text to an action: by the JSON schema that the server publishes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from agentrl.env import Message

Schema = Mapping[str, Any]
OWN = ("metadata",)
"""Fields that every action has."""
NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:(?!(?<=[(\[{])[\d,]+[)\]}])\d{1,3}(?:,\d{3})+(?!\d)|\d+|(?=\.\d))(?:\.\d+)?(?:[eE][-+]?\d+)?"
)
"""Commas between thousands belong to the number, but not in a pair: (120,340)."""
LETTER = r"[^\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]"
"""A letter of a script that has spaces between words."""
LARGEST = 10**18
"""No action is a larger number."""
OBJECT = re.compile(r"""\{\s*["}]""")
MAX_BROKEN = 100
"""Beginnings of JSON objects that do not end, after which a text is not searched any further."""


def fields_of(schema: Schema) -> dict[str, Schema]:
    """Return the fields of an action that the model chooses."""
    return {name: field for name, field in schema.get("properties", {}).items() if name not in OWN}


def is_tools(schema: Schema) -> bool:
    """Return whether the actions are calls of tools."""
    return {"tool_name", "arguments"} <= fields_of(schema).keys()


def speaks(schema: Schema) -> bool:
    """Return whether a plain text is an action where calls of tools are: a field `message` takes it."""
    return not is_tools(schema) or "message" in fields_of(schema)


def only_field(schema: Schema) -> tuple[str, Schema] | None:
    """Return the field that a plain text sets: the only required one, or the only one; None if there are several."""
    fields = fields_of(schema)
    names = [name for name in schema.get("required", ()) if name in fields] or list(fields)
    if len(names) != 1:
        return None
    field = fields[names[0]]
    return (names[0], field) if "enum" in field or field.get("type") in ("string", "integer", "number") else None


def request(schema: Schema) -> str:
    """Return what the model reads about its answers."""
    if is_tools(schema):
        return ""
    if only := only_field(schema):
        name, field = only
        if "enum" in field:
            return f"Answer with one of: {', '.join(map(str, field['enum']))}."
        return f"Answer with the {name} only{'' if field.get('type') == 'string' else ', a number'}."
    return f"Answer with a JSON object: {json.dumps(fields_of(schema), ensure_ascii=False)}"


def action_of(schema: Schema, text: str) -> dict[str, Any] | None:
    """Return the action that a text expresses; None if it expresses none."""
    if is_tools(schema):
        return {"message": text}
    if only := only_field(schema):
        name, field = only
        value = _value(field, text.strip())
        return None if value is None else {name: value}
    return _last_object(text)


def _value(field: Schema, text: str) -> Any:
    if choices := field.get("enum"):
        return _last_choice(choices, text)
    return text if field.get("type") == "string" else _last_number(text, field["type"] == "integer")


def _last_choice(choices: Sequence[Any], text: str) -> Any:
    """Return the choice that a text names last as a whole word, whatever its case."""
    if all(type(choice) in (int, float) for choice in choices):
        number = _last_number(text, is_whole=False)
        return next((choice for choice in choices if choice == number), None)
    words = {str(choice).casefold(): choice for choice in choices if str(choice)}
    patterns = map(_as_word, sorted(words, key=len, reverse=True))
    found = re.findall("|".join(patterns), text.casefold()) if words else []
    return words[found[-1]] if found else None


def _as_word(choice: str) -> str:
    """Return the pattern of a choice that is part of no other word; scripts without spaces have no such bounds."""
    before, after = (LETTER if re.match(LETTER, end) else "" for end in (choice[0], choice[-1]))
    return f"{before and f'(?<!{before})'}{re.escape(choice)}{after and f'(?!{after})'}"


def _last_number(text: str, is_whole: bool) -> int | float | None:
    """Return the last number in a text; None if there is none, or none of the kind that is asked for."""
    found = NUMBER.findall(text)
    digits = found[-1].replace(",", "") if found else ""
    if not digits or abs(float(digits)) >= LARGEST:
        return None
    if not is_whole:
        return float(digits)
    if digits.lstrip("+-").isdecimal():
        return int(Decimal(digits))  # `int` refuses a text of more than 4,300 digits, zeros included
    return int(float(digits)) if float(digits).is_integer() else None


def _last_object(text: str) -> dict[str, Any] | None:
    """Return the last JSON object in a text."""
    decoder, found = json.JSONDecoder(), None
    end = broken = 0
    for match in OBJECT.finditer(text):
        if match.start() < end:
            continue
        try:
            found, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            broken += 1
            if broken == MAX_BROKEN:
                break
    return found


def chat_of(content: Mapping[str, Any]) -> list[Message] | None:
    """Return the chat messages of an observation without the results of tools; None if it is no chat."""
    given = content.get("messages")
    if not isinstance(given, list) or not all(map(is_chat, given)):
        return None
    return [Message(role=m["role"], content=m["content"]) for m in given if m["role"] != "tool"]


def messages_of(content: Mapping[str, Any]) -> list[Message]:
    """Return an observation as messages: its chat messages, or its text."""
    chat = chat_of(content)
    return [Message(role="user", content=shown(content))] if chat is None else chat


def is_chat(message: Any) -> bool:
    """Return whether a value is a chat message that an environment may send."""
    return (
        isinstance(message, dict)
        and message.get("role") in ("system", "user", "tool")
        and isinstance(message.get("content"), str)
    )


def shown(content: Mapping[str, Any]) -> str:
    """Return an observation as text: its only text, or its fields as JSON."""
    said = {name: value for name, value in content.items() if value is not None and name not in OWN}
    texts = [value for value in said.values() if isinstance(value, str)]
    return texts[0] if len(said) == len(texts) == 1 else json.dumps(said, ensure_ascii=False)
