"""Tasks from the rows of a JSONL file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from agentrl.env.agent import AgentEnv
from agentrl.env.config import EnvConfig
from agentrl.env.messages import short
from agentrl.env.rows import folders_apart, is_in_share, json_lines
from agentrl.env.tasks import Task
from agentrl.errors import ConfigError, DataError, did_you_mean
from agentrl.types import HELD_OUT


class RowsConfig(EnvConfig):
    """The files of the tasks."""

    data: str = Field(description="JSONL file with one task per line")
    data_heldout: str = Field("", description="JSONL file of the test split; by default a share of data")
    held_out: float = Field(0.1, ge=0, lt=1, description="share of data in the test split, without data_heldout")


class RowsEnv(AgentEnv):
    """An agent whose tasks are the rows of a file, each an object of JSON."""

    Config = RowsConfig

    def tasks(self, split: str) -> list[Task]:
        """Return the rows of a split. A hash of the row decides its split, so equal rows are in the same one."""
        config, is_test = self.config, split == HELD_OUT
        every = list(self._rows("data_heldout" if is_test and config.data_heldout else "data"))
        if config.data_heldout:
            return every
        found = [task for task in every if is_in_share(json.dumps(task.data), config.held_out) == is_test]
        if not found:
            raise ConfigError(f"{config.data} has no row in the split {split!r}: set env.data_heldout or env.held_out")
        return found

    def _rows(self, key: str) -> Iterator[Task]:
        path, other = self._path(key), self._path("data" if key == "data_heldout" else "data_heldout")
        if not path.is_file():
            raise ConfigError(f"env.{key}: {path} is {'a folder' if path.is_dir() else 'no file'}: give a JSONL file")
        location, folders = "", folders_apart(path, other)
        for location, row in json_lines(path):
            if not isinstance(row, dict):
                raise DataError(f'{location}: a row is an object with columns, such as {{"prompt": "…"}}')
            self.check_row(location, row)
            yield Task(folders + location, row)
        if not location:
            raise DataError(f"env.{key}: {path} is empty; write one task per line")

    def _path(self, key: str) -> Path:
        return Path(getattr(self.config, key)).expanduser()

    def check_row(self, location: str, row: dict[str, Any]) -> None:
        """Raise DataError for a row that cannot be used."""


def _check_template(template: str) -> str:
    try:
        is_used = not template or template.format("a") != template.format("b")
    except (LookupError, ValueError, AttributeError):
        is_used = False
    if not is_used:
        raise ValueError(f"{template!r} must have one {{}} for the prompt, and {{{{ and }}}} for braces in the text")
    return template


class PromptConfig(RowsConfig):
    """The columns of prompts and labels, as in OpenRLHF."""

    prompt_column: str = Field("prompt", description="column of the prompt: text, or a list of messages")
    label_column: str = Field("label", description="column of the label; empty if there is none")
    input_template: Annotated[str, AfterValidator(_check_template)] = Field(
        "", description="a text with {} for the prompt, in place of the model's chat template; {} alone adds nothing"
    )


class PromptEnv(RowsEnv):
    """An agent whose tasks are prompts with labels."""

    Config = PromptConfig

    def check_row(self, location: str, row: dict[str, Any]) -> None:
        """Raise DataError for a row without a prompt that can be sent, or without a label."""
        for key in ("prompt_column", "label_column"):
            column = getattr(self.config, key)
            if column and column not in row:
                raise DataError(f"{location}: no column {column!r} (env.{key}).{did_you_mean(column, row)}")
        column, template = self.config.prompt_column, self.config.input_template
        prompt, where = row[column], f"{location}: the prompt in the column {column!r} (env.prompt_column)"
        if template and not isinstance(prompt, str):
            raise DataError(f"{where} is no text, which env.input_template needs: leave that out")
        if template and not template.format(prompt):
            raise DataError(f"{where} is empty, and env.input_template adds nothing: remove the row")
        if not is_prompt(prompt):
            raise DataError(f"{where} is {short(prompt)}; write text, or a list of messages with role and content")

    def prompt(self, task: Task, tokenizer: Any) -> str:
        """Return the prompt of a task with the marks of its template."""
        given, template = task.data[self.config.prompt_column], self.config.input_template
        if template:
            return str(template.format(given))
        messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    def label(self, task: Task) -> Any:
        """Return the label of a task, "" if there is none."""
        return task.data[self.config.label_column] if self.config.label_column else ""


def is_prompt(value: Any) -> bool:
    """Return whether a prompt is text, or a list of messages that a chat template can read."""
    return isinstance(value, str) or (isinstance(value, list) and bool(value) and all(map(_is_message, value)))


def _is_message(value: Any) -> bool:
    """Return whether a value has a role and content; the content of a message with tool calls may be missing."""
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        return False
    content = value.get("content")
    return isinstance(content, str | list) or (content is None and bool(value.get("tool_calls")))
