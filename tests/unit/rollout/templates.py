"""Tokenizers with chat templates of several kinds, all on the tiny byte-level vocabulary."""

from __future__ import annotations

import copy
import functools
from typing import Any

from tests.tiny import tiny_tokenizer

SMOL = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TOOLS = (  # as Qwen2.5's: tools in the system message, tool results in a user turn
    "{%- if tools %}{{- '<|im_start|>system\n# Tools' }}{%- for tool in tools %}{{- '\n' + (tool | tojson) }}"
    "{%- endfor %}{{- '<|im_end|>\n' }}{%- endif %}{%- for m in messages %}{%- if m.role == 'tool' %}"
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}"
    "{{- '\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}"
    "{%- else %}{{- '<|im_start|>' + m.role + '\n' + m.content }}{%- for call in m.tool_calls or [] %}"
    "{{- '<tool_call>' + (call.function | tojson) + '</tool_call>' }}{%- endfor %}{{- '<|im_end|>\n' }}{%- endif %}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
STRIPS = (  # thinking stays in the last answer only
    "{% for m in messages %}{% set said = m.content %}{% if m.role == 'assistant' and not loop.last "
    "and '</think>' in said %}{% set said = said.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\n' + said + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HIDES = STRIPS.replace("and not loop.last ", "")  # thinking is in no rendered answer at all
OPENS = STRIPS.replace("<|im_start|>assistant\n' }}", "<|im_start|>assistant\n<think>\n' }}")
COUNTS = (  # rewrites its first line with every message: never prefix-stable
    "{{ 'messages: ' + (messages | length | string) + '\n' }}{% for m in messages %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
QWEN3_TOKENS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]


@functools.cache
def tokenizer(template: str = "") -> Any:
    """The tiny tokenizer, with its own template or another one."""
    made = copy.deepcopy(tiny_tokenizer())
    made.chat_template = template or made.chat_template
    return made


@functools.cache
def qwen3_tokenizer() -> Any:
    """The tiny tokenizer under a name whose family `renderers` knows."""
    made = copy.deepcopy(tiny_tokenizer())
    made.add_tokens(QWEN3_TOKENS)
    made.name_or_path = "Qwen/Qwen3-0.6B"
    return made


def encode(made: Any, text: str) -> tuple[int, ...]:
    """Token ids of a text, special tokens included."""
    return tuple(made.encode(text, add_special_tokens=False))
