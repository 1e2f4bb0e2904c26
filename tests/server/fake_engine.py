"""A deterministic engine without a model: bytes are tokens, answers follow from the prompt, faults come on demand."""

import asyncio
import codecs
import hashlib
import itertools
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo.engine.embedding import EmbeddingOutput
from octavo.engine.ledgers import Ledgers
from octavo.engine.output import ChoiceDelta, EngineInfo, GenerationDelta
from octavo.engine.records import Records
from octavo.engine.step_telemetry.recorder import SECOND_BOUNDS, TOKEN_BOUNDS
from octavo.errors import EngineDeadError, InvalidRequestError, OctavoError, QueueFullError, SessionNotFoundError
from octavo.execution.pooling import finished
from octavo.request.control import DraftFigures, EngineLoad, ExpertFigures, TierFigures
from octavo.request.ledger import ChoiceLedger, RequestLedger
from octavo.request.orders import PauseMode, RecordLimits
from octavo.request.outputs import FinishReason, LogprobRow, RequestStats
from octavo.request.params import SamplingParams, validate_against_vocabulary
from octavo.request.pin import PinRequest, SessionState
from octavo.request.pooling import PoolingParams
from octavo.request.request import GenerateRequest
from octavo.request.tally import tally

EOS, BOS, IM_START, IM_END = 256, 257, 258, 259
SPECIAL = {EOS: b"<|eos|>", BOS: b"<|bos|>", IM_START: b"<|im_start|>", IM_END: b"<|im_end|>"}
WORDS = [b"DEF", b" ha", b"the", b" the", b"\xf0\x9f", b"\x98\x80", b"\n\n"]
VOCAB = [bytes([i]) for i in range(256)] + list(SPECIAL.values()) + WORDS
LETTERS = [*range(ord("a"), ord("z") + 1), ord(" "), len(VOCAB) - 7, len(VOCAB) - 4]


class FakeTokenizer:
    """One token per byte, a few longer ones, four special ones."""

    vocab_size = len(VOCAB)

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        ids = [BOS] if add_special else []
        rest = text.encode()
        candidates = sorted(
            [(word, VOCAB.index(word, 256)) for word in WORDS]
            + ([(word, token_id) for token_id, word in SPECIAL.items()] if parse_special else []),
            key=lambda pair: -len(pair[0]),
        )
        while rest:
            word, token_id = next((pair for pair in candidates if rest.startswith(pair[0])), (rest[:1], rest[0]))
            ids.append(token_id)
            rest = rest[len(word) :]
        return ids

    def least_tokens(self, text: str) -> int:
        return len(text) // max(map(len, VOCAB))

    def decode(self, token_ids: Sequence[int], *, skip_special: bool = True) -> str:
        shown = [i for i in token_ids if not (skip_special and i in SPECIAL)]
        return b"".join(VOCAB[i] for i in shown).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        return VOCAB[token_id]

    def is_special(self, token_id: int) -> bool:
        return token_id in SPECIAL


@dataclass(frozen=True)
class FakeTemplate:
    """What the server looks at to learn the model's formats."""

    source: str = "fake"


class FakeEngine:
    """Fulfils `ServingEngine`. `scripts` maps a prompt text to the ids of its answer, `script` is the answer to all
    prompts that are not there; other answers are noise made of prompt, seed and position. `gate` holds back every token
    after the first while it is closed. Deltas come after tokens `cuts` apart, over and over."""

    def __init__(
        self, *, max_model_len: int = 512, chat: bool = True, tokenizer: bool = True, template: str = "fake"
    ) -> None:
        self.tokenizer = FakeTokenizer() if tokenizer else None
        self.template = FakeTemplate(template) if chat else None
        self.info = EngineInfo(
            model="fake",
            served_model_names=("fake", "fake-alias"),
            architecture="fake",
            max_model_len=max_model_len,
            vocab_size=len(VOCAB),
            eos_token_ids=(EOS,),
            block_size=16,
            num_blocks=1000,
            kv_bytes_per_token=1,
            weight_bytes=1,
            max_logprobs=20,
            max_num_seqs=8,
            max_num_batched_tokens=64,
            threads=1,
            isa="portable",
            hidden_size=8,
            sampling_defaults={"temperature": 0.5},
        )
        self.scripts: dict[str, list[int]] = {}
        self.script: list[int] | None = None
        self.cuts: Sequence[int] = (1,)
        self.queue_full = False
        self.fail_after: dict[str, int] = {}
        self.pin_problem: OctavoError | None = None
        self.pinned: list[tuple[tuple[int, ...], str | None]] = []
        self._sessions: dict[tuple[str, str], SessionState] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.seen: list[tuple[tuple[int, ...], SamplingParams, dict[str, Any]]] = []
        self.embedded: list[tuple[tuple[int, ...], PoolingParams, dict[str, Any]]] = []
        self.most_live = 0
        """Prompts that were embedded at one time."""
        self.live: set[tuple[str, int]] = set()
        self.records = Records(time.monotonic)
        self.ledgers = Ledgers()
        self.deliveries: list[tuple[str, str]] = []
        self.paused: PauseMode | None = None
        self.num_generated = 0
        self.num_prompt = 0
        self._dead: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def alive(self) -> bool:
        return not self._dead.done()

    def answer_with(self, text: str, cuts: Sequence[int] = (1,)) -> None:
        """From here on every answer is this text."""
        self.script = [*FakeTokenizer().encode(text, add_special=False, parse_special=True), EOS]
        self.cuts = cuts

    def kill(self, reason: str) -> None:
        """The core process is gone: streams fail, and so does everything after."""
        self._dead.set_result(reason)
        self.gate.set()

    def generate(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams,
        *,
        request_id: str | None = None,
        tenant: str = "",
        priority: int = 0,
        cache_salt: str | None = None,
        session: PinRequest | None = None,
        group: str = "",
        alias: str = "",
    ) -> AsyncGenerator[GenerationDelta, None]:
        if isinstance(prompt, str) or not request_id:
            raise TypeError("the server sends token ids under an id of its own")
        validate_against_vocabulary(params, len(VOCAB), self.info.max_logprobs)
        room = self.info.max_model_len - len(prompt)
        if room < 1:
            raise InvalidRequestError("prompt", len(prompt), "too long")
        options = {"tenant": tenant, "priority": priority, "cache_salt": cache_salt, "session": session}
        self.seen.append((tuple(prompt), params, options))
        request = GenerateRequest(
            request_id=request_id,
            prompt_token_ids=list(prompt),
            params=params,
            tenant=tenant,
            group=group,
            alias=alias,
        )
        return self._in_ledger(request, self._interleaved(tuple(prompt), params, request_id, room))

    async def embed(
        self,
        prompt: str | Sequence[int],
        params: PoolingParams,
        *,
        request_id: str | None = None,
        tenant: str = "",
        priority: int = 0,
        cache_salt: str | None = None,
        group: str = "",
        alias: str = "",
    ) -> EmbeddingOutput:
        if isinstance(prompt, str) or not request_id:
            raise TypeError("the server sends token ids under an id of its own")
        if not self.alive:
            raise EngineDeadError(self._dead.result())
        if self.queue_full:
            raise QueueFullError("the waiting queue is full", retry_after_s=1.5)
        options = {"tenant": tenant, "priority": priority, "cache_salt": cache_salt, "group": group, "alias": alias}
        self.embedded.append((tuple(prompt), params, options))
        self.live.add((request_id, 0))
        self.most_live = max(self.most_live, len(self.live))
        try:
            await asyncio.sleep(0)
            await self.gate.wait()
        finally:
            self.live.remove((request_id, 0))
        text = "" if self.tokenizer is None else self.tokenizer.decode(prompt)
        failed = text in self.fail_after
        return EmbeddingOutput(
            request_id=request_id,
            prompt=None,
            prompt_token_ids=tuple(prompt),
            vector=b"" if failed else fake_vector(prompt, params),
            finish_reason=FinishReason.ERROR if failed else FinishReason.STOP,
            error="the row holds NaN" if failed else None,
            num_cached_tokens=len(prompt) // 16 * 16,
            stats=RequestStats(arrival_s=1.0, first_scheduled_s=1.1, finished_s=1.5, num_prompt_tokens=len(prompt)),
        )

    async def _in_ledger(
        self, request: GenerateRequest, deltas: AsyncGenerator[GenerationDelta, None]
    ) -> AsyncGenerator[GenerationDelta, None]:
        """Notes the request while it runs, and how it ended."""
        reason = FinishReason.ABORT
        self.ledgers.opened(request)
        try:
            async with aclosing(deltas):
                async for delta in deltas:
                    reason = delta.choice.finish_reason or reason
                    yield delta
        finally:
            self.ledgers.closed(request.request_id, reason, RequestStats())

    async def _interleaved(
        self, prompt: tuple[int, ...], params: SamplingParams, request_id: str, room: int
    ) -> AsyncGenerator[GenerationDelta, None]:
        if not self.alive:
            raise EngineDeadError(self._dead.result())
        if self.queue_full:
            raise QueueFullError("the waiting queue is full", retry_after_s=1.5)
        self.num_prompt += len(prompt)
        choices = [FakeChoice(self, prompt, params, index, room) for index in range(params.n)]
        keys = {(request_id, choice.index) for choice in choices}
        self.live |= keys
        try:
            for step in range(room + 1):
                if step:
                    await self.gate.wait()
                await asyncio.sleep(0)
                if not self.alive:
                    raise EngineDeadError(self._dead.result())
                for choice in [choice for choice in choices if not choice.finished]:
                    for delta in choice.step():
                        yield self._wrap(request_id, prompt, params, delta, first=step == 0)
                if all(choice.finished for choice in choices):
                    return
        finally:
            self.live -= keys

    def _wrap(
        self, request_id: str, prompt: tuple[int, ...], params: SamplingParams, delta: ChoiceDelta, *, first: bool
    ) -> GenerationDelta:
        rows = None
        if params.prompt_logprobs is not None and delta.index == 0 and first:
            rows = (None, *(logprob_row(i, params.prompt_logprobs) for i in prompt[1:]))
        return GenerationDelta(
            request_id=request_id,
            choice=delta,
            prompt_token_ids=prompt,
            num_cached_tokens=len(prompt) // 16 * 16,
            prompt_logprobs=rows,
        )

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template: str | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        if self.tokenizer is None:
            raise InvalidRequestError("messages", None, "no tokenizer")
        ids: list[int] = [BOS]
        for name, given in (("tools", tools), ("documents", documents), ("template", template)):
            if given is not None:
                ids += [IM_START, *self.tokenizer.encode(f"{name}={given}", add_special=False), IM_END]
        for message in messages:
            content = message["content"]
            text = content if isinstance(content, str) else "".join(part["text"] for part in content)
            text += "".join(str(call["function"]) for call in message.get("tool_calls", []))
            text = f"{message['role']}\n{text}" + "".join(f"{k}={v}" for k, v in (variables or {}).items())
            ids += [IM_START, *self.tokenizer.encode(text, add_special=False), IM_END]
        if continue_final_message:
            ids.pop()
        if add_generation_prompt:
            opening = "<think>\n" if (variables or {}).get("thinks") else ""
            ids += [IM_START, *self.tokenizer.encode(f"assistant\n{opening}", add_special=False)]
        return ids

    async def pin(
        self, prompt: Sequence[int], session: PinRequest, *, tenant: str = "", cache_salt: str | None = None
    ) -> SessionState:
        if self.pin_problem is not None:
            raise self.pin_problem
        await self.gate.wait()
        self.pinned.append((tuple(prompt), cache_salt))
        return self._open(session, tenant, len(prompt) // 16 * 16)

    async def open_session(self, session: PinRequest, *, tenant: str = "") -> SessionState:
        return self._open(session, tenant, 0)

    def _open(self, session: PinRequest, tenant: str, num_tokens: int) -> SessionState:
        lease = session.lease_s or 600.0
        self._sessions[tenant, session.session_id] = state = SessionState(
            session_id=session.session_id,
            lease_s=lease,
            expires_in_s=lease,
            num_pinned_tokens=num_tokens,
            num_pinned_blocks=num_tokens // 16,
            num_live_requests=0,
        )
        return state

    async def session(self, session_id: str, *, tenant: str = "") -> SessionState:
        if (tenant, session_id) not in self._sessions:
            raise SessionNotFoundError(f"there is no session {session_id!r}")
        return self._sessions[tenant, session_id]

    async def sessions(self, *, tenant: str = "") -> list[SessionState]:
        return [state for (owner, _), state in self._sessions.items() if owner == tenant]

    async def extend_session(self, session: PinRequest, *, tenant: str = "") -> SessionState:
        return self._open(session, tenant, (await self.session(session.session_id, tenant=tenant)).num_pinned_tokens)

    async def end_session(self, session_id: str, *, tenant: str = "") -> bool:
        return self._sessions.pop((tenant, session_id), None) is not None

    async def put_record(self, name: str, content: bytes, limits: RecordLimits, *, tenant: str = "") -> bool:
        return self.records.put(tenant, name, content, limits)

    async def record(self, name: str, *, tenant: str = "") -> bytes | None:
        return self.records.get(tenant, name)

    async def remove_record(self, name: str, *, tenant: str = "") -> bool:
        return self.records.remove(tenant, name)

    def note_delivery(self, group: str, *, tenant: str = "") -> None:
        self.deliveries.append((group, tenant))

    async def ledger(self, name: str, *, tenant: str = "") -> RequestLedger | None:
        return self.ledgers.find(tenant, name, running, 0.0)

    async def live_requests(self) -> list[RequestLedger]:
        return self.ledgers.live(running, 0.0)

    async def abort_named(self, names: Sequence[str], *, tenant: str = "") -> list[str]:
        return list(self.ledgers.live_ids(tenant, names))

    async def pause(self, mode: PauseMode) -> int:
        self.paused = mode
        return 0

    async def settled(self, timeout_s: float | None = None) -> bool:
        return True

    async def drain(self, timeout_s: float) -> int:
        return await self.pause(PauseMode.DRAIN)

    async def resume(self) -> None:
        self.paused = None

    async def reset_prefix_cache(self) -> bool:
        return not self.live

    async def load(self) -> EngineLoad:
        return self.newest_load()

    def newest_load(self) -> EngineLoad:
        if not self.alive:
            raise EngineDeadError(self._dead.result())
        counters = {"prompt_tokens": 100 + self.num_prompt, "generation_tokens": self.num_generated, "steps": 3}
        counters |= {"cached_tokens": 40, "prefix_queries": 90, "disk_loaded_tokens": 16, "preemptions": 0}
        counters |= {"drafts": 8, "draft_tokens": 14, "accepted_draft_tokens": 12, "wasted_draft_tokens": 3}
        return EngineLoad(
            num_waiting=0,
            num_running=len(self.live),
            num_free_blocks=1000 - len(self.live),
            num_blocks=1000,
            num_cached_blocks=0,
            num_pinned_blocks=7,
            num_sessions=len(self._sessions),
            num_waiting_tokens=300,
            num_running_tokens=20,
            decode_step_s=0.02,
            drafts=DraftFigures(
                mean_acceptance_length=2.5, draft_tokens_by_position=[8, 6], accepted_by_position=[7, 5]
            ),
            published_s=time.monotonic(),
            tallies={"iteration_tokens": tally(TOKEN_BOUNDS), "step_duration_seconds": tally(SECOND_BOUNDS)},
            tiers=[TierFigures(tier="disk", num_blocks=3, used_bytes=30, capacity_bytes=100)],
            counters={name: float(value) for name, value in counters.items()},
            paused=self.paused,
            experts=[
                ExpertFigures(layer=0, num_experts=8, num_meetings=80, most_meetings=25),
                ExpertFigures(layer=3, num_experts=8, num_meetings=0, most_meetings=0),
            ],
        )

    async def wait_dead(self) -> str:
        return await asyncio.shield(self._dead)


def running(request_id: str) -> ChoiceLedger:
    """The ledger of what has not ended."""
    return ChoiceLedger(request_id=request_id, state="running", stats=RequestStats())


class FakeChoice:
    """One choice: token by token, text held back while it may be half a character or the start of a stop string."""

    def __init__(
        self, engine: FakeEngine, prompt: tuple[int, ...], params: SamplingParams, index: int, room: int
    ) -> None:
        self.index = index
        self.finished = False
        self._engine = engine
        self._params = params
        self._limit = min(params.max_tokens or room, room)
        text = "" if engine.tokenizer is None else engine.tokenizer.decode(prompt)
        self._fail_after = engine.fail_after.get(text)
        self._script = engine.scripts.get(text, engine.script)
        noise = 0 if params.greedy else (params.seed or 0) + index
        self._key = hashlib.sha256(repr((prompt, noise)).encode()).digest()
        self._reader = codecs.getincrementaldecoder("utf-8")("replace")
        self._position = 0
        self._cuts = itertools.cycle(engine.cuts)
        self._next_cut = next(self._cuts)
        self._text = ""
        self._shown = 0
        self._held: list[int] = []
        self._offsets: list[int] = []

    def step(self) -> list[ChoiceDelta]:
        """Deltas of the next token: none while everything is held back."""
        if self._position == self._fail_after:
            return [self._end("", FinishReason.ERROR, error="the row holds NaN", stop_reason=None)]
        token_id = self._next()
        self._position += 1
        self._engine.num_generated += 1
        self._held.append(token_id)
        self._offsets.append(len(self._text))
        if token_id == EOS and not self._params.ignore_eos:
            return [self._end(self._tail(), FinishReason.STOP)]
        if token_id in self._params.stop_token_ids:
            return [self._end(self._tail(), FinishReason.STOP, stop_reason=token_id)]
        if not (token_id in SPECIAL and self._params.skip_special_tokens):
            self._text += self._reader.decode(VOCAB[token_id])
        return self._look_for_stop()

    def _look_for_stop(self) -> list[ChoiceDelta]:
        hits = [(self._text.find(stop), stop) for stop in self._params.stop if stop in self._text]
        if hits:
            where, stop = min(hits)
            end = where + (len(stop) if self._params.include_stop_str_in_output else 0)
            text, self._text = self._text[self._shown : end], self._text[:end]
            return [self._end(text, FinishReason.STOP, stop_reason=stop)]
        if self._position == self._limit:
            return [self._end(self._tail(), FinishReason.LENGTH)]
        if self._position < self._next_cut:
            return []
        self._next_cut += next(self._cuts)
        ready = len(self._text) - self._possible_stop()
        text, self._shown = self._text[self._shown : ready], max(self._shown, ready)
        return [self._delta(text)] if text else []

    def _possible_stop(self) -> int:
        """Characters at the end that may begin a stop string."""
        return max(
            (k for stop in self._params.stop for k in range(1, len(stop)) if self._text.endswith(stop[:k])), default=0
        )

    def _tail(self) -> str:
        return self._text[self._shown :] + self._reader.decode(b"", final=True)

    def _next(self) -> int:
        if self._script is not None:
            return self._script[self._position] if self._position < len(self._script) else EOS
        return LETTERS[self._key[self._position % len(self._key)] % len(LETTERS)]

    def _delta(self, text: str) -> ChoiceDelta:
        ids, self._held = tuple(self._held), []
        offsets, self._offsets = tuple(self._offsets), []
        rows = None if self._params.logprobs is None else tuple(logprob_row(i, self._params.logprobs) for i in ids)
        return ChoiceDelta(index=self.index, text=text, token_ids=ids, logprobs=rows, text_offsets=offsets)

    def _end(
        self, text: str, reason: FinishReason, *, stop_reason: str | int | None = None, error: str | None = None
    ) -> ChoiceDelta:
        self.finished = True
        delta = self._delta(text)
        return ChoiceDelta(
            index=self.index,
            text=delta.text,
            token_ids=delta.token_ids,
            logprobs=delta.logprobs,
            text_offsets=delta.text_offsets,
            finish_reason=reason,
            stop_reason=stop_reason,
            error=error,
            stats=RequestStats(
                arrival_s=1.0,
                first_scheduled_s=1.1,
                first_token_s=1.2,
                finished_s=1.5,
                num_pinned_tokens=16,
                pin_problem="no room",
            ),
        )


def fake_vector(prompt: Sequence[int], params: PoolingParams) -> bytes:
    """A vector that tells prompts and ways of pooling apart."""
    noise = hashlib.sha256(repr((tuple(prompt), params.pooling)).encode()).digest()[:8]
    return finished(np.frombuffer(noise, np.uint8) / 100.0, params).astype("<f4").tobytes()


def logprob_row(token_id: int, count: int) -> LogprobRow:
    """Logprobs that can be worked out by hand: the chosen token at -0.5, others 1 apart below it."""
    others = [(token_id + step) % len(VOCAB) for step in range(1, count)]
    ids = [token_id, *([token_id] if count else []), *others]
    return LogprobRow(ids, [-0.5, *([-0.5] if count else []), *(-1.5 - i for i in range(len(others)))], 1)
