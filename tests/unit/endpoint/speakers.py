"""Raw clients of every API, which take and return messages of agentrl, as their users' clients would write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import httpx

from agentrl.env import Model
from agentrl.types import Message, text_of

ADD: dict[str, Any] = {"name": "add", "description": "Add.", "parameters": {"type": "object", "properties": {}}}


class Speaker:
    """A client of one API."""

    path: str
    limit = "max_tokens"

    def body(self, messages: Sequence[Message]) -> dict[str, Any]:
        """The body of a request with the tool ADD."""
        raise NotImplementedError

    def said(self, response: dict[str, Any]) -> Message:
        """The message in a response."""
        raise NotImplementedError

    def items(self, response: dict[str, Any]) -> list[dict[str, Any]]:
        """A response as a client sends it back in the next request."""
        raise NotImplementedError

    def gathered(self, events: list[dict[str, Any]]) -> Message:
        """The message that the deltas of a stream add up to."""
        raise NotImplementedError

    def usage(self, response: dict[str, Any]) -> tuple[int, int]:
        """The numbers of tokens, in and out."""
        return response["usage"]["input_tokens"], response["usage"]["output_tokens"]

    def why_ended(self, response: dict[str, Any]) -> str:
        raise NotImplementedError

    def error(self, body: dict[str, Any]) -> dict[str, str]:
        """The error in a response, of which the form is checked."""
        assert set(body) == {"error"}
        assert body["error"]["code"] == body["error"]["type"]
        return body["error"]  # type: ignore[no-any-return]


class Chat(Speaker):
    path = "/v1/chat/completions"

    def body(self, messages: Sequence[Message]) -> dict[str, Any]:
        return {"messages": [self._message(one) for one in messages], "tools": [{"type": "function", "function": ADD}]}

    def _message(self, message: Message) -> dict[str, Any]:
        calls = [
            {"id": one["id"], "type": "function", "function": _reserialized(one["function"])}
            for one in message.get("tool_calls", ())
        ]
        return {**message, "refusal": None} | ({"tool_calls": calls} if calls else {})

    def said(self, response: dict[str, Any]) -> Message:
        return _message(response["choices"][0]["message"])

    def items(self, response: dict[str, Any]) -> list[dict[str, Any]]:
        return [response["choices"][0]["message"]]

    def gathered(self, events: list[dict[str, Any]]) -> Message:
        delta = events[0]["choices"][0]["delta"]
        assert all(call.pop("index") == n for n, call in enumerate(delta.get("tool_calls", ())))
        return _message(delta)

    def usage(self, response: dict[str, Any]) -> tuple[int, int]:
        return response["usage"]["prompt_tokens"], response["usage"]["completion_tokens"]

    def why_ended(self, response: dict[str, Any]) -> str:
        return str(response["choices"][0]["finish_reason"])


class Responses(Speaker):
    path = "/v1/responses"
    limit = "max_output_tokens"

    def body(self, messages: Sequence[Message]) -> dict[str, Any]:
        items = [item for message in messages for item in self._items(message)]
        return {"input": items, "tools": [{"type": "function", "strict": True, **ADD}]}

    def _items(self, message: Message) -> list[dict[str, Any]]:
        if message["role"] == "tool":
            output = message["content"]
            return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": output}]
        calls = message.get("tool_calls", ())
        items: list[dict[str, Any]] = [{"type": "reasoning", "id": "rs", "summary": []}] if calls else []
        if text := text_of(message):
            kind = "output_text" if message["role"] == "assistant" else "input_text"
            items.append({"role": message["role"], "content": [{"type": kind, "text": text}]})
        for call in calls:
            items.append({"type": "function_call", "call_id": call["id"], **_reserialized(call["function"])})
        return items

    def items(self, response: dict[str, Any]) -> list[dict[str, Any]]:
        return list(response["output"])

    def said(self, response: dict[str, Any]) -> Message:
        texts = [part["text"] for item in response["output"] for part in item.get("content", ())]
        calls = [
            _call(item["call_id"], item["name"], item["arguments"])
            for item in response["output"]
            if item["type"] == "function_call"
        ]
        return _made("".join(texts), calls)

    def gathered(self, events: list[dict[str, Any]]) -> Message:
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        items: list[dict[str, Any]] = []
        for event in events:
            match event["type"]:
                case "response.output_item.added":
                    assert event["output_index"] == len(items)
                    items.append(event["item"])
                case "response.content_part.added":
                    items[event["output_index"]]["content"].append(event["part"])
                case "response.output_text.delta":
                    items[event["output_index"]]["content"][event["content_index"]]["text"] += event["delta"]
                case "response.function_call_arguments.delta":
                    items[event["output_index"]]["arguments"] += event["delta"]
                case "response.completed":
                    done = event["response"]["output"]
        assert [{**item, "status": "completed"} for item in items] == done
        return self.said({"output": items})

    def why_ended(self, response: dict[str, Any]) -> str:
        return {"max_output_tokens": "length"}[response["incomplete_details"]["reason"]]


class Anthropic(Speaker):
    path = "/v1/messages"

    def body(self, messages: Sequence[Message]) -> dict[str, Any]:
        system = [{"type": "text", "text": one["content"]} for one in messages if one["role"] == "system"]
        told: list[dict[str, Any]] = []
        for message in messages:
            role = "assistant" if message["role"] == "assistant" else "user"
            if message["role"] == "tool" and told[-1]["role"] == "user":
                told[-1]["content"] += self._blocks(message)  # the results of parallel calls are one message
            elif message["role"] != "system":
                told.append({"role": role, "content": self._blocks(message)})
        tool = {"name": "add", "description": "Add.", "input_schema": ADD["parameters"]}
        return {"messages": told, "tools": [tool]} | ({"system": system} if system else {})

    def _blocks(self, message: Message) -> list[dict[str, Any]]:
        if message["role"] == "tool":
            given = [{"type": "text", "text": message["content"]}]
            return [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": given}]
        calls = [
            {"type": "tool_use", "id": one["id"], "input": one["function"]["arguments"], "name": "add"}
            for one in message.get("tool_calls", ())
        ]
        thought = [{"type": "thinking", "thinking": "hm", "signature": "s"}] if calls else []
        return [*thought, {"type": "text", "text": text_of(message)}, *calls]

    def items(self, response: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"role": "assistant", "content": response["content"]}]

    def said(self, response: dict[str, Any]) -> Message:
        texts = [block["text"] for block in response["content"] if block["type"] == "text"]
        calls = [block for block in response["content"] if block["type"] == "tool_use"]
        return _made("".join(texts), [_call(one["id"], one["name"], json.dumps(one["input"])) for one in calls])

    def gathered(self, events: list[dict[str, Any]]) -> Message:
        assert [events[0]["type"], *(event["type"] for event in events[-2:])] == [
            "message_start", "message_delta", "message_stop",
        ]  # fmt: skip
        blocks: list[dict[str, Any]] = []
        for event in events:
            match event:
                case {"type": "content_block_start", "content_block": block, "index": index}:
                    assert index == len(blocks)
                    blocks.append(block)
                case {"delta": {"type": "text_delta", "text": text}}:
                    blocks[event["index"]]["text"] += text
                case {"delta": {"type": "input_json_delta", "partial_json": text}}:
                    blocks[event["index"]]["input"] = json.loads(text)
        return self.said({"content": blocks})

    def why_ended(self, response: dict[str, Any]) -> str:
        return {"max_tokens": "length"}[response["stop_reason"]]

    def error(self, body: dict[str, Any]) -> dict[str, str]:
        assert body["type"] == "error"
        return body["error"]  # type: ignore[no-any-return]


SPEAKERS = (Chat(), Responses(), Anthropic())
NAMES = [type(speaker).__name__.lower() for speaker in SPEAKERS]


class Caller:
    """Calls the endpoint of an episode through one API."""

    def __init__(self, http: httpx.AsyncClient, model: Model, speaker: Speaker) -> None:
        self.http, self.model, self.speaker = http, model, speaker
        self.root = model.base_url.removesuffix("/v1")

    async def post(self, body: dict[str, Any], **headers: str) -> httpx.Response:
        keys = {"authorization": f"Bearer {self.model.api_key}"} | {k.replace("_", "-"): v for k, v in headers.items()}
        return await self.http.post(self.root + self.speaker.path, json={"model": "policy", **body}, headers=keys)

    async def ask(self, *messages: Message, **options: Any) -> Message:
        """Return the message of the answer, as JSON."""
        response = await self.post(self.speaker.body(messages) | options)
        assert response.status_code == 200, response.text
        return self.speaker.said(response.json())

    async def stream(self, *messages: Message, **options: Any) -> Message:
        """Return the message of the answer, as events."""
        return self.speaker.gathered(await self.events(*messages, **options))

    async def events(self, *messages: Message, **options: Any) -> list[dict[str, Any]]:
        """Return the events of the answer."""
        response = await self.post(self.speaker.body(messages) | {"stream": True} | options)
        assert response.headers["content-type"] == "text/event-stream"
        lines = [line for block in response.text.split("\n\n") for line in block.splitlines()]
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        return [json.loads(line) for line in data if line != "[DONE]"]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def result(call_id: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _reserialized(function: Any) -> dict[str, str]:
    turned = dict(reversed(function["arguments"].items()))
    return {"name": function["name"], "arguments": json.dumps(turned, separators=(" ,", ":  "))}


def _call(call_id: str, name: str, arguments: str) -> Any:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.loads(arguments)}}


def _message(given: dict[str, Any]) -> Message:
    calls = given.get("tool_calls", ())
    return _made(
        given["content"] or "",
        [_call(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in calls],
    )


def _made(text: str, calls: list[Any]) -> Message:
    message: Message = {"role": "assistant", "content": text}
    return {**message, "tool_calls": calls} if calls else message
