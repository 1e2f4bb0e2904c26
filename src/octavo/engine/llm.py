"""The Python API: `LLM` in this process, `AsyncLLM` over a core process. Both share input and output handling."""

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from types import TracebackType
from typing import Any, Self

from octavo.config import EngineConfig
from octavo.engine.build import build_core
from octavo.engine.client import CoreClient
from octavo.engine.core import EngineCore
from octavo.engine.input import InputProcessor, PreparedRequest, RequestOptions
from octavo.engine.local import LocalEngine
from octavo.engine.output import EngineInfo, GenerationDelta, GenerationOutput
from octavo.engine.output_processor import OutputCollector, RequestStream
from octavo.engine.words import Words, load_words
from octavo.errors import ConfigError, EngineDeadError, InvalidRequestError, QueueFullError
from octavo.hub import resolve
from octavo.request.control import EngineLoad
from octavo.request.outputs import RequestOutput
from octavo.request.params import SamplingParams

Prompt = str | Sequence[int]
Message = Mapping[str, Any]


class LLM:
    """Generates in this process: no server, no second process, no `__main__` guard. Threads may share it: their
    requests run side by side, as do those of streams that are read in turns.

    Example:
        llm = LLM("smollm2-135m")
        outputs = llm.generate(["The capital of France is"], SamplingParams(temperature=0, max_tokens=8))
    """

    def __init__(self, model: str | os.PathLike[str] = "smollm2-135m", **settings: Any) -> None:
        """Loads a model.

        Args:
            model: alias, GGUF file, Hugging Face folder or hub name.
            settings: fields of the config dataclasses in octavo.config, e.g. `threads=2, max_model_len=2048`.

        Raises:
            ConfigError: an unknown setting, or one that cannot work.
            ModelError, OutOfMemoryError: the model cannot be had or does not fit.
        """
        config = EngineConfig.from_fields({"model": os.fspath(model), **settings})
        files = resolve(config.model.model)
        words = load_words(config, files)
        core, info = build_core(config, files, time.monotonic)
        self._take(core, words, info, config.model.seed)

    @classmethod
    def over(cls, core: EngineCore, words: Words, info: EngineInfo, default_seed: int | None = None) -> "LLM":
        """The same API over a core that the caller has composed (another executor, a simulation)."""
        llm = cls.__new__(cls)
        llm._take(core, words, info, default_seed)
        return llm

    def _take(self, core: EngineCore, words: Words, info: EngineInfo, default_seed: int | None) -> None:
        self.info = words.complete(info)
        self._engine = LocalEngine(core)
        self._words = words
        self._input = InputProcessor(self.info, words.tokenizer, default_seed)
        self._request_ids = itertools.count()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[GenerationOutput]:
        """Generates for one or many prompts (texts or token id lists); outputs stand in the order of the prompts.

        Args:
            params: one for all, or one per prompt; default `SamplingParams()`.

        Raises:
            InvalidRequestError: a prompt or parameter cannot be honoured; nothing was run.

        A request that fails while running ends with finish_reason `error` and its `error`; the others are untouched.
        """
        listed = _as_list(prompts)
        each = _per_prompt(params, len(listed))
        prepared = [self._prepare(prompt, p) for prompt, p in zip(listed, each, strict=True)]
        return self._run(prepared, listed)

    def chat(
        self,
        conversations: Sequence[Message] | Sequence[Sequence[Message]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[GenerationOutput]:
        """Like `generate`, for one or many conversations of `{"role": ..., "content": ...}` messages."""
        many = [conversations] if conversations and isinstance(conversations[0], Mapping) else conversations
        return self.generate([self._words.render_chat(messages) for messages in many], params)  # type: ignore[arg-type]

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[GenerationDelta]:
        """Generates for one prompt, yielding deltas; leaving the loop early aborts the request."""
        prepared = self._prepare(prompt, params or SamplingParams())
        stream = RequestStream(prepared, self._words.tokenizer)
        yield from self._engine.run([stream])

    def render_chat(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a conversation under the model's chat template, ready for an answer."""
        return self._words.render_chat(messages)

    @property
    def takes_system_message(self) -> bool:
        """Whether the chat template knows the system role (some refuse it)."""
        return self._words.takes_system_message

    def load(self) -> EngineLoad:
        """Figures and counters of the engine core."""
        return self._engine.load()

    def reset_prefix_cache(self) -> bool:
        """Forgets cached prefixes; False while requests run."""
        return self._engine.reset_prefix_cache()

    def close(self) -> None:
        """Frees memory and threads; idempotent."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prepare(self, prompt: Prompt, params: SamplingParams) -> PreparedRequest:
        return self._input.prepare(f"local-{next(self._request_ids)}", prompt, params, RequestOptions())

    def _run(self, prepared: list[PreparedRequest], prompts: list[Prompt]) -> list[GenerationOutput]:
        streams = [RequestStream(request, self._words.tokenizer) for request in prepared]
        collectors = {
            request.request_id: OutputCollector(request, prompt if isinstance(prompt, str) else None)
            for request, prompt in zip(prepared, prompts, strict=True)
        }
        with contextlib.closing(self._engine.run(streams)) as deltas:
            for delta in deltas:
                collectors[delta.request_id].add(delta)
        return [collectors[request.request_id].output() for request in prepared]


class AsyncLLM:
    """Generates through a core process of its own; what the server uses. Create with `await AsyncLLM.start(...)`."""

    def __init__(self, client: CoreClient, words: Words, info: EngineInfo, default_seed: int | None) -> None:
        self.info = info
        self.tokenizer = words.tokenizer
        self.template = words.chat
        """None: the model has no chat template, so it cannot chat."""
        self._client = client
        self._words = words
        self._input = InputProcessor(info, words.tokenizer, default_seed)
        self._request_ids = itertools.count()
        self._live: dict[str, RequestStream] = {}

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
        client = CoreClient()
        # The tokenizer loads here while the core loads the weights over there. Both are waited for even if one fails:
        # only then is there a whole process to close.
        loading = asyncio.create_task(asyncio.to_thread(load_words, config, files))
        starting = asyncio.create_task(client.start(config, files))
        try:
            await asyncio.wait([loading, starting])
            for failure in [task.exception() for task in (loading, starting)]:  # both asked: a damaged file breaks both
                if failure is not None:
                    raise failure
            words, info = loading.result(), starting.result()
        except BaseException:
            await client.close()
            raise
        return cls(client, words, words.complete(info), config.model.seed)

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        request_id: str | None = None,
        tenant: str = "",
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> AsyncGenerator[GenerationDelta, None]:
        """Starts a generation and streams its deltas; choices of n > 1 interleave. Closing the iterator aborts.

        Raises:
            InvalidRequestError: at once, before anything is sent.
            QueueFullError, EngineDeadError: from the iterator.
        """
        options = RequestOptions(tenant=tenant, priority=priority, cache_salt=cache_salt)
        prepared = self._input.prepare(request_id or f"async-{next(self._request_ids)}", prompt, params, options)
        if prepared.request_id in self._live:
            raise InvalidRequestError("request_id", prepared.request_id, "a live request has this id already")
        return self._stream(RequestStream(prepared, self._words.tokenizer))

    async def _stream(self, stream: RequestStream) -> AsyncGenerator[GenerationDelta, None]:
        core_ids = [choice.request_id for choice in stream.request.choices]
        queue = self._client.register(core_ids)
        self._live[stream.request.request_id] = stream
        try:
            for choice in stream.request.choices:
                await self._client.submit(choice)
            while not stream.finished:
                delta = await self._next(queue, stream)
                if delta is not None:
                    yield delta
        finally:
            del self._live[stream.request.request_id]
            self._client.forget(core_ids)
            with contextlib.suppress(EngineDeadError):
                await asyncio.shield(self._client.abort(stream.unfinished_ids))

    async def _next(
        self, queue: "asyncio.Queue[RequestOutput | EngineDeadError]", stream: RequestStream
    ) -> GenerationDelta | None:
        item = await queue.get()
        if isinstance(item, EngineDeadError):
            raise item
        _raise_refusal(item)
        delta, ended_early = stream.push(item)
        if ended_early:
            await self._client.abort([item.request_id])
        return delta

    def render_chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of a conversation under the model's chat template.

        Raises:
            InvalidRequestError: the model has no template, or the template refuses the messages.
        """
        return self._words.render_chat(
            messages, tools=tools, add_generation_prompt=add_generation_prompt, variables=variables
        )

    async def abort(self, request_id: str) -> None:
        """Ends a live request; its iterator ends with finish reason `abort`. Unknown ids are ignored."""
        stream = self._live.get(request_id)
        if stream is not None:
            await self._client.cancel(stream.unfinished_ids)

    async def load(self) -> EngineLoad:
        """Figures and counters of the engine core."""
        return await self._client.load()

    async def reset_prefix_cache(self) -> bool:
        """Forgets cached prefixes; False while requests run."""
        return await self._client.reset_prefix_cache()

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
            await asyncio.sleep(0.02)
        await self._client.close()


def _configuration(model: str | os.PathLike[str] | EngineConfig, settings: dict[str, Any]) -> EngineConfig:
    if not isinstance(model, EngineConfig):
        return EngineConfig.from_fields({"model": os.fspath(model), **settings})
    if settings:
        raise ConfigError("settings", settings, "belong into the EngineConfig that is given")
    return model


def _raise_refusal(output: RequestOutput) -> None:
    """Raises if the core refused the request before running it. Failures while running are outputs like others."""
    if output.error is not None and output.error_status == 400:
        raise InvalidRequestError(output.error_field, output.error_value, output.error)
    if output.error is not None and output.error_status == 429:
        raise QueueFullError(output.error, retry_after_s=1.0)


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or many: a text is one, a sequence whose first item is an id is one, anything else is many.

    Raises:
        InvalidRequestError: neither.
    """
    if isinstance(prompts, str):
        return [prompts]
    if isinstance(prompts, bytes) or not isinstance(prompts, Iterable):
        raise InvalidRequestError("prompts", prompts, "must be one or many texts or sequences of token ids")
    listed = list(prompts)
    if listed and isinstance(listed[0], Integral):
        return [listed]  # type: ignore[list-item]
    return listed  # type: ignore[return-value]


def _per_prompt(params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    if params is None:
        params = SamplingParams()
    if isinstance(params, SamplingParams):
        return [params] * count
    if isinstance(params, Mapping) or not all(isinstance(each, SamplingParams) for each in params):
        raise InvalidRequestError("params", params, "must be SamplingParams, one for all or one per prompt")
    if len(params) != count:
        raise InvalidRequestError("params", len(params), f"give one for all, or one for each of the {count} prompts")
    return list(params)
