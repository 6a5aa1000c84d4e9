"""Tasks from the rows of a JSONL file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from agentrl.env.agent import AgentEnv
from agentrl.env.config import EnvConfig
from agentrl.env.rows import is_in_share, json_lines
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
        if config.data_heldout:
            return list(self._rows(config.data_heldout if is_test else config.data))
        every = self._rows(config.data)
        found = [task for task in every if is_in_share(json.dumps(task.data), config.held_out) == is_test]
        if not found:
            raise ConfigError(f"{config.data} has no row in the split {split!r}: set env.data_heldout or env.held_out")
        return found

    def _rows(self, file: str) -> Iterator[Task]:
        path = Path(file).expanduser()
        if not path.is_file():
            raise ConfigError(f"env.data: there is no file {path}")
        for location, row in json_lines(path):
            if not isinstance(row, dict):
                raise DataError(f'{location}: a row is an object with columns, such as {{"prompt": "…"}}')
            self.check_row(location, row)
            yield Task(location, row)

    def check_row(self, location: str, row: dict[str, Any]) -> None:
        """Raise DataError for a row that cannot be used."""


class PromptConfig(RowsConfig):
    """The columns of prompts and labels, as in OpenRLHF."""

    prompt_column: str = Field("prompt", description="column of the prompt: text, or a list of messages")
    label_column: str = Field("label", description="column of the label; empty if there is none")
    input_template: str = Field(
        "", description="a text with {} for the prompt, in place of the model's chat template; {} alone adds nothing"
    )


class PromptEnv(RowsEnv):
    """An agent whose tasks are prompts with labels."""

    Config = PromptConfig

    def check_row(self, location: str, row: dict[str, Any]) -> None:
        """Raise DataError for a row without a prompt or a label."""
        for key in ("prompt_column", "label_column"):
            column = getattr(self.config, key)
            if column and column not in row:
                raise DataError(f"{location}: no column {column!r} (env.{key}).{did_you_mean(column, row)}")
        if self.config.input_template and not isinstance(row[self.config.prompt_column], str):
            raise DataError(f"{location}: the prompt is no text, which env.input_template needs: leave that out")

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
