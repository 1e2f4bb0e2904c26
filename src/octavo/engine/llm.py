"""The Python API: an engine in this process."""

import contextlib
import itertools
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from octavo.config import EngineConfig
from octavo.engine.build import build_core
from octavo.engine.core import EngineCore
from octavo.engine.embedding import EmbeddingOutput, EmbeddingStream
from octavo.engine.input import InputProcessor, Message, PreparedRequest, Prompt, RequestOptions
from octavo.engine.local import LocalEngine
from octavo.engine.output import EngineInfo, GenerationDelta, GenerationOutput
from octavo.engine.output_processor import OutputCollector, RequestStream
from octavo.engine.sessions import WARM_UP, Session, check_held, checked_pin, found, pin_of
from octavo.engine.start_log import log_start
from octavo.engine.traces import Trace, folder_of, trace_of
from octavo.engine.words import Words, load_words
from octavo.errors import InvalidRequestError
from octavo.hub import resolve
from octavo.request.control import EngineLoad
from octavo.request.orders import MAX_TRACE_EVENTS, StartProfile
from octavo.request.params import SamplingParams
from octavo.request.pin import SessionState
from octavo.request.pooling import PoolingParams

Params = TypeVar("Params", SamplingParams, PoolingParams)


class LLM:
    """Generates in this process: no server, no second process, no `__main__` guard. Threads may share it: their
    requests run side by side, as do those of streams that are read in turns.

    Example:
        llm = LLM("smollm2-135m")
        outputs = llm.generate(["The capital of France is"], SamplingParams(temperature=0, max_tokens=8))
    """

    _trace_folder: Path | None = None
    """Where profiles are written."""

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
        core, info = build_core(config, files, time.monotonic, tokenizer=words.tokenizer)
        self._take(core, words, info, config.model.seed)
        self._trace_folder = folder_of(config.execution.profile)

    @classmethod
    def over(cls, core: EngineCore, words: Words, info: EngineInfo, default_seed: int | None = None) -> "LLM":
        """The same API over a core that the caller has composed (another executor, a simulation)."""
        llm = cls.__new__(cls)
        llm._take(core, words, info, default_seed)
        return llm

    def _take(self, core: EngineCore, words: Words, info: EngineInfo, default_seed: int | None) -> None:
        self.info = words.complete(info)
        log_start(self.info)
        self._engine = LocalEngine(core)
        self._words = words
        self._input = InputProcessor(self.info, words.tokenizer, default_seed)
        self._request_ids = itertools.count()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        session: Session | None = None,
    ) -> list[GenerationOutput]:
        """Generates for one or many prompts (texts or token id lists); outputs stand in the order of the prompts.

        Args:
            params: one for all, or one per prompt; default `SamplingParams()`.
            session: holds prompt and answer in the KV memory for the next turn of the same conversation; opened if
                there is none of that name. For one prompt.

        Raises:
            InvalidRequestError: a prompt or parameter cannot be honoured; nothing was run.

        A request that fails while running ends with finish_reason `error` and its `error`; the others are untouched.
        """
        came_s = self._engine.clock()
        listed = _as_list(prompts)
        each = _per_prompt(params, len(listed), SamplingParams)
        if session is not None and len(listed) != 1:
            raise InvalidRequestError("session", session, f"goes with one prompt, not with {len(listed)}")
        prepared = [self._prepare(prompt, p, session) for prompt, p in zip(listed, each, strict=True)]
        return self._run(prepared, listed, came_s)

    def chat(
        self,
        conversations: Sequence[Message] | Sequence[Sequence[Message]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        session: Session | None = None,
    ) -> list[GenerationOutput]:
        """Like `generate`, for one or many conversations of `{"role": ..., "content": ...}` messages."""
        many = [conversations] if conversations and isinstance(conversations[0], Mapping) else conversations
        prompts = [self._words.render_chat(messages) for messages in many]  # type: ignore[arg-type]
        return self.generate(prompts, params, session=session)

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: PoolingParams | Sequence[PoolingParams] | None = None,
    ) -> list[EmbeddingOutput]:
        """Makes a vector of each of one or many prompts (texts or token id lists), in their order.

        Args:
            params: one for all, or one per prompt; default `PoolingParams()`.

        Raises:
            InvalidRequestError: a prompt or parameter cannot be honoured; nothing was run.

        A request that fails while running has an `error` and no vector; the others are untouched.
        """
        came_s = self._engine.clock()
        listed = _as_list(prompts)
        each = _per_prompt(params, len(listed), PoolingParams)
        streams = [
            EmbeddingStream(
                self._input.prepare_pooled(self._next_id(), prompt, p, RequestOptions()),
                prompt if isinstance(prompt, str) else None,
            )
            for prompt, p in zip(listed, each, strict=True)
        ]
        with contextlib.closing(self._engine.run(streams, came_s)) as outputs:
            by_id = {output.request_id: output for output in outputs}
        return [by_id[stream.request.request_id] for stream in streams]

    def stream(
        self, prompt: Prompt, params: SamplingParams | None = None, *, session: Session | None = None
    ) -> Iterator[GenerationDelta]:
        """Generates for one prompt, yielding deltas; leaving the loop early aborts the request."""
        came_s = self._engine.clock()
        prepared = self._prepare(prompt, params or SamplingParams(), session)
        stream = RequestStream(prepared, self._words.tokenizer)
        yield from self._engine.run([stream], came_s)

    def render_chat(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a conversation under the model's chat template, ready for an answer."""
        return self._words.render_chat(messages)

    @property
    def takes_system_message(self) -> bool:
        """Whether the chat template knows the system role (some refuse it)."""
        return self._words.takes_system_message

    def pin(self, prompt: Prompt, session: Session) -> SessionState:
        """Computes a prompt and has a session hold it, in place of what it held before. The session is opened if there
        is none.

        Raises:
            InvalidRequestError: the prompt cannot be honoured, or never be held; the message holds the numbers.
            PinBudgetError: it cannot be held now.
        """
        pin = checked_pin(session)
        token_ids = self._input.encode(prompt)
        prepared = self._prepare(token_ids, WARM_UP, pin)  # refuses what could not run before a session is opened
        self._engine.ask(lambda core: core.open_session("", pin, token_ids))
        for delta in self._engine.run([RequestStream(prepared, None)], self._engine.clock()):
            last = delta.choice
        check_held(last)
        return self.session(pin.session_id)

    def session(self, session_id: str) -> SessionState:
        """What a session holds, and for how long yet.

        Raises:
            SessionNotFoundError: there is none.
        """
        return found(next((one for one in self.sessions() if one.session_id == session_id), None), session_id)

    def sessions(self) -> list[SessionState]:
        """All sessions, oldest first."""
        return self._engine.ask(lambda core: core.sessions(""))

    def extend_session(self, session: Session) -> SessionState:
        """Begins a session's lease anew, with another length if one is given.

        Raises:
            SessionNotFoundError: there is none.
        """
        pin = checked_pin(session)
        return found(self._engine.ask(lambda core: core.extend_session("", pin)), pin.session_id)

    def end_session(self, session_id: str) -> bool:
        """Lets go of what a session holds; False if there is none."""
        return self._engine.ask(lambda core: core.end_session("", session_id))

    def load(self) -> EngineLoad:
        """Figures and counters of the engine core."""
        return self._engine.ask(EngineCore.load)

    def reset_prefix_cache(self) -> bool:
        """Forgets cached prefixes, those that sessions hold, too; False while requests run."""
        return self._engine.ask(EngineCore.reset_prefix_cache)

    def start_profile(
        self, *, max_steps: int | None = None, max_seconds: float | None = None, max_events: int = MAX_TRACE_EVENTS
    ) -> None:
        """Records what the engine does, until `stop_profile` or the first limit. No token depends on it.

        Raises:
            ProfileError: there is a profile that has not been stopped.
            InvalidRequestError: a limit that cannot be.
        """
        order = StartProfile(max_steps, max_seconds, max_events)
        self._engine.ask(lambda core: core.profiler.start(order))

    def stop_profile(self) -> Trace:
        """Ends the profile; with `profile=FOLDER` it is written there, too.

        Raises:
            ProfileError: there is none.
        """
        profile = self._engine.ask(lambda core: core.profiler.stop())
        return trace_of(profile, self.info.served_model_names[0], self._trace_folder)

    def close(self) -> None:
        """Frees memory and threads; idempotent."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prepare(self, prompt: Prompt, params: SamplingParams, session: Session | None) -> PreparedRequest:
        options = RequestOptions(pin=pin_of(session))
        return self._input.prepare(self._next_id(), prompt, params, options)

    def _next_id(self) -> str:
        return f"local-{next(self._request_ids)}"

    def _run(self, prepared: list[PreparedRequest], prompts: list[Prompt], came_s: float) -> list[GenerationOutput]:
        streams = [RequestStream(request, self._words.tokenizer) for request in prepared]
        collectors = {
            request.request_id: OutputCollector(request, prompt if isinstance(prompt, str) else None)
            for request, prompt in zip(prepared, prompts, strict=True)
        }
        with contextlib.closing(self._engine.run(streams, came_s)) as deltas:
            for delta in deltas:
                collectors[delta.request_id].add(delta, self._engine.clock())
        return [collectors[request.request_id].output() for request in prepared]


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


def _per_prompt(params: Params | Sequence[Params] | None, count: int, kind: type[Params]) -> list[Params]:
    if params is None:
        params = kind()
    if isinstance(params, kind):
        return [params] * count
    if not isinstance(params, Sequence) or not all(isinstance(each, kind) for each in params):
        raise InvalidRequestError("params", params, f"must be {kind.__name__}, one for all or one per prompt")
    if len(params) != count:
        raise InvalidRequestError("params", len(params), f"give one for all, or one for each of the {count} prompts")
    return list(params)
