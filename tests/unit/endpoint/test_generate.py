"""Token clients: ids in, ids and logprobs out."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from renderers.client import generate

from agentrl.types import StopReason
from tests.unit.rollout.agents import TOOLED, Client, play
from tests.unit.rollout.cases import check_law_1
from tests.unit.rollout.templates import encode


async def generated(client: Client, ids: list[int], **params: Any) -> httpx.Response:
    body = {"model": client.model.name, "token_ids": ids, "sampling_params": {"logprobs": 1, **params}}
    url = f"{client.model.base_url.removesuffix('/v1')}/inference/v1/generate"
    return await client.http.post(url, json=body, headers={"authorization": f"Bearer {client.model.api_key}"})


async def test_ids_that_begin_with_a_context_continue_its_sequence() -> None:
    async def asking(client: Client) -> None:
        ids = [*encode(TOOLED, "first question")]
        first = (await generated(client, ids)).json()["choices"][0]
        ids += first["token_ids"] + [*encode(TOOLED, "second question")]
        second = (await generated(client, ids, max_tokens=2, temperature=0.1)).json()["choices"][0]
        assert [first["finish_reason"], second["finish_reason"]] == ["stop", "length"]
        assert [one["token"] for one in first["logprobs"]["content"]] == [f"token_id:{i}" for i in first["token_ids"]]

    trajectory, heard = await play(asking, ["four", "five and six"], temperature=0.7)
    assert (trajectory.stop_reason, trajectory.error) == (StopReason.AGENT_DONE, "")
    assert (trajectory.turns, len(trajectory.sequences)) == (2, 1)
    assert [(m["role"], m["content"]) for m in trajectory.messages[:3]] == [
        ("user", "first question"),
        ("assistant", "four"),
        ("user", "second question"),
    ]
    assert heard.calls[1][1].temperature == 0.7
    check_law_1(trajectory, heard.calls)


@pytest.mark.parametrize(
    ("ids", "params", "why"),
    [
        ([], {}, "token_ids is empty"),
        ([-1], {}, "not what this API takes"),
        ([5], {"n": 2}, "one answer"),
        ([5] * 500, {}, "maximum context length is 400"),
    ],
)
async def test_a_request_that_cannot_be_served_is_refused(ids: list[int], params: Any, why: str) -> None:
    async def wrong(client: Client) -> None:
        response = await generated(client, ids, **params)
        assert response.status_code == 400
        assert why in response.json()["error"]["message"]
        await generated(client, [5])

    trajectory, _ = await play(wrong, context=400)
    assert (trajectory.error, trajectory.turns) == ("", 1)


class FakeRenderer:
    """What `renderers.client.generate` needs of a renderer."""

    supports_tools = True

    def get_stop_token_ids(self) -> list[int]:
        return [0]

    def parse_response(self, ids: list[int], **options: Any) -> Any:
        from renderers.base import ParsedResponse

        return ParsedResponse(content=TOOLED.decode(ids), reasoning_content=None, tool_calls=[])


async def test_the_client_of_the_renderers_library_reads_the_answers() -> None:
    async def asking(client: Client) -> None:
        answer = await generate(
            client=client.model.client,
            renderer=FakeRenderer(),  # type: ignore[arg-type]
            messages=[],
            model="policy",
            prompt_ids=list(encode(TOOLED, "question")),
            sampling_params={"max_tokens": 20},
        )
        assert len(answer["completion_ids"]) == len(answer["completion_logprobs"]) > 0

    trajectory, heard = await play(asking)
    assert (trajectory.error, trajectory.turns) == ("", 1)
    check_law_1(trajectory, heard.calls)
