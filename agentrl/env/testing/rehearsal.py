"""A rehearsal: one episode with a scripted model, through the code that training runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agentrl.endpoint import Endpoint
from agentrl.engine.client import EngineClient
from agentrl.engine.scripted import Delay, Die, Hang, Raise, Sampled, ScriptedEngine, ScriptedTurn
from agentrl.engine.server import EngineServer
from agentrl.env.base import Env, Policy
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.driver.loop import run_on_private_loop
from agentrl.env.messages import is_turn, short
from agentrl.env.policies import asked
from agentrl.env.tasks import check_choice
from agentrl.errors import ConfigError, EngineRefusedError, EnvError, catch
from agentrl.plugins.files import is_path
from agentrl.rollout import byte_renderer
from agentrl.rollout.byte_renderer import ByteRenderer
from agentrl.rollout.episode import EpisodeRunner, EpisodeRuntime
from agentrl.rollout.formatting import write_calls
from agentrl.types import (
    TRAIN,
    EpisodeRequest,
    EpisodeSettings,
    Message,
    SampleId,
    TokenIds,
    ToolSpec,
    Trajectory,
    text_of,
)

if TYPE_CHECKING:
    from agentrl.rollout.renderer import Renderer


def tool_call(name: str, /, **arguments: Any) -> str:
    """Return a model's text that calls a tool: `f"Let me see. {tool_call('double', number=4)}"`."""
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>{call}</tool_call>"


def rehearse(
    env: Env,
    turns: Sequence[str | Message | ScriptedTurn] | Policy,
    *,
    index: int = 0,
    split: str = TRAIN,
    seed: int = 0,
    member: int = 0,
    max_turns: int = 0,
    tokenizer: str | Path | None = None,
    max_tokens: int = 16_384,
    max_context: int = 131_072,
    timeout_s: float = 20.0,
) -> Trajectory:
    """Play the task at `index` with a model that generates `turns`, and return the trajectory that would be trained on.

    Each turn is a text (`tool_call` writes the calls in it), a message, or an answer of the scripted engine such as
    `Hang()`; a function of the messages so far may stand for all turns. A new environment object is made with the
    config of `env`. `tokenizer` is a folder or hub id whose tokenizer and chat template are used; by default each
    UTF-8 byte is a token, and nothing is loaded. `timeout_s` limits the episode, and each turn to half of that.

    What the environment raises is in `error` and `stop_reason`, as in training. Raises EnvError for a turn that cannot
    be played and when the episode needs more turns than the script has, what a function of the messages raises, and
    ConfigError if there is no such tokenizer.
    """
    check_choice(split, index)
    EnvDriver(env)
    _check_turns(turns)
    settings = EpisodeSettings(1.0, max_tokens, max_turns, timeout_s, timeout_s / 2)
    request = EpisodeRequest(SampleId(0, member), 0, split, index, seed, settings)
    return run_on_private_loop(Rehearsal(env, turns, tokenizer, max_context).run(request))


def _check_turns(turns: Any) -> None:
    if isinstance(turns, str):
        raise EnvError(f"rehearse: the turns are a list: write [{turns!r}]")
    if callable(turns):
        return
    if not isinstance(turns, Sequence):
        raise EnvError(f"rehearse: write a list of turns, or a function of the messages so far, not {short(turns)}")
    for number, turn in enumerate(turns, 1):
        _check_turn(turn, number)


def _check_turn(turn: Any, number: int) -> None:
    is_ids = isinstance(turn, Sequence) and all(isinstance(token, int) for token in turn)
    if not (is_turn(turn) or is_ids or isinstance(turn, Sampled | Die | Hang | Raise | Delay)):
        hint = f"; write {turn.__name__}()" if isinstance(turn, type) else ""
        raise EnvError(
            f"rehearse: turn {number} is {short(turn)}{hint}; a turn is text, an assistant message, token ids, "
            "or an answer of the scripted engine such as Hang()"
        )


class Rehearsal:
    """One episode of `env` with a script."""

    def __init__(self, env: Env, turns: Sequence[Any] | Policy, tokenizer: str | Path | None, max_context: int) -> None:
        self._env, self._turns = env, turns
        self._prompts: dict[TokenIds, list[Message]] = {}
        self._tokenizer, self._max_context = tokenizer, max_context
        self._fault: Exception | None = None

    async def run(self, request: EpisodeRequest) -> Trajectory:
        """Play the episode."""
        renderer, encode, vocab_size = _coding(self._tokenizer)
        engine = await ScriptedEngine.ready(
            self._next_turn,
            encode=encode,
            vocab_size=vocab_size,
            max_model_len=self._max_context,
        )
        client, endpoint = EngineClient([EngineServer(engine)], "rehearsal"), Endpoint(self._max_context)
        try:
            noting = cast("Renderer", _NotingRenderer(renderer, self._prompts))
            runtime = EpisodeRuntime(self._make_driver, noting, client, self._max_context, endpoint)
            trajectory = await EpisodeRunner(request, runtime).run()
        finally:
            await endpoint.close()
            await client.close()
        if self._fault:
            raise self._fault
        return trajectory

    def _make_driver(self, max_turns: int) -> EnvDriver:
        return EnvDriver(type(self._env)(self._env.config), max_turns)

    def _next_turn(self, prompt: TokenIds, number: int) -> ScriptedTurn:
        chosen = catch(self._turn, prompt, number)
        if chosen.error:
            self._fault = chosen.error
            return Raise(EngineRefusedError("the script has ended"))
        turn: str | Message | ScriptedTurn = chosen.value
        return text_of(turn) + write_calls(turn.get("tool_calls") or ()) if isinstance(turn, dict) else turn

    def _turn(self, prompt: TokenIds, number: int) -> str | Message | ScriptedTurn:
        if not callable(self._turns) and number >= len(self._turns):
            raise EnvError(f"the episode needs turn {number + 1}, and the script ends after {number}")
        messages = self._prompts.get(prompt, ())
        turn = asked(self._turns, number, messages) if callable(self._turns) else self._turns[number]
        _check_turn(turn, number + 1)
        return turn


class _NotingRenderer:
    """A renderer that notes of which messages it has made a prompt: what the model reads."""

    def __init__(self, renderer: Renderer, prompts: dict[TokenIds, list[Message]]) -> None:
        self._renderer, self._prompts = renderer, prompts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._renderer, name)

    def first(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> TokenIds:
        """Return the whole conversation."""
        prompt = self._renderer.first(messages, tools)
        self._prompts[prompt] = list(messages)
        return prompt

    def extend(
        self,
        prompt: TokenIds,
        sampled: TokenIds,
        reply: Message,
        new: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
    ) -> TokenIds | None:
        """Return the ids that follow."""
        added = self._renderer.extend(prompt, sampled, reply, new, tools)
        if added is not None:
            self._prompts[prompt + sampled + added] = [*self._prompts.get(prompt, ()), reply, *new]
        return added


def _coding(tokenizer: str | Path | None) -> tuple[Renderer, Callable[[str], Sequence[int]], int]:
    """Return the renderer, what encodes a turn, and the number of tokens."""
    if tokenizer is None:
        return ByteRenderer(), byte_renderer.encode, byte_renderer.VOCAB_SIZE
    name = str(tokenizer)
    is_folder = isinstance(tokenizer, Path) or is_path(name)
    if is_folder and not Path(name).expanduser().is_dir():
        raise ConfigError(f"rehearse: tokenizer {name}: there is no such folder; give one with tokenizer.json")
    from transformers import AutoTokenizer

    from agentrl.rollout.renderer import load_renderer

    loaded = AutoTokenizer.from_pretrained(Path(name).expanduser() if is_folder else name)
    return load_renderer(loaded), lambda text: loaded.encode(text, add_special_tokens=False), len(loaded)
