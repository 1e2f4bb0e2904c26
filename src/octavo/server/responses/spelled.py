"""A response as its events. A streamed one sends them; a whole one is what the last of them carries."""

import logging
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any

from octavo.request.outputs import FinishReason
from octavo.server.conversation.answer import Answer
from octavo.server.conversation.pieces import Piece, PromptWriter
from octavo.server.errors import ApiError, from_exception
from octavo.server.openai.logprobs import chat_logprobs
from octavo.server.openai.session import session_facts
from octavo.server.responses.output import Event, Logprob, OutputWriter
from octavo.server.streaming import named_event
from octavo.server.tools.events import ContentDelta

log = logging.getLogger(__name__)

Keep = Callable[[dict[str, Any]], Awaitable[bool]]
"""Keeps a response that has ended; False if it cannot be kept."""


CUT_OFF: dict[FinishReason | None, str] = {
    FinishReason.LENGTH: "max_output_tokens",
    FinishReason.ABORT: "abort",
    FinishReason.REPETITION: "repetition",
}
"""Why an answer has ended before its model ended it; the first is OpenAI's, the others are ours."""


class SpelledResponse:
    """One response; consume it once, by `whole` or by `stream`."""

    def __init__(self, answer: Answer, head: dict[str, Any], keep: Keep | None, clock: Callable[[], float]) -> None:
        """
        Args:
            head: the response before anything is generated.
            keep: None: it is not to be kept.
            clock: Unix seconds.
        """
        self._answer = answer
        self._head = head
        self._keep = keep
        self._clock = clock
        self._writer = OutputWriter(lambda prefix: f"{prefix}_{uuid.uuid4().hex}")

    async def whole(self) -> dict[str, Any]:
        """The whole response.

        Raises:
            OctavoError: as of `Answer.pieces`.
        """
        last: Event = {}
        async with aclosing(self._events()) as events:
            async for event in events:
                last = event
        response: dict[str, Any] = last["response"]
        return response

    async def stream(self) -> AsyncGenerator[Event, None]:
        """The events of the response. What fails after the first one ends it as failed.

        Raises:
            OctavoError: it failed before the first event.
        """
        begun = False
        try:
            async with aclosing(self._events()) as events:
                async for event in events:
                    begun = True
                    yield event
        except Exception as error:
            failure = from_exception(error)
            if not begun:
                raise
            yield {"type": "response.failed", "response": await self._failed(failure)}

    async def _events(self) -> AsyncGenerator[Event, None]:
        last: Piece | None = None
        async with aclosing(self._answer.pieces()) as pieces:
            async for piece in pieces:
                if last is None:
                    for name in ("created", "in_progress"):
                        yield {"type": f"response.{name}", "response": self._response("in_progress")}
                for event in self._written(piece):
                    yield event
                last = piece
        reason = None if last is None else CUT_OFF.get(last.finish_reason)
        for event in self._writer.finish(cut_off=reason is not None):
            yield event
        status = "completed" if reason is None else "incomplete"
        yield {"type": f"response.{status}", "response": await self._ended(status, reason)}

    def _written(self, piece: Piece) -> Iterator[Event]:
        logprobs: list[Logprob] = chat_logprobs(piece.scored)["content"]
        for event in piece.events:
            yield from self._writer.write(event, logprobs)
            if isinstance(event, ContentDelta):
                logprobs = []  # they belong to the first text of the piece

    def _response(self, status: str) -> dict[str, Any]:
        return {**self._head, "status": status, "output": [dict(item) for item in self._writer.items]}

    async def _ended(self, status: str, reason: str | None) -> dict[str, Any]:
        (writer,) = self._answer.writers
        facts = {"completed_at": int(self._clock()), "usage": usage_of(writer), **self._session(writer)}
        details = None if reason is None else {"reason": reason}
        return await self._kept(self._response(status) | facts | {"incomplete_details": details})

    def _session(self, writer: PromptWriter) -> dict[str, Any]:
        """What the request's session holds now."""
        session = self._answer.order.generation.session
        return {} if session is None else {"session": session_facts(session, writer.stats)}

    async def _failed(self, failure: ApiError) -> dict[str, Any]:
        for _ in self._writer.finish(cut_off=True):
            pass  # the client learns of the items as they are from the response
        error = {"code": "server_error", "message": failure.message}
        return self._response("failed") | {"error": error, "store": False}

    async def _kept(self, response: dict[str, Any]) -> dict[str, Any]:
        """The response, kept if it is to be; it says itself whether it is."""
        if self._keep is None or await self._keep(response):
            return response
        log.warning("response %s is larger than may be kept (--max-body-bytes, --response-store-bytes)", response["id"])
        return response | {"store": False}


def usage_of(writer: PromptWriter) -> dict[str, Any]:
    """Token counts as this API spells them. Nothing is written to the prefix cache at a price, so no token counts as
    written."""
    num_input = len(writer.prompt.token_ids)
    return {
        "input_tokens": num_input,
        "input_tokens_details": {"cached_tokens": writer.num_cached_tokens, "cache_write_tokens": 0},
        "output_tokens": writer.num_output_tokens,
        "output_tokens_details": {"reasoning_tokens": writer.num_reasoning_tokens},
        "total_tokens": num_input + writer.num_output_tokens,
    }


class ResponseEvents:
    """The spelling of the stream: named and numbered events, nothing behind the last one."""

    def __init__(self) -> None:
        self._num_events = 0

    def event(self, item: dict[str, Any]) -> bytes:
        """See EventSpelling."""
        numbered = {**item, "sequence_number": self._num_events}
        self._num_events += 1
        return named_event(numbered)

    def failure(self, error: ApiError) -> bytes:
        """See EventSpelling."""
        return self.event({"type": "error", "code": error.code, "message": error.message, "param": error.param})

    def end(self) -> bytes:
        """See EventSpelling."""
        return b""
