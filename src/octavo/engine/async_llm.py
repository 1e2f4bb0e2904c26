"""The asynchronous Python API, over a core process of its own. The server uses it."""

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from octavo.config import EngineConfig
from octavo.engine.client import CoreClient
from octavo.engine.core_hold import CoreHold, JoinedCore, JoinOrder
from octavo.engine.core_process import CoreProcess
from octavo.engine.embedding import EmbeddingOutput, EmbeddingStream
from octavo.engine.input import InputProcessor, Message, Prompt, RequestOptions
from octavo.engine.output import EngineInfo, GenerationDelta
from octavo.engine.output_processor import OutputStream, RequestStream
from octavo.engine.received import RECEIVED_S, received_s
from octavo.engine.refusals import raise_refusal
from octavo.engine.sessions import WARM_UP, Session, check_held, checked_pin, found, pin_of
from octavo.engine.start_log import log_start
from octavo.engine.traces import Trace, folder_of, trace_of
from octavo.engine.words import Words, load_words
from octavo.errors import ConfigError, EngineDeadError, InvalidRequestError, ProfileError
from octavo.hub import resolve
from octavo.hub.files import ModelFiles
from octavo.request.control import EngineLoad
from octavo.request.ledger import Delivered, RequestLedger
from octavo.request.orders import MAX_TRACE_EVENTS, PauseMode, RecordLimits, StartProfile
from octavo.request.outputs import RequestOutput
from octavo.request.params import SamplingParams
from octavo.request.pin import SessionState
from octavo.request.pooling import PoolingParams

Result = TypeVar("Result")

_POLL_S = 0.02


class AsyncLLM:
    """Generates through a core process of its own; what the server uses. Create with `await AsyncLLM.start(...)`."""

    def __init__(self, client: CoreClient, words: Words, info: EngineInfo, default_seed: int | None) -> None:
        self.info = info
        if client.number == 0:  # of several processes one tells it
            log_start(info)
        self.tokenizer = words.tokenizer
        self.template = words.chat
        """None: the model has no chat template, so it cannot chat."""
        self._client = client
        self._words = words
        self._input = InputProcessor(info, words.tokenizer, default_seed)
        self._request_ids = itertools.count()
        self._live: dict[str, OutputStream[Any]] = {}
        self._trace_folder: Path | None = None

    @classmethod
    async def start(cls, model: str | os.PathLike[str] | EngineConfig = "smollm2-135m", **settings: Any) -> "AsyncLLM":
        """Fetches the model if need be, starts the core process and waits until it is ready.

        Args:
            model: as for `LLM`, or a whole configuration.
            settings: as for `LLM`; none beside a whole configuration.

        Raises:
            ConfigError: an unknown setting, or one that cannot work.
            OctavoError: the model cannot be had, or the core cannot start; the message says why and what to do.
        """
        config = _configuration(model, settings)
        files = await asyncio.to_thread(resolve, config.model.model)
        process = CoreProcess()
        process.load(config, files)
        return await cls.attach(process, config, files)

    @classmethod
    async def join(cls, order: JoinOrder) -> "AsyncLLM":
        """Another client of a core process; waits until that is ready.

        Raises:
            OctavoError: as of `attach`.
        """
        return await cls.attach(JoinedCore(order), order.config, order.model)

    @classmethod
    async def attach(cls, process: CoreHold, config: EngineConfig, files: ModelFiles) -> "AsyncLLM":
        """The engine of a process that has been told to load this model; waits until it is ready, and ends the process
        if it cannot be.

        Raises:
            OctavoError: the core cannot start; the message says why and what to do.
        """
        client = CoreClient(process)
        # The tokenizer loads here while the core loads the weights over there. Both are waited for even if one fails:
        # only then is there a whole process to close.
        loading = asyncio.create_task(asyncio.to_thread(load_words, config, files))
        starting = asyncio.create_task(client.start())
        try:
            await asyncio.wait([loading, starting])
            for failure in [task.exception() for task in (loading, starting)]:  # both asked: a damaged file breaks both
                if failure is not None:
                    raise failure
            words, info = loading.result(), starting.result()
        except BaseException:
            for task in (loading, starting):
                task.cancel()
            await asyncio.gather(loading, starting, return_exceptions=True)
            await client.close()
            raise
        engine = cls(client, words, words.complete(info), config.model.seed)
        engine._trace_folder = folder_of(config.execution.profile)
        return engine

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        request_id: str | None = None,
        tenant: str = "",
        priority: int = 0,
        cache_salt: str | None = None,
        session: Session | None = None,
        group: str = "",
        alias: str = "",
    ) -> AsyncGenerator[GenerationDelta, None]:
        """Starts a generation and streams its deltas; choices of n > 1 interleave. Closing the iterator aborts.

        Args:
            session: holds prompt and (first) answer in the KV memory for the next turn of the same conversation; opened
                if the tenant has none of that name.
            group: names several prompts as one, for `ledger` and `abort_named`; empty: the request id.
            alias: another name, under which these find it, too.

        Raises:
            InvalidRequestError: at once, before anything is sent.
            QueueFullError, EngineDrainingError, EngineDeadError: from the iterator; with a session PinBudgetError, too.
        """
        options = RequestOptions(
            tenant=tenant, priority=priority, cache_salt=cache_salt, pin=pin_of(session), group=group, alias=alias
        )
        came_s = received_s()
        request_id = request_id or f"async-{self._client.number}-{next(self._request_ids)}"
        prepared = self._input.prepare(request_id, prompt, params, options)
        self._refuse_live(prepared.request_id)
        return self._stream(RequestStream(prepared, self._words.tokenizer), came_s)

    async def embed(
        self,
        prompt: Prompt,
        params: PoolingParams | None = None,
        *,
        request_id: str | None = None,
        tenant: str = "",
        priority: int = 0,
        cache_salt: str | None = None,
        group: str = "",
        alias: str = "",
    ) -> EmbeddingOutput:
        """Makes a vector of a prompt. Cancelling aborts; a request that fails while running has an `error`.

        Args:
            group, alias: as of `generate`.

        Raises:
            InvalidRequestError: before anything is sent.
            QueueFullError, EngineDeadError: as of `generate`.
        """
        options = RequestOptions(tenant=tenant, priority=priority, cache_salt=cache_salt, group=group, alias=alias)
        came_s = received_s()
        name = request_id or f"async-{next(self._request_ids)}"
        prepared = self._input.prepare_pooled(name, prompt, params or PoolingParams(), options)
        async with contextlib.aclosing(
            self._stream(EmbeddingStream(prepared, prompt if isinstance(prompt, str) else None), came_s)
        ) as outputs:
            return await anext(outputs)

    def _refuse_live(self, request_id: str) -> None:
        if request_id in self._live:
            raise InvalidRequestError("request_id", request_id, "a live request has this id already")

    async def _stream(self, stream: OutputStream[Result], came_s: float) -> AsyncGenerator[Result, None]:
        self._refuse_live(stream.request.request_id)  # another one may have begun since this one was made
        core_ids = [choice.request_id for choice in stream.request.choices]
        queue = self._client.register(core_ids)
        self._live[stream.request.request_id] = stream
        try:
            for choice in stream.request.choices:
                await self._client.submit(replace(choice, received_s=came_s, sent_s=time.monotonic()))
            while not stream.finished:
                delta = await self._next(queue, stream)
                if delta is not None:
                    yield delta
        finally:
            del self._live[stream.request.request_id]
            self._client.forget(core_ids)
            with contextlib.suppress(EngineDeadError):
                await asyncio.shield(self._client.abort(stream.unfinished_ids))
            if RECEIVED_S.get() is None:  # else whoever took it in knows better when it has left
                first = stream.request.choices[0]
                self.note_delivery(first.group, tenant=first.tenant)

    async def _next(
        self, queue: "asyncio.Queue[RequestOutput | EngineDeadError]", stream: OutputStream[Result]
    ) -> Result | None:
        item = await queue.get()
        if isinstance(item, EngineDeadError):
            raise item
        raise_refusal(item)
        delta, told = stream.push(item)
        stats = None if told is None else await self._client.end(told)
        return delta if stats is None else stream.with_ledger(delta, stats)

    def note_delivery(self, group: str, *, tenant: str = "") -> None:
        """The answer of a request has left, all of it: its ledger ends here. Of several calls the last counts.

        Args:
            group: as of `generate`; a request of its own is named by its id.
        """
        self._client.note_delivery(Delivered(tenant=tenant, group=group, delivered_s=time.monotonic()))

    def render_chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template: str | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of a conversation under the model's chat template, or under another `template`. With
        `continue_final_message` they end where the text of the last message does.

        Raises:
            InvalidRequestError: the model has no template, or the template refuses the messages.
        """
        return self._words.render_chat(
            messages,
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            template=template,
            variables=variables,
        )

    async def abort(self, request_id: str) -> None:
        """Ends a live request; its iterator ends with finish reason `abort`. Unknown ids are ignored."""
        stream = self._live.get(request_id)
        if stream is not None:
            await self._client.cancel(stream.unfinished_ids)

    async def abort_named(self, names: Sequence[str], *, tenant: str = "") -> list[str]:
        """Ends requests of a tenant, whichever client of the core has made them; their iterators end with finish reason
        `abort`. Returns the ids of those that were live; others are ignored."""
        return await self._client.cancel_named(tenant, names)

    async def ledger(self, name: str, *, tenant: str = "") -> RequestLedger | None:
        """What has become of a request of a tenant, live or among the last that ended; None if there is none."""
        return await self._client.ledger(tenant, name)

    async def live_requests(self) -> list[RequestLedger]:
        """The requests of all tenants that have not ended."""
        return await self._client.live_requests()

    async def pause(self, mode: PauseMode) -> int:
        """Begins a pause, or goes on in another mode; returns how many sequences it has ended. Requests that come
        meanwhile wait for `resume`; in mode DRAIN they are refused. See `PauseMode`."""
        return await self._client.pause(mode)

    async def settled(self, timeout_s: float | None = None) -> bool:
        """Waits during a pause until what still runs has ended; False if it has not in time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (await self._client.load()).num_to_finish:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    async def drain(self, timeout_s: float) -> int:
        """Takes no more requests until `resume`, and lets those there run to their end; those that have not ended in
        time end with finish reason `abort`. Returns how many API requests these were."""
        await self.pause(PauseMode.DRAIN)
        if await self.settled(timeout_s):
            return 0
        late = await self.live_requests()
        await self._client.cancel([choice.request_id for ledger in late for choice in ledger.choices])
        await self._client.load()
        return len(late)

    async def resume(self) -> None:
        """Ends a pause."""
        await self._client.resume()

    async def pin(
        self, prompt: Prompt, session: Session, *, tenant: str = "", cache_salt: str | None = None
    ) -> SessionState:
        """Computes a prompt and has a session hold it, in place of what it held before. The session is opened if there
        is none.

        Raises:
            InvalidRequestError: the prompt cannot be honoured, or never be held; the message holds the numbers.
            PinBudgetError: it cannot be held now.
        """
        pin = checked_pin(session)
        token_ids = self._input.encode(prompt)
        deltas = self.generate(token_ids, WARM_UP, tenant=tenant, cache_salt=cache_salt, session=pin)
        async with contextlib.aclosing(deltas):
            await self._client.open_session(tenant, pin, token_ids, cache_salt)
            async for delta in deltas:
                last = delta.choice
        check_held(last)
        return await self.session(pin.session_id, tenant=tenant)

    async def open_session(self, session: Session, *, tenant: str = "") -> SessionState:
        """Opens a session that holds nothing yet; for one that exists its lease begins anew.

        Raises:
            InvalidRequestError: nothing can be held here.
            PinBudgetError: the tenant has too many sessions.
        """
        return await self._client.open_session(tenant, checked_pin(session))

    async def session(self, session_id: str, *, tenant: str = "") -> SessionState:
        """What a session holds, and for how long yet.

        Raises:
            SessionNotFoundError: the tenant has none of that name.
        """
        states = await self.sessions(tenant=tenant)
        return found(next((one for one in states if one.session_id == session_id), None), session_id)

    async def sessions(self, *, tenant: str = "") -> list[SessionState]:
        """All sessions of a tenant, oldest first."""
        return await self._client.sessions(tenant)

    async def extend_session(self, session: Session, *, tenant: str = "") -> SessionState:
        """Begins a session's lease anew, with another length if one is given.

        Raises:
            SessionNotFoundError: the tenant has none of that name.
        """
        pin = checked_pin(session)
        return found(await self._client.extend_session(tenant, pin), pin.session_id)

    async def end_session(self, session_id: str, *, tenant: str = "") -> bool:
        """Lets go of what a session holds; False if the tenant has none of that name."""
        return await self._client.end_session(tenant, session_id)

    async def put_record(self, name: str, content: bytes, limits: RecordLimits, *, tenant: str = "") -> bool:
        """Keeps some bytes for a tenant, where every process of this engine finds them; False if they are more than may
        be kept."""
        return await self._client.put_record(tenant, name, content, limits)

    async def record(self, name: str, *, tenant: str = "") -> bytes | None:
        """What was kept for the tenant under a name; None if it was never, or is no more."""
        return await self._client.record(tenant, name)

    async def remove_record(self, name: str, *, tenant: str = "") -> bool:
        """Lets go of it; False if there is none."""
        return await self._client.remove_record(tenant, name)

    async def load(self) -> EngineLoad:
        """Figures and counters of the engine core, as they are between two steps."""
        return await self._client.load()

    def newest_load(self) -> EngineLoad:
        """The same as they were when the core began its step, or came to rest; at once.

        Raises:
            EngineDeadError: the core is gone.
        """
        return self._client.newest_load()

    async def start_profile(
        self, *, max_steps: int | None = None, max_seconds: float | None = None, max_events: int = MAX_TRACE_EVENTS
    ) -> int:
        """Records what the core does, until `stop_profile` or the first limit; returns the profile's number. No token
        depends on it.

        Raises:
            ProfileError: there is a profile that has not been stopped, whoever has started it.
            InvalidRequestError: a limit that cannot be.
        """
        return await self._client.start_profile(StartProfile(max_steps, max_seconds, max_events))

    async def profile(
        self, *, max_steps: int | None = None, max_seconds: float, max_events: int = MAX_TRACE_EVENTS
    ) -> Trace:
        """Records what the core does until the first limit. Cancelling ends it.

        Raises:
            ProfileError: as of `start_profile` and `stop_profile`; somebody else has stopped it.
            InvalidRequestError: as of `start_profile`.
        """
        limits = StartProfile(max_steps, max_seconds, max_events)
        starting = asyncio.ensure_future(self._client.start_profile(limits))
        try:
            number = await asyncio.shield(starting)
            while (state := await self._client.profile_state()).running and state.number == number:
                await asyncio.sleep(_POLL_S)
        except asyncio.CancelledError:
            with contextlib.suppress(ProfileError, EngineDeadError):
                await self._client.stop_profile(await starting)
            raise
        return await self.stop_profile(number)

    async def stop_profile(self, number: int | None = None) -> Trace:
        """Ends a profile; with `--profile FOLDER` it is written there, too.

        Args:
            number: which one; None: whichever there is.

        Raises:
            ProfileError: there is none, or another one.
        """
        profile = await self._client.stop_profile(number)
        return await asyncio.to_thread(trace_of, profile, self.info.served_model_names[0], self._trace_folder)

    async def reset_prefix_cache(self) -> bool:
        """Forgets cached prefixes, those that sessions hold, too; False while requests run."""
        return await self._client.reset_prefix_cache()

    async def forget_client(self, client: int) -> None:
        """Ends what another client of the core has asked for, since that is gone."""
        await self._client.forget_client(client)

    def lose(self, reason: str) -> None:
        """Takes note that the core is gone, from somebody who knows."""
        self._client.lose(reason)

    @property
    def alive(self) -> bool:
        """Whether the core can still answer."""
        return self._client.alive

    @property
    def core_pid(self) -> int:
        """Process id of the core."""
        return self._client.core_pid

    async def wait_dead(self) -> str:
        """Waits until the core is dead or shut down; returns why."""
        return await self._client.wait_dead()

    async def shutdown(self, drain_timeout_s: float = 0) -> None:
        """Waits up to `drain_timeout_s` for live requests, then ends the core in order; idempotent."""
        deadline = time.monotonic() + drain_timeout_s
        while self._live and self.alive and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_S)
        await self._client.close()


def _configuration(model: str | os.PathLike[str] | EngineConfig, settings: dict[str, Any]) -> EngineConfig:
    if not isinstance(model, EngineConfig):
        return EngineConfig.from_fields({"model": os.fspath(model), **settings})
    if settings:
        raise ConfigError("settings", settings, "belong into the EngineConfig that is given")
    return model
