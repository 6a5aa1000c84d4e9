"""The policy's side of an episode in agent mode: samples what the agent asks for, and records every context."""

from __future__ import annotations

import asyncio
import json
import operator
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, TypeVar

from agentrl.endpoint import Answer, Ask, Key, Responder, key_after, keys_of, refused, shown
from agentrl.env.driver.threads import Threads
from agentrl.errors import EngineError, EnvError, RoleError, acatch, catch
from agentrl.roles import Asked, relayed
from agentrl.rollout.boundary import Ending, described
from agentrl.rollout.excuses import Excuses, Refusal
from agentrl.rollout.recorder import Branch, Recorder
from agentrl.rollout.renderer import Renderer, longest_token
from agentrl.serving import RequestError
from agentrl.types import Completion, Message, StopReason, TokenIds, text_of

T = TypeVar("T")
LONG, EMPTY = 100_000, 16
"""Characters of a prompt that is rendered in a thread, and those that a message has without its text."""
RENDERING, RENDER_S = Threads(os.cpu_count() or 1, name="agentrl-render"), 600.0
"""Threads apart from those of the event loop, which agents may hold while they wait for their answers."""
Generate = Callable[[TokenIds, int, tuple[str, ...], int], Awaitable[Completion]]
"""Samples one completion of (prompt, max_tokens, stop, number of the call)."""
Take = Callable[[tuple[Message, ...], Message, str, int | None], Awaitable[None]]
"""Takes (new messages, the policy's turn, agent, the turn that it continues) into the episode and scores the turn."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What an episode may use: calls, tokens of one answer, and tokens of a prompt with its answer."""

    calls: int
    tokens: int
    context: int


@dataclass(slots=True)
class Node:
    """A conversation up to an answer, in tokens; `branch` recorded it."""

    branch: Branch
    prompt: TokenIds
    sampled: TokenIds
    parsed: Message
    answer: Message
    """The parsed message as the agent received it."""
    turn: int
    continuations: int = 0
    """Calls that asked to continue it."""

    @property
    def ids(self) -> TokenIds:
        """All tokens of the conversation."""
        return self.prompt + self.sampled

    @property
    def is_tip(self) -> bool:
        """True while nothing follows in the branch."""
        return len(self.branch.prompt) == len(self.prompt) + len(self.sampled)


@dataclass(slots=True)
class Call:
    """One call with its answer, to be recorded when a client receives it."""

    ask: Ask
    answer: Answer
    completion: Completion
    prompt: TokenIds
    parsed: Message
    parent: Node | None
    """The conversation that `prompt` begins with, if one was known."""
    known: int
    """The number of messages in it."""
    key: Key
    """The key of the conversation before the answer."""
    is_cut_by_context: bool


class OverlongError(RequestError):
    """A prompt that leaves no room for an answer."""


class Session(Responder):
    """Answers the calls of one episode's agent.

    A call continues the longest recorded conversation that its messages begin with, compared by meaning: its sampled
    tokens stay as they are. If that conversation has been continued already (parallel calls, subagents) or none is
    known (a rewritten history), the call begins a branch in which everything before its answer is context. An answer
    that no client receives is neither recorded nor trained.
    """

    def __init__(
        self,
        renderer: Renderer,
        recorder: Recorder,
        budget: Budget,
        generate: Generate,
        take: Take,
        roles: Mapping[str, Asked] = MappingProxyType({}),
    ) -> None:
        self._renderer, self._recorder, self._budget = renderer, recorder, budget
        self._generate, self._take, self._roles = generate, take, roles
        self._nodes: dict[Key, list[Node]] = {}
        self._sampling: list[asyncio.Task[Any]] = []
        self._answered: dict[str, Call] = {}
        self._deliveries: dict[str, asyncio.Task[bool]] = {}
        self._receivers: Counter[str] = Counter()
        self._recording = asyncio.Lock()
        self._failing = asyncio.Event()
        self._cut: StopReason | None = None
        """The limit of the run that cut the last answer, if one did."""
        self._has_gone_on = False
        """A role has answered since."""
        self._outside: set[int] = set()  # what the policy has sampled and its tokenizer lacks
        self._sampled = self._turns = 0
        self._is_over = False
        self.failure: Exception | None = None
        """What ended the episode: an error of the engine, or of taking a turn."""
        self._excuses = Excuses()

    async def accompany(self, playing: Coroutine[Any, Any, None]) -> Ending | None:
        """Await the agent, and return how the episode ends; None if the engine failed. Raises what the agent raised.

        Afterwards nothing is sampled or recorded: an answer that has not reached a client is dropped, and the turns of
        those that have are scored.
        """
        agent = asyncio.ensure_future(playing)
        failing = asyncio.ensure_future(self._failing.wait())
        try:
            await asyncio.wait({agent, failing}, return_when=asyncio.FIRST_COMPLETED)
            self._is_over = True
            cut = None if self._has_gone_on else self._cut  # an answer that comes later is none that the agent has read
            if self._deliveries:
                await asyncio.wait(self._deliveries.values())
        finally:
            self._is_over = True
            await _end([agent, failing, *self._sampling, *self._deliveries.values()])
        if self.failure is not None:
            return None
        error = agent.exception()
        if error is None:
            return Ending(self._cut or StopReason.AGENT_DONE)
        excuse = self._excuses.of(error) or (Refusal(cut) if cut else None)
        if not isinstance(error, EnvError) or excuse is None:
            raise error
        if isinstance(excuse, RoleError):
            raise excuse from error
        return Ending(excuse.limit, described(error))

    async def answer(self, ask: Ask) -> Answer:
        """Answer a call; see `agentrl.endpoint.Responder`."""
        return await self._under_way(self._answered_by, ask)

    async def _under_way(self, work: Callable[[Ask], Coroutine[Any, Any, T]], ask: Ask) -> T:
        """Await work that the end of the episode cancels."""
        self._check_running()
        task = asyncio.create_task(work(ask))
        self._sampling.append(task)
        return await task

    def _check_running(self) -> None:
        if self._is_over:
            reason = "this episode has ended: play has returned, or its engine has failed"
            raise refused("invalid_api_key", reason, HTTPStatus.UNAUTHORIZED)

    async def count(self, ask: Ask) -> int:
        """Return the number of tokens of a request's prompt; see `agentrl.endpoint.Responder`."""
        size = self._measured(ask)
        prompt, _, _ = await self._rendered(ask, *self._parent(ask, list(keys_of(ask))), size)
        return len(prompt)

    async def _answered_by(self, ask: Ask) -> Answer:
        """Return the answer of the policy, or of the role that a call names."""
        return (await self._sample(ask)).answer if ask.role is None else await self._relay(ask)

    async def _relay(self, ask: Ask) -> Answer:
        """Ask a role; what it says is neither recorded nor trained."""
        excuse = self._excuses.last
        try:
            answer = await relayed(self._roles, ask)
        except RequestError as error:
            if isinstance(error.__cause__, RoleError):
                self._excuses.add(error, error.__cause__)
            raise
        except EngineError as error:
            raise self._failed(error) from error
        self._excuses.drop(excuse)
        self._has_gone_on = True
        return answer

    def _failed(self, error: Exception) -> RequestError:
        """End the episode with an error of the engine; return that of the call."""
        self.failure = self.failure or error
        self._failing.set()
        return refused("engine_error", described(error), HTTPStatus.INTERNAL_SERVER_ERROR)

    async def deliver(self, answer: Answer, is_awaited: Callable[[], bool]) -> bool:
        """Record the call of an answer that a client is about to receive; once, however often it is replayed.

        Calls are recorded one after another, each with its turn rewards, unless all who await this method have been
        cancelled before. What has begun is ended though the client has gone; see `agentrl.endpoint.Responder`.
        """
        if answer.id not in self._deliveries:
            call = self._answered.get(answer.id)
            if call is None:
                return True
            self._check_running()
            self._deliveries[answer.id] = asyncio.create_task(self._delivered(call, is_awaited))
        self._receivers[answer.id] += 1
        try:
            return await asyncio.shield(self._deliveries[answer.id])
        finally:
            self._receivers[answer.id] -= 1

    async def _delivered(self, call: Call, is_awaited: Callable[[], bool]) -> bool:
        async with self._recording:
            if not (self._receivers[call.answer.id] and is_awaited()):
                del self._deliveries[call.answer.id]  # a retry may still come
                return False
            del self._answered[call.answer.id]
            if self.failure is None and (error := (await acatch(self._taken(call))).error):
                raise self._failed(error) from error
            return True

    async def _taken(self, call: Call) -> None:
        new, parent = self._record(call)
        self._turns += 1
        await self._take(new, call.answer.message, call.ask.agent, parent)
        self._cut, self._has_gone_on = self._limit_that_cut(call), False

    async def generate(self, ids: Sequence[int], max_tokens: int | None = None, stop: Sequence[str] = ()) -> Completion:
        """Sample a continuation, and record it at once; see `Tokens.generate`."""
        prompt = tuple(_whole(one, "an id of the prompt") for one in ids)
        most = None if max_tokens is None else _whole(max_tokens, "max_tokens")
        if most is not None and most < 1:
            raise refused("invalid_request_error", f"max_tokens is {most}: it must be at least 1")
        if not prompt:
            raise refused("invalid_request_error", "the prompt has no ids: give at least one")
        if isinstance(stop, str) or not all(isinstance(one, str) and one for one in stop):
            raise refused("invalid_request_error", f"stop is {stop!r}: give a list of texts that are not empty")
        ask = Ask((), max_tokens=most, stop=tuple(stop), ids=prompt)
        call = await self._under_way(self._sample, ask)
        await self.deliver(call.answer, lambda: True)
        return call.completion

    def _record(self, call: Call) -> tuple[tuple[Message, ...], int | None]:
        """Record a call; return its messages that no recorded call had, and the turn that it continues."""
        branch, turn = self._continued(call), self._turns
        added = call.prompt[len(branch.prompt) :] if branch else call.prompt
        parent = branch.turn if branch else None
        if branch is None:
            branch = self._recorder.begin(added, turn)
        elif added:
            branch.context(added, turn)
        branch.action(call.completion, turn, call.ask.agent)
        if call.ask.ids:
            text = self._renderer.tokenizer.decode(added)
            return (Message(role="user", content=text),) if added else (), parent
        node = Node(branch, call.prompt, call.completion.ids, call.parsed, call.answer.message, turn)
        self._nodes.setdefault(key_after(call.key, call.answer.message), []).append(node)
        return call.ask.messages[call.known :], None if call.parent is None else call.parent.turn

    def _continued(self, call: Call) -> Branch | None:
        """Return the branch that a call continues, if nothing else has continued it."""
        if call.ask.ids:
            return self._recorder.longest(call.prompt)
        return call.parent.branch if call.parent is not None and call.parent.is_tip else None

    async def _sample(self, ask: Ask) -> Call:
        budget, excuse = self._budget, self._excuses.last
        self._check_turns()
        try:
            size = self._measured(ask)
            keys = list(keys_of(ask))
            parent, known = self._parent(ask, keys)
            if parent is not None:
                parent.continuations += 1
            prompt, parent, known = await self._rendered(ask, parent, known, size)
            if (room := budget.context - len(prompt)) <= 0:
                raise self._overlong(f"{len(prompt)}")
        except OverlongError as error:
            self._excuses.add(error, Refusal(StopReason.CONTEXT_OVERFLOW))
            raise
        self._check_turns()  # others may have been sampled in between
        most, number = min(budget.tokens, ask.max_tokens or budget.tokens), self._sampled
        self._sampled += 1
        outcome = await acatch(self._generate(prompt, min(most, room), ask.stop, number))
        if outcome.error is not None:
            raise self._failed(outcome.error)
        self._excuses.drop(excuse)
        completion: Completion = outcome.value
        if ask.ids:
            self._outside |= {one for one in completion.ids if one >= len(self._renderer.tokenizer)}
        parsed = self._renderer.parse(prompt, completion.ids, ask.tools, number)
        message, stopped_by = shown(parsed, ask.stop)
        answer = Answer(
            message,
            is_cut=completion.finish_reason == "length",
            stopped_by=stopped_by,
            prompt_tokens=len(prompt),
            ids=completion.ids,
            logprobs=completion.logprobs,
        )
        call = Call(ask, answer, completion, prompt, parsed, parent, known, keys[-1], is_cut_by_context=room < most)
        self._answered[answer.id] = call
        return call

    def _parent(self, ask: Ask, keys: Sequence[Key]) -> tuple[Node | None, int]:
        """Return the longest known conversation that a call continues, and the number of its messages."""
        for known in range(len(ask.messages) - 1, 0, -1):
            if nodes := self._nodes.get(keys[known]):
                return _meant(nodes, ask.messages[known - 1]), known
        return None, 0

    async def _rendered(
        self, ask: Ask, parent: Node | None, known: int, size: int
    ) -> tuple[TokenIds, Node | None, int]:
        """Return the prompt, and (`parent`, `known`) if it continues that conversation, else (None, 0).

        A prompt of large `size` is rendered in a thread, while other episodes go on.
        """
        if ask.ids:
            self._check_ids(ask.ids)
            return ask.ids, None, 0
        if size + EMPTY * len(ask.messages) <= LONG:
            return self._render(ask, parent, known)
        rendered = await RENDERING.run(partial(catch, self._render, ask, parent, known), RENDER_S, "the renderer")
        if rendered.error is not None:
            raise rendered.error
        return rendered.value  # type: ignore[no-any-return]

    def _render(self, ask: Ask, parent: Node | None, known: int) -> tuple[TokenIds, Node | None, int]:
        if parent is not None:
            new = ask.messages[known:]
            added = catch(self._renderer.extend, parent.prompt, parent.sampled, parent.parsed, new, ask.tools)
            if added.error is None and added.value is not None:
                return parent.ids + added.value, parent, known
        first = catch(self._renderer.first, ask.messages, ask.tools)
        if first.error is not None:
            raise refused("invalid_request_error", f"the model's chat template: {described(first.error)}")
        return first.value, None, 0

    def _check_turns(self) -> None:
        if self._sampled >= (most := self._budget.calls):
            error = refused("max_turns", f"the episode's limit of {most} calls is reached (rollout.max_turns)")
            self._excuses.add(error, Refusal(StopReason.MAX_TURNS))
            raise error

    def _measured(self, ask: Ask) -> int:
        """Return about how many characters the prompt has, without the marks of its messages.

        So much that it cannot fit is refused before it is compared and tokenized, which may take seconds.
        """
        if (count := len(ask.messages)) > self._budget.context:
            raise self._overlong(f"{count} messages")
        texts = sum(len(text_of(message)) for message in ask.messages)
        calls = (call["function"]["arguments"] for message in ask.messages for call in message.get("tool_calls", ()))
        size = texts + sum(len(json.dumps(one, ensure_ascii=False)) for one in (*calls, *ask.tools))
        if size > self._budget.context * longest_token(self._renderer.tokenizer):
            raise self._overlong(f"{size} characters")
        return size

    def _overlong(self, found: str) -> OverlongError:
        reason = f"{OVERLONG.format(self._budget.context)}, not {found}"
        return OverlongError(HTTPStatus.BAD_REQUEST, "context_length_exceeded", reason)

    def _check_ids(self, ids: TokenIds) -> None:
        """Refuse ids that the tokenizer lacks, but for those that the policy has sampled."""
        size = len(self._renderer.tokenizer)
        if outside := {one for one in ids if not 0 <= one < size} - self._outside:
            reason = f"the prompt has the id {min(outside)}: the tokenizer has ids from 0 to {size - 1}"
            raise refused("invalid_request_error", reason)

    def _limit_that_cut(self, call: Call) -> StopReason | None:
        """Return the limit of the run that cut an answer; None for a whole one, and for a limit of the agent's own."""
        if not call.answer.is_cut:
            return None
        if call.is_cut_by_context:
            return StopReason.CONTEXT_OVERFLOW
        own = call.ask.max_tokens
        return None if own is not None and own < self._budget.tokens else StopReason.MAX_TOKENS


def _whole(number: Any, what: str) -> int:
    """Return a whole number as an int. Engines take nothing else, and end on what they do not take."""
    try:
        if isinstance(number, bool):
            raise TypeError
        return operator.index(number)
    except TypeError:
        raise refused("invalid_request_error", f"{what} is {number!r}: give a whole number") from None


def _meant(nodes: Sequence[Node], answer: Message) -> Node:
    """Return the one of several equal answers that a client sends back.

    Clients that keep them tell its calls' ids, its reasoning and its white space; else it is one that few calls
    continue.
    """

    def likeness(node: Node) -> tuple[bool, bool, bool, bool, int]:
        ids, same_ids = ([call["id"] for call in one.get("tool_calls", ())] for one in (answer, node.answer))
        thought, same_thought = (one.get("reasoning_content", "") for one in (answer, node.answer))
        is_same = text_of(answer) == text_of(node.answer)
        return ids == same_ids, thought == same_thought, is_same, node.is_tip, -node.continuations

    return max(nodes, key=likeness)


OVERLONG = "This model's maximum context length is {} tokens: the messages must have fewer"


async def _end(tasks: list[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their ends, whatever they are."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
