"""Messages to token ids and back, so that what was sampled stays as it was sampled."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from jinja2 import TemplateError
from renderers import ParsedResponse, ToolCallParseStatus, create_renderer
from renderers.base import MODEL_RENDERER_MAP

from agentrl.env.arguments import as_unicode, why_unsendable
from agentrl.errors import ConfigError, EnvError
from agentrl.rollout.parsing import (
    MARKERS,
    THINK,
    THINK_END,
    call_id,
    describe_tools,
    is_name,
    parse_reply,
    write_calls,
)
from agentrl.types import FunctionCall, Message, ToolCall, ToolSpec, text_of

Ids = tuple[int, ...]


class Renderer(Protocol):
    """One model's way between messages and token ids; loaded once per process, used by all its episodes."""

    stop_token_ids: Ids

    def first(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Ids:
        """The whole conversation, up to where the assistant speaks next."""

    def extend(
        self, prompt: Ids, sampled: Ids, reply: Message, new: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> Ids | None:
        """What follows `prompt + sampled` when `new` messages arrive: the end of the turn, them, the next opening.

        None where the template would change what came before: the conversation must be rendered anew, as context.
        """

    def parse(self, prompt: Ids, sampled: Ids, tools: Sequence[ToolSpec] = (), turn: int = 0) -> Message:
        """The assistant message that `sampled` says."""


def load_renderer(tokenizer: Any) -> Renderer:
    """The renderer of a transformers tokenizer: its family's own where `renderers` knows it, else its template's."""
    if tokenizer.name_or_path in MODEL_RENDERER_MAP:
        return FamilyRenderer(tokenizer)
    return TemplateRenderer(tokenizer)


class FamilyRenderer:
    """A model family that the `renderers` library knows."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._renderer: Any = create_renderer(tokenizer)
        self.stop_token_ids: Ids = tuple(self._renderer.get_stop_token_ids())

    def first(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Ids:
        """See `Renderer.first`."""
        readable = [_readable(message) for message in messages]
        return tuple(self._renderer.render_ids(readable, tools=_wire(tools), add_generation_prompt=True))

    def extend(
        self,
        prompt: Ids,
        sampled: Ids,
        reply: Message,  # noqa: ARG002 (the family's own bridge reads `sampled`)
        new: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
    ) -> Ids | None:
        """See `Renderer.extend`."""
        before = [*prompt, *sampled]
        readable = [_readable(message) for message in new]
        bridge = self._renderer.bridge_to_next_turn(list(prompt), list(sampled), readable, tools=_wire(tools))
        if bridge is None or bridge.token_ids[: len(before)] != before:
            return None
        return tuple(bridge.token_ids[len(before) :])

    def parse(self, prompt: Ids, sampled: Ids, tools: Sequence[ToolSpec] = (), turn: int = 0) -> Message:
        """See `Renderer.parse`."""
        try:
            parsed = self._renderer.parse_response(list(sampled), tools=_wire(tools), prompt_ids=list(prompt))
        except _MALFORMED:
            return _said(self._tokenizer.decode(list(sampled)))
        return _message(parsed, turn)


class TemplateRenderer:
    """Any other model, through its own chat template.

    `extend` is the difference of two renderings of a small fixed conversation, with the new messages and without. It
    holds where the shorter one is a prefix of the longer; nothing that was sampled is ever tokenised again.
    """

    def __init__(self, tokenizer: Any) -> None:
        name = tokenizer.name_or_path
        if not tokenizer.chat_template:
            raise ConfigError(
                f"the tokenizer of {name!r} has no chat template: choose an instruct model, or put a "
                "chat_template.jinja into the model folder"
            )
        self._tokenizer = tokenizer
        # The members of a group begin alike: one tokenisation, one tuple in memory.
        self._encode_first = lru_cache(maxsize=64)(lambda text: tuple(self._encode(text)))
        self._knows_tools = True
        self._knows_tools = self._render(_PROBE) != self._render(_PROBE, (_PROBE_TOOL,))
        spoken = self._render([*_PROBE, _said(_ANSWER)])
        if _ANSWER not in spoken:
            raise ConfigError(f"the chat template of {name!r} leaves out what the assistant said: it cannot be used")
        self._closing = spoken.rpartition(_ANSWER)[2]
        self._opens_thinking = self._render(_PROBE, is_open=True).rstrip().endswith(THINK)
        closing = self._encode(self._closing)
        added = tokenizer.added_tokens_decoder.items()
        ends = {tokenizer.eos_token_id, *(token for token, meaning in added if meaning.special)}
        self._closing_length = next((n + 1 for n, token in enumerate(closing) if token in ends), 0)
        last = closing[self._closing_length - 1 : self._closing_length] if self._closing_length else []
        stops = dict.fromkeys([*last, tokenizer.eos_token_id])
        self.stop_token_ids: Ids = tuple(token for token in stops if token is not None)
        self._hidden = ends - set(tokenizer.convert_tokens_to_ids(list(MARKERS)))

    def first(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Ids:
        """See `Renderer.first`."""
        return self._encode_first(self._render(messages, tools, is_open=True))

    def extend(
        self,
        prompt: Ids,  # noqa: ARG002 (it stays as it is)
        sampled: Ids,
        reply: Message,
        new: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
    ) -> Ids | None:
        """See `Renderer.extend`."""
        has_thought = "reasoning_content" in reply
        base: list[Message] = [*_PROBE, {**reply, "content": (_THOUGHT if has_thought else "") + _ANSWER}]
        base[-1].pop("reasoning_content", None)
        try:
            before, after = self._render(base, tools), self._render([*base, *new], tools, is_open=True)
        except TemplateError:
            return None
        if not after.startswith(before) or (has_thought and "agentrl-thought" not in before):
            return None
        added = self._encode(self._closing + after[len(before) :])
        is_closed = bool(sampled) and sampled[-1] in self.stop_token_ids
        return tuple(added[self._closing_length :] if is_closed else added)

    def parse(
        self,
        prompt: Ids,  # noqa: ARG002 (every opening of one template is the same)
        sampled: Ids,
        tools: Sequence[ToolSpec] = (),
        turn: int = 0,
    ) -> Message:
        """See `Renderer.parse`."""
        text = self._tokenizer.decode([token for token in sampled if token not in self._hidden])
        return parse_reply(text, tools, turn, self._opens_thinking)

    def _render(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), is_open: bool = False) -> str:
        plain = [_flat(message) for message in messages]
        if not self._knows_tools:
            plain, tools = _tell_tools(plain, tools), ()
        text = self._tokenizer.apply_chat_template(
            plain, tools=_wire(tools), add_generation_prompt=is_open, tokenize=False
        )
        return str(text)

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids


_MALFORMED = (ValueError, RecursionError, LookupError, TypeError, AttributeError)
"""What parsers raise on what a model may write, such as JSON that is nested too deep: it is no call."""
_ANSWER, _THOUGHT = "agentrl-answer", f"{THINK}\nagentrl-thought\n{THINK_END}\n\n"
RAW = "unreadable"
"""As which arguments that are no JSON object are shown to a template that wants one."""
_PROBE: tuple[Message, ...] = ({"role": "user", "content": "agentrl-question"},)
_PROBE_TOOL = ToolSpec(name="agentrl-tool", description="", parameters={"type": "object", "properties": {}})


def _said(content: str) -> Message:
    return Message(role="assistant", content=content)


def _flat(message: Message) -> Message:
    """Templates of text models want text, not parts."""
    content = message["content"]
    if not isinstance(content, str) and any(part["type"] == "image" for part in content):
        raise EnvError(f"a {message['role']} message holds an image, and this model's chat template takes text only")
    return _readable({**message, "content": text_of(message)})


def _readable(message: Message) -> Message:
    """The message as any tokenizer and template takes it: Unicode text, and the arguments of calls as objects."""
    content = message["content"]
    readable: Message = {**message, "content": as_unicode(content) if isinstance(content, str) else content}
    if "tool_calls" in message:
        readable["tool_calls"] = [_with_object(call) for call in message["tool_calls"]]
    return readable


def _with_object(call: ToolCall) -> ToolCall:
    """The call; what the model wrote instead of an object is the one entry of an object."""
    arguments = call["function"]["arguments"]
    if isinstance(arguments, dict):
        return call
    return {**call, "function": {**call["function"], "arguments": {RAW: arguments}}}


def _tell_tools(messages: list[Message], tools: Sequence[ToolSpec]) -> list[Message]:
    """For a template that knows no tools: they go into the system message, and calls into what was said."""
    told = [_with_calls_written(message) for message in messages]
    if not tools:
        return told
    has_system = told[0]["role"] == "system"
    system = f"{told[0]['content']}\n\n" if has_system else ""
    return [Message(role="system", content=system + describe_tools(tools)), *told[has_system:]]


def _with_calls_written(message: Message) -> Message:
    if not message.get("tool_calls"):
        return message
    return {**message, "content": f"{message['content']}{write_calls(message['tool_calls'])}"}


def _wire(tools: Sequence[ToolSpec]) -> list[dict[str, Any]] | None:
    return [{"type": "function", "function": tool} for tool in tools] or None


def _message(parsed: ParsedResponse, turn: int) -> Message:
    message = Message(role="assistant", content=parsed.content)
    if parsed.reasoning_content is not None:
        message["reasoning_content"] = parsed.reasoning_content
    if parsed.tool_calls:
        message["tool_calls"] = [
            ToolCall(id=call.id or call_id(turn, n), type="function", function=_call(call))
            for n, call in enumerate(parsed.tool_calls)
        ]
    return message


def _call(call: Any) -> FunctionCall:
    if call.status is not ToolCallParseStatus.OK or not is_name(call.name):
        return FunctionCall(name="", arguments=as_unicode(call.raw))
    if why_unsendable(call.arguments):
        return FunctionCall(name=call.name, arguments=as_unicode(call.raw))
    return FunctionCall(name=call.name, arguments=call.arguments if call.arguments is not None else {})
