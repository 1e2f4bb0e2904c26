"""An answer in OpenAI's JSON: whole or as chunks, over the same pieces."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from octavo.request.outputs import FinishReason
from octavo.server.context import ServerContext
from octavo.server.conversation.answer import Answer
from octavo.server.conversation.pieces import Piece, PromptWriter
from octavo.server.openai.generation_body import StreamOptions
from octavo.server.openai.session import session_facts
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


class SpelledAnswer:
    """One answer; consume it once, by `whole` or by `stream`."""

    def __init__(
        self,
        server: ServerContext,
        answer: Answer,
        shape: AnswerFormat,
        *,
        model: str,
        stream_options: StreamOptions | None = None,
    ) -> None:
        self._server = server
        self._answer = answer
        self._shape = shape
        self._model = model
        self._stream_options = stream_options or StreamOptions()

    async def whole(self) -> dict[str, Any]:
        """The whole answer.

        Raises:
            OctavoError: as of `Answer.whole`.
        """
        shape, writers = self._shape, self._answer.writers
        pieces = await self._answer.whole()

        def spelled() -> dict[str, Any]:
            choices = [shape.choice(piece, self._answer.writer_of(piece.index)) for piece in pieces]
            answer = self._head(shape.whole_object) | {"choices": choices, "usage": usage(writers)}
            return answer | shape.beside_choices(writers) | self._session()

        is_long = num_logprobs(pieces, writers) > MANY_LOGPROBS
        return await asyncio.to_thread(spelled) if is_long else spelled()

    async def stream(self) -> AsyncGenerator[dict[str, Any], None]:
        """The answer's chunks. With `include_usage` a last one carries the usage and no choice."""
        options, shape, writers = self._stream_options, self._shape, self._answer.writers
        head = self._head(shape.chunk_object)
        extras: dict[str, Any] | None = None
        async with aclosing(self._answer.pieces()) as pieces:
            async for piece in pieces:
                if piece.first and num_logprobs([piece], writers) > MANY_LOGPROBS:
                    delta = await asyncio.to_thread(shape.delta, piece, self._answer.writer_of(piece.index))
                    beside = await asyncio.to_thread(shape.beside_choices, writers)
                else:
                    delta = shape.delta(piece, self._answer.writer_of(piece.index))
                    beside = shape.beside_choices(writers) if extras is None else {}
                chunk = head | {"choices": [delta]}
                if extras is None:
                    extras = beside
                    chunk |= extras
                if options.include_usage:
                    chunk["usage"] = usage(writers) if options.continuous_usage_stats else None
                if piece.index == 0 and piece.finish_reason is not None:
                    chunk |= self._session()
                yield chunk
        if options.include_usage:
            yield head | {"choices": [], "usage": usage(writers)}

    def _session(self) -> dict[str, Any]:
        """What the request's session holds now, beside the end of the first choice."""
        session = self._answer.order.generation.session
        return {} if session is None else {"session": session_facts(session, self._answer.writers[0].stats)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._answer.order.generation.request_id,
            "object": kind,
            "created": int(self._server.wall_clock()),
            "model": self._model,
            "system_fingerprint": self._server.fingerprint,
        }


MANY_LOGPROBS = 2_000
"""From here on an answer is spelled in a thread: others' streams would wait for 5 ms and more."""


def num_logprobs(pieces: Sequence[Piece], writers: Sequence[PromptWriter]) -> int:
    """How many logprobs are to be spelled, those of prompts included."""
    rows = (row for writer in writers for row in writer.prompt_rows or () if row is not None)
    tokens = (token for piece in pieces for token in piece.scored)
    return sum(len(row.token_ids) for row in rows) + sum(1 + len(token.top) for token in tokens)


def finish_reason(reason: FinishReason | None) -> str | None:
    """A finish reason in JSON."""
    return None if reason is None else str(reason)
