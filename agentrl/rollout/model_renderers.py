"""Renderers of real models, by the `renderers` library or by the chat template of the tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError
from renderers import ToolCallParseStatus, create_renderer

from agentrl.errors import ConfigError, catch
from agentrl.rollout.formatting import flattened, readable, with_tools_as_text
from agentrl.rollout.parsing import MARKERS, THINK, THINK_END, assistant, call_id, is_name, parse_reply
from agentrl.types import FunctionCall, Message, TokenIds, ToolSpec, as_arguments, as_unicode, why_unsendable

_ANSWER, _THOUGHT = "agentrl-answer", f"{THINK}\nagentrl-thought\n{THINK_END}\n\n"
_PROBE: tuple[Message, ...] = ({"role": "user", "content": "agentrl-question"},)
_PROBE_TOOL = ToolSpec(name="agentrl-tool", description="", parameters={"type": "object", "properties": {}})


class FamilyRenderer:
    """Renderer of a model family that the `renderers` library knows."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._renderer: Any = create_renderer(tokenizer)
        self.stop_token_ids: TokenIds = tuple(self._renderer.get_stop_token_ids())

    def first(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> TokenIds:
        """Return the whole conversation, rendered by the family's own code."""
        rendered = [readable(message) for message in messages]
        return tuple(self._renderer.render_ids(rendered, tools=_schemas(tools), add_generation_prompt=True))

    def extend(
        self,
        prompt: TokenIds,
        sampled: TokenIds,
        reply: Message,  # noqa: ARG002 (the bridge reads `sampled`)
        new: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
    ) -> TokenIds | None:
        """Return the ids that the family's bridge adds; None if it cannot bridge, or would change earlier tokens."""
        before = [*prompt, *sampled]
        added = [readable(message) for message in new]
        bridge = self._renderer.bridge_to_next_turn(list(prompt), list(sampled), added, tools=_schemas(tools))
        if bridge is None or bridge.token_ids[: len(before)] != before:
            return None
        return tuple(bridge.token_ids[len(before) :])

    def parse(self, prompt: TokenIds, sampled: TokenIds, tools: Sequence[ToolSpec] = (), turn: int = 0) -> Message:
        """Return the family's own parse, or the whole text if that fails."""
        parsed = catch(self._parsed, prompt, sampled, tools, turn)  # a parser may fail on any text, such as deep JSON
        message: Message = assistant(self.tokenizer.decode(list(sampled))) if parsed.error else parsed.value
        return message

    def _parsed(self, prompt: TokenIds, sampled: TokenIds, tools: Sequence[ToolSpec], turn: int) -> Message:
        parsed = self._renderer.parse_response(list(sampled), tools=_schemas(tools), prompt_ids=list(prompt))
        if not tools and parsed.tool_calls:
            return assistant(self._with_calls(parsed, prompt, sampled), parsed.reasoning_content)
        calls = [(call.id or call_id(turn, n), _call(call)) for n, call in enumerate(parsed.tool_calls or ())]
        return assistant(parsed.content, parsed.reasoning_content, calls)

    def _with_calls(self, parsed: Any, prompt: TokenIds, sampled: TokenIds) -> str:
        """Return the content as it was sampled, with what looks like calls where there are no tools."""
        span = parsed.tool_calls[0].token_span
        if span is None:
            return "\n".join([parsed.content, *(call.raw for call in parsed.tool_calls)]).strip()
        before = list(sampled[: span[0]])
        end = next((n for n, token in enumerate(sampled) if token in self.stop_token_ids), len(sampled))
        content = self._renderer.parse_response(before, tools=None, prompt_ids=list(prompt)).content
        text, calls = self.tokenizer.decode(before), self.tokenizer.decode(list(sampled[span[0] : end]))
        return f"{content}{text[len(text.rstrip()) :] if content else ''}{calls}"


class TemplateRenderer:
    """Renderer of any other model, by the chat template of its tokenizer.

    `extend` compares two renderings of a small fixed conversation, with and without the new messages. The difference is
    valid if the shorter rendering is a prefix of the longer. Sampled tokens are never tokenised again.
    """

    def __init__(self, tokenizer: Any) -> None:
        name = tokenizer.name_or_path
        if not tokenizer.chat_template:
            raise ConfigError(
                f"the tokenizer of {name!r} has no chat template: choose an instruct model, or put a "
                "chat_template.jinja into the model folder"
            )
        self.tokenizer = tokenizer
        # The members of a group have the same first prompt: one tokenisation, one tuple in memory.
        self._encode_first = lru_cache(maxsize=64)(lambda text: tuple(self._encode(text)))
        self._knows_tools = True
        self._knows_tools = self._render(_PROBE) != self._render(_PROBE, (_PROBE_TOOL,))
        answered = self._render([*_PROBE, assistant(_ANSWER)])
        if _ANSWER not in answered:
            raise ConfigError(f"the chat template of {name!r} leaves out the assistant's messages: it cannot be used")
        self._closing = answered.rpartition(_ANSWER)[2]
        self._opens_thinking = self._render(_PROBE, opens_reply=True).rstrip().endswith(THINK)
        closing = self._encode(self._closing)
        added = tokenizer.added_tokens_decoder.items()
        ends = {tokenizer.eos_token_id, *(token for token, kind in added if kind.special)}
        self._closing_length = next((n + 1 for n, token in enumerate(closing) if token in ends), 0)
        last = closing[self._closing_length - 1 : self._closing_length] if self._closing_length else []
        stops = dict.fromkeys([*last, tokenizer.eos_token_id])
        self.stop_token_ids: TokenIds = tuple(token for token in stops if token is not None)
        self._hidden = ends - set(tokenizer.convert_tokens_to_ids(list(MARKERS)))

    def first(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> TokenIds:
        """Return the whole conversation, rendered by the template."""
        return self._encode_first(self._render(messages, tools, opens_reply=True))

    def extend(
        self,
        prompt: TokenIds,  # noqa: ARG002 (unchanged)
        sampled: TokenIds,
        reply: Message,
        new: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
    ) -> TokenIds | None:
        """Return the difference of two renderings; None if the template rewrites what came before, or fails."""
        has_thought = "reasoning_content" in reply
        base: list[Message] = [*_PROBE, {**reply, "content": (_THOUGHT if has_thought else "") + _ANSWER}]
        base[-1].pop("reasoning_content", None)
        try:
            before, after = self._render(base, tools), self._render([*base, *new], tools, opens_reply=True)
        except TemplateError:
            return None
        if not after.startswith(before) or (has_thought and "agentrl-thought" not in before):
            return None
        added = self._encode(self._closing + after[len(before) :])
        is_closed = bool(sampled) and sampled[-1] in self.stop_token_ids
        return tuple(added[self._closing_length :] if is_closed else added)

    def parse(
        self,
        prompt: TokenIds,  # noqa: ARG002 (all prompts of a template end alike)
        sampled: TokenIds,
        tools: Sequence[ToolSpec] = (),
        turn: int = 0,
    ) -> Message:
        """Return the decoded text, with thinking and tool calls apart."""
        text = self.tokenizer.decode([token for token in sampled if token not in self._hidden])
        return parse_reply(text, tools, turn, self._opens_thinking)

    def _render(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), opens_reply: bool = False) -> str:
        plain = [flattened(message) for message in messages]
        if not self._knows_tools:
            plain, tools = with_tools_as_text(plain, tools), ()
        text = self.tokenizer.apply_chat_template(
            plain, tools=_schemas(tools), add_generation_prompt=opens_reply, tokenize=False
        )
        return str(text)

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids


def _schemas(tools: Sequence[ToolSpec]) -> list[dict[str, Any]] | None:
    return [{"type": "function", "function": tool} for tool in tools] or None


def _call(call: Any) -> FunctionCall:
    if call.status is not ToolCallParseStatus.OK or not is_name(call.name):
        return FunctionCall(name="", arguments=as_unicode(call.raw))
    if why_unsendable(call.arguments):
        return FunctionCall(name=call.name, arguments=as_unicode(call.raw))
    return FunctionCall(name=call.name, arguments=as_arguments({} if call.arguments is None else call.arguments))
