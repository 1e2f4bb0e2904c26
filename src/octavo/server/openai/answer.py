"""An answer from order to JSON: whole or as a stream, over the same pieces."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

from octavo.errors import RequestFailedError
from octavo.request.outputs import FinishReason
from octavo.server import generation
from octavo.server.context import ServerContext
from octavo.server.generation import GenerationOrder
from octavo.server.openai.choices import AnswerOptions, Piece, PromptWriter
from octavo.server.openai.generation_body import StreamOptions
from octavo.server.openai.prompts import Prompt
from octavo.server.openai.session import session_facts
from octavo.server.openai.token_texts import ScoredToken
from octavo.server.openai.usage import usage


class AnswerFormat(Protocol):
    """How an endpoint spells its answer."""

    whole_object: str
    """Value of `object` in a whole answer."""
    chunk_object: str
    """Value of `object` in a chunk."""

    def choice(self, piece: Piece, prompt: PromptWriter) -> dict[str, Any]:
        """A whole choice."""
        ...

    def delta(self, piece: Piece, prompt: PromptWriter) -> dict[str, Any]:
        """A streamed part of a choice."""
        ...

    def beside_choices(self, prompts: Sequence[PromptWriter]) -> dict[str, Any]:
        """Top-level fields beyond OpenAI's, of a whole answer and of the first chunk."""
        ...


@dataclass(frozen=True, kw_only=True)
class AnswerOrder:
    """Everything that defines an answer."""

    generation: GenerationOrder
    prompts: Sequence[Prompt]
    options: AnswerOptions
    format: AnswerFormat
    model: str
    arrival: float
    """On the server's clock."""
    stream_options: StreamOptions | None = None


@dataclass
class _Gathered:
    """The pieces of one choice, added up."""

    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    scored: list[ScoredToken] = field(default_factory=list)
    last: Piece | None = None

    def add(self, piece: Piece) -> None:
        self.text.append(piece.text)
        self.token_ids += piece.token_ids
        self.scored += piece.scored
        self.last = piece

    def whole(self, index: int) -> Piece:
        last = self.last
        return Piece(
            index=index,
            text="".join(self.text),
            token_ids=tuple(self.token_ids),
            scored=tuple(self.scored),
            first=True,
            finish_reason=None if last is None else last.finish_reason,
            stop_reason=None if last is None else last.stop_reason,
        )


class Answer:
    """One answer; consume it once, by `whole` or by `stream`."""

    def __init__(self, server: ServerContext, order: AnswerOrder) -> None:
        self._server = server
        self._order = order
        self._n = order.generation.params.n
        self._unfinished = set(range(len(order.prompts) * self._n))
        tokenizer = server.engine.tokenizer
        self._writers = [
            PromptWriter(prompt, position * self._n, order.options, tokenizer)
            for position, prompt in enumerate(order.prompts)
        ]
        # Refusals are raised here, before anything has run or been sent.
        self._streams = generation.start(server.engine, order.generation)

    async def whole(self) -> dict[str, Any]:
        """The whole answer.

        Raises:
            OctavoError: as of `generation.run`.
        """
        gathered = [_Gathered() for _ in self._unfinished]
        async with aclosing(self._pieces()) as pieces:
            async for _, piece in pieces:
                gathered[piece.index].add(piece)
        shape = self._order.format
        choices = [
            shape.choice(choice.whole(index), self._writers[index // self._n]) for index, choice in enumerate(gathered)
        ]
        answer = self._head(shape.whole_object) | {"choices": choices, "usage": usage(self._writers)}
        return answer | shape.beside_choices(self._writers) | self._session()

    async def stream(self) -> AsyncGenerator[dict[str, Any], None]:
        """The answer's chunks. With `include_usage` a last one carries the usage and no choice."""
        options = self._order.stream_options or StreamOptions()
        shape = self._order.format
        head = self._head(shape.chunk_object)
        extras: dict[str, Any] | None = None
        async with aclosing(self._pieces()) as pieces:
            async for writer, piece in pieces:
                chunk = head | {"choices": [shape.delta(piece, writer)]}
                if extras is None:
                    extras = shape.beside_choices(self._writers)
                    chunk |= extras
                if options.include_usage:
                    chunk["usage"] = usage(self._writers) if options.continuous_usage_stats else None
                if piece.index == 0 and piece.finish_reason is not None:
                    chunk |= self._session()
                yield chunk
        if options.include_usage:
            yield head | {"choices": [], "usage": usage(self._writers)}

    async def _pieces(self) -> AsyncGenerator[tuple[PromptWriter, Piece], None]:
        order, metrics = self._order, self._server.metrics
        tracker = metrics.track(order.generation.params, len(self._unfinished), order.arrival)
        with self._server.state.admitted():
            async with aclosing(generation.run(self._streams, tracker)) as deltas:
                async for position, delta in deltas:
                    for piece in self._writers[position].write(delta):
                        if piece.finish_reason is not None:
                            self._unfinished.discard(piece.index)
                        yield self._writers[position], piece
        if self._unfinished:
            raise RequestFailedError("the engine ended the request before the answer was complete")

    def _session(self) -> dict[str, Any]:
        """What the request's session holds now, beside the end of the first choice."""
        session = self._order.generation.session
        return {} if session is None else {"session": session_facts(session, self._writers[0].stats)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._order.generation.request_id,
            "object": kind,
            "created": int(self._server.wall_clock()),
            "model": self._order.model,
            "system_fingerprint": self._server.fingerprint,
        }


def finish_reason(reason: FinishReason | None) -> str | None:
    """A finish reason in JSON."""
    return None if reason is None else str(reason)
