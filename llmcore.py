"""Models: sessions keep a conversation with one, clients give the loop its tools.

A session holds the history as neutral content blocks, sends it through the wire format of its API, retries what may
pass, and counts tokens and money. Native sessions hand tools to the API; the others describe them in the prompt.

    ClaudeSession, OpenAISession              text tool protocol       → ToolClient
    NativeClaudeSession, NativeOAISession     the API's own tool calls → NativeToolClient
    MixinSession                              an ordered list of the above, the next one when one fails
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from genericagent import config, paths, tags
from genericagent.abort import Abort
from genericagent.errors import Aborted, BudgetError, ConfigError, LLMError
from genericagent.llm import blocks, history, textproto, usage
from genericagent.llm.blocks import Answer, Block, Message, Request, Usage
from genericagent.llm.budget import Budget
from genericagent.llm.decode import Body
from genericagent.llm.faults import RETRYABLE as RETRYABLE
from genericagent.llm.faults import TOO_LONG
from genericagent.llm.history import compress_history_tags as compress_history_tags
from genericagent.prompts import prompt, say

if TYPE_CHECKING:
    from genericagent.llm.transport import Stream, Transport

WRITE_PRICES = {"anthropic": 1.25}  # of an input token that goes into the cache; elsewhere that costs nothing more
MARGIN = 0.97  # of the context window: the estimate of a new message is only an estimate
WORTH = 0.95  # of the conversation: what a cut that the user asks for may leave
MAX_REDUCTIONS = 3  # how often a refused request is made smaller
MAX_PAUSES = 5  # how often a `pause_turn` answer is sent back to go on
OPTIONS = (  # settings that a wire module puts into the request when they are set
    "max_tokens", "temperature", "reasoning_effort", "thinking_type", "thinking_budget_tokens", "service_tier",
)  # fmt: skip
SETTABLE = (  # what `/session.<key>=<value>` may change while running
    *OPTIONS, "stream", "max_retries", "max_retry_after", "context_win", "omit_thinking", "trim_keep_prefix",
    "read_timeout", "idle_timeout",
)  # fmt: skip

_FILTERED = re.compile(  # in the words of OpenAI, Azure, DeepSeek, DashScope, Moonshot, Zhipu
    r"content.?(?:filter|policy|management|exists risk)|moderat|flagged|inspection|inappropriate|sensitive|high risk|safety|敏感|违规|不安全",
    re.I,
)
_log = logging.getLogger("genericagent.llm")


def wire_of(api: str) -> ModuleType:
    """The module that encodes and decodes an API: anthropic, chat or responses."""
    return import_module(f"genericagent.llm.{api}")


# what the loop gets


@dataclass
class Function:
    name: str
    arguments: str


@dataclass
class ToolCall:
    id: str
    function: Function


@dataclass
class Response:
    """One reply as the loop sees it. `exit_result` is None, or why the run must end: LLM_FAILED, ABORTED."""

    content: str = ""
    thinking: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    stop_reason: str | None = None
    usage: Usage | None = None
    model: str = ""
    exit_result: str | None = None


# sessions


class BaseSession:
    """A conversation with one model. `cfg` is a mapping of the keys in docs/CONFIG.md, or a config.Model.

    `record` is called with every change of the history (see store/journal.py for the forms), `notice` with one line
    for the user (a retry, a model switch) and the seconds until the next try, `spent` with the usage and cost of every answered call.
    """

    kind = ""
    native = False

    def __init__(
        self,
        cfg: Mapping[str, Any] | config.Model | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self.model = cfg if isinstance(cfg, config.Model) else config.model_from(cfg or {}, self.kind, os.environ)
        self.name = self.model.name
        self.native = self.model.native
        self.history: list[Message] = []
        self.used = 0  # tokens of the context, as the provider counted them last
        self.abort = Abort()
        self.record: Callable[[dict[str, Any]], None] = lambda record: None
        self.notice: Callable[..., None] = lambda text, seconds=0.0: _log.info(text)
        self.budget = Budget()
        self.spent: Callable[[Usage, float | None], None] = lambda usage, cost: None
        self.save: history.Save | None = None  # where a cut puts what it shortens
        self.prices: Mapping[str, Any] = {}
        self.checkpoint = 0  # index into history: what lies before it goes first when a cut is due
        self.cuts = 0
        self.answered_by = self.model.name
        self._clock, self._rng = clock, rng
        self._window_seen = sys.maxsize  # tokens; less when the provider found a request too long
        self._correction = 1.0  # tokens the provider counted per token we estimated
        self.transport: Transport | None = None

    @property
    def wire(self) -> Any:
        """Who encodes its requests and decodes its answers: `url`, `headers`, `encode`, `Decoder`, as in llm/chat.py."""
        return wire_of(self.model.api)

    @property
    def context_win(self) -> int:
        return min(self.model.context_win, self._window_seen)

    def takes_images(self) -> bool:
        return self.model.images is not False

    def mark_checkpoint(self) -> None:
        self.checkpoint = len(self.history)

    def reset(self, messages: Sequence[Message] = ()) -> None:
        """Start again from `messages` (a resumed conversation) or from nothing."""
        self.history, self.checkpoint = list(messages), 0
        self.used = int(self._correction * sum(map(usage.estimate_message, messages)))

    def ask(
        self, content: list[Block], system: str, tools: list[dict[str, Any]], *, tail: str = "", request: bool = False
    ) -> Generator[str, None, Answer]:
        """Send a user message and yield the visible text of the answer, which joins the history.

        `tail` goes along with this one request only. Raises LLMError when the retries are used up, Aborted on a stop;
        then the message stays in the history (the next request carries it along), the failed answer does not.
        """
        message: Message = {"role": "user", "content": content}
        if request:
            message["request"] = True
        if content:
            self.history.append(message)
            self.record({"type": "message", "message": message})
        for _ in range(MAX_PAUSES):
            self._fit(system, tools, tail)
            answer = yield from self._rescued(system, tools, tail)
            self._learn(answer, system, tools, tail)
            reply: Message = {"role": "assistant", "content": self._stored(answer.blocks)}
            if reply["content"]:
                self.history.append(reply)
                self.record({"type": "message", "message": reply})
            if answer.stop_reason != "pause_turn":
                break
        return answer

    def _stored(self, answer_blocks: list[Block]) -> list[Block]:
        if not self.model.omit_thinking:
            return answer_blocks
        return [b for b in answer_blocks if "thinking" not in b["type"]]

    def make_room(self, content: list[Block], system: str, tools: list[dict[str, Any]], tail: str) -> bool:
        """Cut the history now if it would have to be cut for this message; whether it was."""
        before = self.cuts
        self._fit(system, tools, tail, coming=[{"role": "user", "content": content}])
        return self.cuts != before

    def compact(self, system: str, tools: list[dict[str, Any]], tail: str) -> bool:
        """Cut the history now; False when that would save next to nothing."""
        window = int(MARGIN * self.context_win / self._correction)
        shorter = self._cut(self.history, window, self._fixed(system, tools, tail), now=True)
        before, after = (sum(map(usage.estimate_message, m)) for m in (self.history, shorter or self.history))
        if not shorter or after > WORTH * before:
            return False
        self._replace(shorter)
        return True

    def weigh(self, texts: Mapping[str, str]) -> dict[str, int]:
        """Tokens by what they are for: of these texts and of the messages (see usage.weigh), as the provider counts."""
        parts = {name: usage.estimate(text) if text else 0 for name, text in texts.items()} | usage.weigh(self.history)
        return {name: int(tokens * self._correction) for name, tokens in parts.items()}

    def _fit(self, system: str, tools: list[dict[str, Any]], tail: str, coming: Sequence[Message] = ()) -> None:
        """Cut the history when the next request would be larger than what is cheapest, or than the context window."""
        fixed = self._fixed(system, tools, tail)
        shorter = self._cut([*self.history, *coming], int(MARGIN * self.context_win / self._correction), fixed)
        if shorter is not None:
            self._replace(shorter[: len(shorter) - len(coming)])

    def _cut(self, messages: list[Message], window: int, fixed: int, now: bool = False) -> list[Message] | None:
        prefix = self.model.trim_keep_prefix
        price = WRITE_PRICES.get(self.model.api, 1.0)
        return history.cut(
            messages, window, fixed=fixed, keep_prefix=prefix, checkpoint=self.checkpoint, write_price=price, save=self.save, now=now,
        )  # fmt: skip

    def _replace(self, messages: list[Message]) -> None:
        self.reset(messages)
        self.cuts += 1
        self.record({"type": "cut", "history": self.history})

    def _fixed(self, system: str, tools: list[dict[str, Any]], tail: str) -> int:
        """Tokens that every request has beside the messages, estimated."""
        return sum(map(usage.estimate, (system, self.model.extra_sys_prompt, json.dumps(tools), tail)))

    def _learn(self, answer: Answer, system: str, tools: list[dict[str, Any]], tail: str) -> None:
        """Correct the token estimate by what the provider counted; where it counts none, the estimate stands."""
        guess = self._fixed(system, tools, tail) + sum(map(usage.estimate_message, self.history))
        if answer.usage is None or not answer.usage.input:
            self.used = int(self._correction * guess)
            return
        self.used = answer.usage.input + answer.usage.output
        if answer.usage.input > 500:
            self._correction = min(2.0, max(0.5, answer.usage.input / guess))

    def _rescued(self, system: str, tools: list[dict[str, Any]], tail: str) -> Generator[str, None, Answer]:
        """An answer; when the provider refuses the request itself, again without images, then with half of it."""
        messages, fixed = self.history, self._fixed(system, tools, tail)
        for _ in range(MAX_REDUCTIONS):
            try:
                answer = yield from self._answer(messages, system, tools, tail)
                break
            except LLMError as error:
                messages = self._reduced(messages, fixed, error)
        else:
            answer = yield from self._answer(messages, system, tools, tail)
        if messages is not self.history:
            self._replace(messages)
        return answer

    def _reduced(self, messages: list[Message], fixed: int, error: LLMError) -> list[Message]:
        """What may still be sent after a refusal. Raises the error when it has another cause."""
        if error.status == 403 or (error.status in (400, 422) and _FILTERED.search(str(error))):
            return self._masked(messages, error)
        if error.status not in (400, 413, 415, 422):
            raise error
        without = [_without_images(m) for m in messages]
        if without != messages:
            self.notice(say("without_images", why=error))
            return without
        total = fixed + sum(map(usage.estimate_message, messages))
        shorter = self._cut(messages, total // 2, fixed) if TOO_LONG.search(str(error)) else None
        if shorter is None:
            raise error
        self.notice(say("shortened", why=error))
        self._window_seen = min(self._window_seen, int(0.9 * total * self._correction))
        return shorter

    def _masked(self, messages: list[Message], error: LLMError) -> list[Message]:
        """The messages without the newest tool result: a filter that refuses it once would refuse every later turn. Raises
        the error when there is none."""
        masked, text = history.without_newest_results(messages, say("left_out_mark"))
        if not text:
            raise error
        path = self.save(text) if self.save else ""
        self.notice(say("left_out", why=error, where=say("left_out_where", path=path) if path else ""))
        return masked

    def _answer(
        self, messages: list[Message], system: str, tools: list[dict[str, Any]], tail: str
    ) -> Generator[str, None, Answer]:
        """One answer with retries. Raises LLMError or Aborted."""
        attempt, dropped = 0, False
        while True:
            shown = False
            call = self.call(messages, system, tools, tail)
            try:
                while True:
                    try:
                        piece = next(call)
                    except StopIteration as end:
                        answer: Answer = end.value
                        break
                    shown = True
                    yield piece
                if answer.outcome == "ok":
                    self.answered_by = answer.model or self.model.model
                    _log.info("%s answered", self.answered_by)
                    return answer
                error = answer.error or LLMError("the answer broke off before its end", retryable=True)
            except LLMError as failed:
                error = failed
            error = _explained(error, self.model)
            self.abort.check()
            if not error.retryable or (shown and dropped) or (not shown and attempt >= self.model.max_retries):
                raise error
            delay = self._delay(error, attempt)
            if shown:
                dropped = True
                yield "\n\n" + say("dropped") + "\n\n"
            else:
                attempt += 1
            why = say("retry", why=error, seconds=f"{delay:.1f}", attempt=attempt, of=self.model.max_retries)
            self.notice(why, delay)
            self.abort.wait(delay)
            self.abort.check()

    def _delay(self, error: LLMError, attempt: int) -> float:
        """Seconds to wait before the next attempt. Raises the error when the provider wants more than we allow."""
        wish = error.retry_after
        if wish is not None and wish > self.model.max_retry_after:
            raise LLMError(
                f"{error}; the provider wants {wish:.0f} s of waiting, more than max_retry_after = "
                f"{self.model.max_retry_after:.0f} s",
                status=error.status,
            )
        delay = max(0.5, wish if wish is not None else min(30.0, 1.5 * 2**attempt))
        return delay * (1 + 0.1 * self._rng())

    def call(
        self, messages: list[Message], system: str, tools: list[dict[str, Any]], tail: str = ""
    ) -> Generator[str, None, Answer]:
        """One request, no retry: yields visible text, returns the Answer. Raises LLMError, Aborted, BudgetError.

        What it cost is counted ahead and, however it ends, reported afterwards.
        """
        expected = self._fixed(system, tools, tail) + sum(map(usage.estimate_message, messages))
        expected = int(expected * self._correction)
        price = usage.price_of(self.model.model, self.prices, self.model.base_url)
        most = self.budget.before(self.model.model, price, expected, self.model.max_tokens)
        body = Body(self.wire.Decoder(self.model.model))
        try:
            stream = self._send(messages, system, tools, tail, most)
            try:
                return (yield from self._read(stream, body))
            finally:
                stream.close()
        finally:
            used = _used(body, expected)
            cost = usage.cost_of(used, price) if used else 0.0
            self.budget.after(used or Usage(), cost)
            if used:
                self.spent(used, cost)

    def _send(
        self, messages: list[Message], system: str, tools: list[dict[str, Any]], tail: str, most: int | None
    ) -> Stream:
        model, wire = self.model, self.wire
        options = {k: v for k in OPTIONS if (v := getattr(model, k)) is not None}
        if most is not None:
            options["max_tokens"] = most
        full_system = f"{system}\n\n{model.extra_sys_prompt}" if model.extra_sys_prompt else system
        request = Request(model.model, full_system, messages, tools, model.stream, options, tail)
        if self.transport is None:
            from genericagent.llm.transport import Transport  # its library takes a tenth of a second

            self.transport = Transport(model.proxy, model.verify)
        return self.transport.send(
            wire.url(model.base_url),
            wire.headers(model.resolve_key()),
            json.dumps(wire.encode(request), ensure_ascii=False).encode(),
            connect=model.connect_timeout,
            first_byte=model.read_timeout,
            abort=self.abort,
        )

    def _read(self, stream: Stream, body: Body) -> Generator[str, None, Answer]:
        """The answer as it comes. Only data counts as a sign of life, comments and blank lines don't."""
        idle = self.model.idle_timeout if self.model.stream else self.model.read_timeout
        last, seen, thinking = self._clock(), 0, False
        stream.limit(idle)
        for data in stream.chunks():
            pieces, now = body.feed(data), self._clock()
            if body.progress != seen:
                last, seen = now, body.progress
            elif now - last > idle:
                raise LLMError(f"no data for {idle:.0f} s in the middle of the answer", retryable=True)
            stream.limit(last + idle - now)
            for kind, piece in pieces:
                if (kind == "thinking") != thinking:
                    thinking = not thinking
                    piece = f"<thinking>{piece}" if thinking else f"</thinking>\n{piece}"
                yield piece
            if body.decoder.ended:
                break
        for kind, piece in body.close():
            if kind == "text":
                yield f"</thinking>\n{piece}" if thinking else piece
                thinking = False
        if thinking:
            yield "</thinking>\n"
        return body.finish()


def _explained(error: LLMError, model: config.Model) -> LLMError:
    """The same error with where to look. Providers like to repeat a key that they refuse: it is taken out."""
    text = error.message
    try:
        key = model.resolve_key()
    except ConfigError:
        key = ""
    if len(key) >= 6:
        text = text.replace(key, "[the key]")
    if error.status in (401, 403) and model.source not in text:
        text += f" (api_key of {model.name}, from {model.source})"
    if error.status == 404 and model.source not in text:
        text += f" (model {model.model!r} at {model.base_url}, from {model.source})"
    error.message, error.args = text, (text,)
    return error


def _used(body: Body, expected: int) -> Usage | None:
    """The tokens of a call as the provider counted them, estimated where it did not; None when nothing came."""
    if not body.progress:
        return None
    told = body.decoder.usage or Usage()
    return Usage(told.input or expected, told.output or body.shown // 3 + 1, told.cache_read, told.cache_write)


class ClaudeSession(BaseSession):
    """Anthropic Messages, tools described in the prompt."""

    kind = "claude"


class OpenAISession(BaseSession):
    """OpenAI Chat Completions or Responses, tools described in the prompt."""

    kind = "oai"


class NativeClaudeSession(BaseSession):
    """Anthropic Messages with its own tool calls."""

    kind = "native_claude"


class NativeOAISession(BaseSession):
    """OpenAI Chat Completions or Responses with their own tool calls."""

    kind = "native_oai"


SESSIONS: dict[str, type[BaseSession]] = {
    c.kind: c for c in (ClaudeSession, OpenAISession, NativeClaudeSession, NativeOAISession)
}


class MixinSession(BaseSession):
    """Fail-over over an ordered list of sessions, all native or all not.

    The first that answers is kept for `spring_back` seconds, then the first of the list is tried again. A member that
    fails after visible text ends the call: two answers are never glued together.
    """

    kind = "mixin"

    def __init__(self, members: Sequence[BaseSession], cfg: config.Model, **kwargs: Any) -> None:
        if not members or len({m.native for m in members}) != 1:
            raise ConfigError(f"{cfg.source}: the members of a mixin must be all native or all non-native")
        super().__init__(cfg, **kwargs)
        self.members = list(members)
        self.native = members[0].native
        self._current, self._since = 0, 0.0
        for member in self.members:
            member.abort = self.abort

    @property
    def context_win(self) -> int:
        return min(self._window_seen, *(m.context_win for m in self.members))

    def takes_images(self) -> bool:
        return all(m.takes_images() for m in self.members)

    def _answer(
        self, messages: list[Message], system: str, tools: list[dict[str, Any]], tail: str
    ) -> Generator[str, None, Answer]:
        if self._current and self._clock() - self._since > self.model.spring_back:
            self._current = 0
        for step in range(len(self.members)):
            index = (self._current + step) % len(self.members)
            member = self.members[index]
            member.notice, shown = self.notice, False
            answers = member._answer(messages, system, tools, tail)
            try:
                while True:
                    piece = next(answers)
                    shown = True
                    yield piece
            except StopIteration as end:
                if index != self._current:
                    self._current, self._since = index, self._clock()
                self.answered_by, self.model = member.name, _as_seen(self.model, member.model)
                answer: Answer = end.value
                return answer
            except LLMError as error:
                if shown or step == len(self.members) - 1:
                    raise
                following = self.members[(index + 1) % len(self.members)].name
                self.notice(say("failover", name=member.name, why=error, next=following))
        raise AssertionError("a mixin has at least one member")


def _as_seen(mixin: config.Model, member: config.Model) -> config.Model:
    """The mixin's settings with the model and address of the member that answered, for its price."""
    from dataclasses import replace

    return replace(mixin, model=member.model, base_url=member.base_url)


def _without_images(message: Message) -> Message:
    note = blocks.text("[an image was here; the model does not take it]")

    def swap(block: Block) -> Block:
        if block.get("type") == "image":
            return note
        if isinstance(block.get("content"), list):
            return {**block, "content": [swap(b) for b in block["content"]]}
        return block

    return {**message, "content": [swap(b) for b in message["content"]]}


# clients


class BaseClient:
    """What the loop talks to: `chat(messages, tools)`. Knows the last messages only; the session has the history."""

    def __init__(self, backend: BaseSession) -> None:
        self.backend = backend
        self.last_tools = ""
        self.system = ""
        self.advice: Callable[[LLMError | ConfigError], str] = lambda error: ""  # the end of a final failure's line
        self.unsent: dict[str, Any] = {}  # results told by settle() that no request has carried yet, by id

    @property
    def name(self) -> str:
        return self.backend.name

    def reset(self, messages: Sequence[Message] = (), unsent: Mapping[str, Any] | None = None) -> None:
        """Go on with this conversation, and with these results that none of its requests has carried; nothing else is left."""
        self.backend.reset(messages)
        self.last_tools, self.unsent = "", dict(unsent or {})

    def settle(self, result: dict[str, Any]) -> None:
        """A tool result as soon as it is known; the next request carries it whether or not the loop hands it over."""
        self.unsent[result["tool_use_id"]] = result["content"]
        self.backend.record({"type": "result", **result})

    def chat(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None
    ) -> Generator[str, None, Response]:
        """Send the newest message. Yields visible text; a final failure is yielded as `Error: …`."""
        if messages[0]["role"] == "system":
            self.system = messages[0]["content"]
        newest = messages[-1]
        results = {**self.unsent, **{r["tool_use_id"]: r["content"] for r in newest.get("tool_results") or []}}
        self.unsent = {}
        said = newest.get("content") or ""
        tail = ""
        if isinstance(said, str):
            tail = "\n".join(said[r.begin : r.end] for r in tags.regions(said, "working_memory"))
            said = tags.drop(said, "working_memory").strip()
            tail = self._unsaid(tail)
        cuts = self.backend.cuts
        try:
            answer = yield from self._ask(results, said, tail, tools or [], messages[0]["role"] == "system")
        except Aborted:
            return Response(content="", exit_result="ABORTED")
        except BudgetError as error:
            return Response(content=str(error), exit_result="BUDGET_EXCEEDED")
        except (LLMError, ConfigError) as error:
            text = f"Error: {error}{self.advice(error)}"
            yield text
            return Response(content=text, exit_result="LLM_FAILED")
        if self.backend.cuts != cuts:
            self.last_tools = ""
        return self._response(answer)

    def _unsaid(self, tail: str) -> str:
        """The working memory without the lines that the history shows anyway: what goes along uncached is dear."""
        known = history.known_lines(self.backend.history)
        left = "\n".join(line for line in tail.split("\n") if line not in known)
        return left.replace("<history>\n</history>\n", "")

    def _ask(
        self, results: dict[str, Any], said: Any, tail: str, tools: list[dict[str, Any]], first: bool
    ) -> Generator[str, None, Answer]:
        raise NotImplementedError

    def _calls(self, answer: Answer) -> list[Block]:
        return [b for b in answer.blocks if b.get("type") == "tool_use"]

    def _response(self, answer: Answer) -> Response:
        return Response(
            content=blocks.text_of(answer.blocks),
            thinking=blocks.thinking_of(answer.blocks),
            tool_calls=[_tool_call(b, answer.stop_reason) for b in self._calls(answer)],
            stop_reason=answer.stop_reason,
            usage=answer.usage,
            model=answer.model or self.backend.answered_by,
        )


class NativeToolClient(BaseClient):
    """Tools go through the API's own tool calling."""

    def _ask(
        self, results: dict[str, Any], said: Any, tail: str, tools: list[dict[str, Any]], first: bool
    ) -> Generator[str, None, Answer]:
        content: list[Block] = [{"type": "tool_result", "tool_use_id": i, "content": c} for i, c in results.items()]
        content += _as_blocks(said)
        return (yield from self.backend.ask(content, self.system, tools, tail=tail, request=first))


class ToolClient(BaseClient):
    """Tools described in the prompt, calls read from the reply's text. The tool list is sent when it changed, and
    again after the history was cut; otherwise it is only referred to."""

    _serial = 0

    def _ask(
        self, results: dict[str, Any], said: Any, tail: str, tools: list[dict[str, Any]], first: bool
    ) -> Generator[str, None, Answer]:
        content: list[Block] = []
        for result in results.values():
            content.append(blocks.text(textproto.result_text({"content": result})))
            if isinstance(result, list):
                content += [b for b in result if b.get("type") == "image"]
        content += _as_blocks(said)
        system = f"{self.system}\n\n{prompt('textproto')}" if tools else self.system
        listing = textproto.tool_list(tools)
        if self.backend.make_room(content, system, [], tail):
            self.last_tools = ""  # what was told before may be gone
        if listing != self.last_tools:
            content.append(blocks.text(say("tool_list", tools=listing)))
            self.last_tools = listing
        elif tools:
            tail = f"{tail}\n{say('tool_reminder')}".strip()
        answer = yield from self.backend.ask(content, system, [], tail=tail, request=first)
        return answer

    def _calls(self, answer: Answer) -> list[Block]:
        if any(b.get("type") == "tool_use" for b in answer.blocks):
            return super()._calls(answer)
        calls = textproto.parse_calls(blocks.text_of(answer.blocks), self._new_id)
        for call in calls:  # a native call stands in the message; this one has to be told apart from its text
            self.backend.record({"type": "call", "tool_use_id": call["id"], "name": call["name"]})
        return calls

    def _new_id(self) -> str:
        self._serial += 1
        return f"call_{self._serial}"


def _as_blocks(said: Any) -> list[Block]:
    if isinstance(said, list):
        return [b for b in said if b.get("type") != "text" or b.get("text", "").strip()]
    return [blocks.text(said)] if said.strip() else []


def _tool_call(block: Block, stop_reason: str | None) -> ToolCall:
    """A tool_use block as the loop's tool call; a broken one becomes a `bad_json` call that explains itself."""
    arguments = block.get("input")
    if isinstance(arguments, dict) and block.get("name") == "bad_json":  # ours, not the model's
        return ToolCall(block["id"], Function("bad_json()", json.dumps(arguments)))
    if isinstance(arguments, dict):
        return ToolCall(block["id"], Function(block.get("name") or "", json.dumps(arguments)))
    raw = str(block.get("input_raw") or "")
    why = block.get("why") or _json_fault(raw)
    key = "call_cut" if stop_reason == "max_tokens" else "call_broken"
    msg = say(key, name=block.get("name") or "?", why=why, length=len(raw), preview=raw[:200])
    return ToolCall(block["id"], Function("bad_json", json.dumps({"msg": msg, "cut": key == "call_cut"})))


def _json_fault(raw: str) -> str:
    try:
        value = json.loads(raw)
    except RecursionError:
        return "nested too deep"
    except ValueError as error:
        return str(error)
    if isinstance(value, dict):
        return "nested too deep"
    return f"the arguments are {type(value).__name__}, not an object"


# from configuration to clients

_loaded: config.Config | None = None


def load_config(config_file: Path | str | None = None) -> config.Config:
    """Read the configuration. Raises ConfigError."""
    global _loaded
    try:
        file = Path(config_file).expanduser() if config_file else None
    except RuntimeError as error:
        raise ConfigError(f"the configuration file {config_file}: {error}") from None
    _loaded = config.load(paths.home(), config_file=file, beside=paths.program().parent, environ=os.environ)
    return _loaded


def reload_mykeys(current: config.Config | None = None) -> tuple[config.Config, bool]:
    """(configuration, whether it was read again): `current`, or the one loaded last, unless its files were edited."""
    current = current or _loaded
    if current is None or current.stale():
        return load_config(current.file if current else None), True
    return current, False


def make_session(model: config.Model, every: Sequence[config.Model] = ()) -> BaseSession:
    """The session of a configured model; `every` is the list a mixin's members are named from. Raises ConfigError."""
    if model.kind != "mixin":
        return SESSIONS[model.kind](model)
    members = []
    for wanted in model.members:
        if isinstance(wanted, int):
            found = next((m for m in every if m.number == wanted), None)
        else:
            found = next((m for m in every if m.name == wanted), None)
        if found is None or found.kind == "mixin":
            raise ConfigError(f"{model.source}: no model {wanted!r} for the mixin {model.name!r}")
        members.append(make_session(found))
    return MixinSession(members, model)


def make_client(session: BaseSession) -> BaseClient:
    return NativeToolClient(session) if session.native else ToolClient(session)


def resolve_client(name: str | int = 0, cfg: config.Config | None = None) -> BaseClient:
    """The client of a configured model, by name or index. Raises ConfigError."""
    models = (cfg or reload_mykeys()[0]).models
    if isinstance(name, int):
        if not 0 <= name < len(models):
            raise ConfigError(f"there is no model {name}: {len(models)} are configured" if models else say("no_key"))
        return make_client(make_session(models[name], models))
    for model in models:
        if name in (model.name, model.model):
            return make_client(make_session(model, models))
    raise ConfigError(f"there is no model {name!r}; configured: {', '.join(m.name for m in models) or 'none'}")


def fast_ask(prompt_text: str, name: str | int = 0) -> str:
    """One question without tools or history. Raises LLMError, ConfigError."""
    session = resolve_client(name).backend
    asking = session.ask([blocks.text(prompt_text)], "", [])
    while True:
        try:
            next(asking)
        except StopIteration as end:
            return blocks.text_of(end.value.blocks)
