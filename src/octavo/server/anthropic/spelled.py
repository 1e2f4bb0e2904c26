"""A message as its events. A streamed one sends them; a whole one is what they add up to."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from octavo.request.outputs import FinishReason
from octavo.server.anthropic.errors import anthropic_error
from octavo.server.anthropic.output import BlockWriter, Event
from octavo.server.conversation.answer import Answer
from octavo.server.conversation.pieces import Piece, PromptWriter
from octavo.server.errors import ApiError, aborted
from octavo.server.openai.session import session_facts
from octavo.server.streaming import named_event


class SpelledMessage:
    """One message; consume it once, by `whole` or by `stream`."""

    def __init__(self, answer: Answer, model: str, *, fills_context: bool) -> None:
        """
        Args:
            fills_context: see MessageOrder.
        """
        self._answer = answer
        self._model = model
        self._fills_context = fills_context
        self._writer = BlockWriter()

    async def whole(self) -> dict[str, Any]:
        """The whole message.

        Raises:
            OctavoError: as of `Answer.pieces`.
        """
        message = self._message()
        async with aclosing(self.stream()) as events:
            async for event in events:
                if event["type"] == "message_delta":
                    message = self._message() | event["delta"] | self._session() | {"content": self._writer.blocks}
        return message

    async def stream(self) -> AsyncGenerator[Event, None]:
        """The events of the message.

        Raises:
            OctavoError: as of `Answer.pieces`.
        """
        last: Piece | None = None
        async with aclosing(self._answer.pieces()) as pieces:
            async for piece in pieces:
                if last is None:
                    yield {"type": "message_start", "message": self._message()}
                    yield {"type": "ping"}
                for said in piece.events:
                    for event in self._writer.write(said):
                        yield event
                last = piece
        for event in self._writer.finish():
            yield event
        yield {"type": "message_delta", "delta": self._end(last), "usage": self._usage(), **self._session()}
        yield {"type": "message_stop"}

    def _message(self) -> dict[str, Any]:
        """The message without its content, as far as it is known."""
        return {
            "id": self._answer.order.generation.request_id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage(),
        }

    def _usage(self) -> dict[str, Any]:
        (writer,) = self._answer.writers
        return usage_of(writer)

    def _session(self) -> dict[str, Any]:
        """What the request's session holds now, at the end of the message."""
        session = self._answer.order.generation.session
        return {} if session is None else {"session": session_facts(session, self._answer.writers[0].stats)}

    def _end(self, last: Piece | None) -> dict[str, Any]:
        """Why the message has ended.

        Raises:
            ApiError: 499, it was ended from outside.
        """
        stop = None if last is None else last.stop_reason
        match None if last is None else last.finish_reason:
            case FinishReason.LENGTH:
                reason = "model_context_window_exceeded" if self._fills_context else "max_tokens"
            case FinishReason.ABORT:
                raise aborted()
            case _ if isinstance(stop, str):
                return {"stop_reason": "stop_sequence", "stop_sequence": stop}
            case _:
                reason = "tool_use" if self._writer.num_calls else "end_turn"
        return {"stop_reason": reason, "stop_sequence": None}


def usage_of(writer: PromptWriter) -> dict[str, Any]:
    """Token counts as this API spells them: the prompt's tokens are those that were read from the cache and the others.
    None is written to the cache at a price."""
    return {
        "input_tokens": len(writer.prompt.token_ids) - writer.num_cached_tokens,
        "cache_read_input_tokens": writer.num_cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": writer.num_output_tokens,
        "output_tokens_details": {"thinking_tokens": writer.num_reasoning_tokens},
    }


class MessageEvents:
    """The spelling of the stream: named events, nothing behind the last one."""

    def event(self, item: dict[str, Any]) -> bytes:
        """See EventSpelling."""
        return named_event(item)

    def failure(self, error: ApiError) -> bytes:
        """See EventSpelling."""
        return named_event(anthropic_error(error))

    def end(self) -> bytes:
        """See EventSpelling."""
        return b""
