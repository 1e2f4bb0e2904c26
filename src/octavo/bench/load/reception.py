"""One answer as it comes in: bytes with the times at which they came, to an `Answer`. No input or output."""

from array import array
from typing import Annotated, Any

import msgspec

from octavo.bench.load.event_stream import EventStream
from octavo.bench.load.exchange import Answer, Outcome
from octavo.bench.load.http_response import BadResponseError, HttpResponse

NO_ROOM = (429, 503, 529)
"""Statuses of a server that would have answered at another time."""
_SHOWN = 300
_DONE = b"[DONE]"
_UNREADABLE = (msgspec.DecodeError, RecursionError)
"""What reading JSON raises; the second where it is nested without end."""


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""What a server counts: a negative number of tokens would pass for negative throughput."""


class _CachedTokens(msgspec.Struct):
    cached_tokens: _Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _CachedTokens | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_read_chunk = msgspec.json.Decoder(_Chunk).decode
"""Only what is counted is read of an event: a microsecond or two, and unknown fields cost nothing."""


class Reception:
    """Takes in the response of a request.

    Args:
        streamed: whether the answer comes in events; else as one object.
        hang_up_after: chunks after which we want no more; None: never.
    """

    def __init__(self, streamed: bool = True, hang_up_after: int | None = None) -> None:
        self._response = HttpResponse()
        self._streamed = streamed
        self._events = EventStream()
        self._hang_up_after = hang_up_after
        self._chunk_s = array("d")
        self._text: list[str] = []
        self._plain = bytearray()
        """The body where it is no stream: a whole answer, or the beginning of a refusal."""
        self._came_s = 0.0
        self._usage = _Usage()
        self._finish_reason: str | None = None
        self._done = False
        self._outcome: Outcome | None = None
        self._error: str | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more is wanted."""
        return self._outcome is not None

    @property
    def keeps_open(self) -> bool:
        """Whether the connection can carry another request."""
        return self._response.keeps_open

    def feed(self, data: bytes, now_s: float) -> None:
        """Bytes that came at `now_s`."""
        try:
            body, self._came_s = self._response.feed(data), now_s
            if self._response.status == 200 and self._streamed:
                for event in self._events.feed(body):
                    self._event(event, now_s)
            else:
                self._plain += body if self._response.status == 200 else body[: max(0, 4096 - len(self._plain))]
        except (BadResponseError, *_UNREADABLE) as error:
            self._misread(error)
        if self._response.complete:
            self._judge()

    def connection_lost(self, why: str) -> None:
        """There will be no more bytes."""
        self._response.connection_ended()
        if self._response.complete:
            self._judge()
        else:
            self._end(Outcome.ERRORED, why)

    def give_up(self, why: str) -> None:
        """We want no more."""
        self._end(Outcome.ABORTED, why)

    def answer(self, sent_s: float, ended_s: float) -> Answer:
        """What came. The end of a completed one is that of its last chunk, or without chunks of its bytes; of others it
        is `ended_s`."""
        details = self._usage.prompt_tokens_details
        last_s = self._chunk_s[-1] if self._chunk_s else self._came_s
        return Answer(
            sent_s=sent_s,
            ended_s=last_s if self._outcome is Outcome.COMPLETED else ended_s,
            outcome=self._outcome or Outcome.ERRORED,
            chunk_s=self._chunk_s,
            status=self._response.status,
            prompt_tokens=self._usage.prompt_tokens,
            cached_tokens=None if details is None else details.cached_tokens,
            output_tokens=self._usage.completion_tokens,
            finish_reason=self._finish_reason,
            error=self._error,
            text="".join(self._text),
        )

    def _event(self, event: bytes, now_s: float) -> None:
        if event == _DONE:
            self._done = True
            return
        chunk = _read_chunk(event)
        if chunk.error is not None:
            self._fail(chunk.error)
        if chunk.usage is not None:
            self._usage = chunk.usage
        for choice in chunk.choices:
            self._choice(choice, now_s)

    def _choice(self, choice: _Choice, now_s: float) -> None:
        self._finish_reason = choice.finish_reason or self._finish_reason
        delta = choice.delta or _Delta()
        said = choice.text or delta.content or ""
        if not (said or delta.reasoning_content or delta.reasoning or delta.tool_calls):
            return
        self._chunk_s.append(now_s)
        self._text.append(said)
        if self._hang_up_after is not None and len(self._chunk_s) >= self._hang_up_after:
            self.give_up(f"hung up after {self._hang_up_after} chunks, as told")

    def _fail(self, error: Any) -> None:
        """An error amid the stream: too late for a status, so its code says whether there was no room."""
        told = error if isinstance(error, dict) else {"message": str(error)}
        no_room = told.get("code") in (*NO_ROOM, *map(str, NO_ROOM)) and not self._chunk_s
        self._end(Outcome.REJECTED if no_room else Outcome.ERRORED, str(told.get("message"))[:_SHOWN])

    def _judge(self) -> None:
        """The response has ended."""
        status = self._response.status
        if status == 200 and not self._streamed:
            self._read_whole()
        if status in NO_ROOM:
            self._end(Outcome.REJECTED, _message(self._plain) or f"HTTP {status}")
        elif status != 200:
            self._end(Outcome.ERRORED, f"HTTP {status}: {_message(self._plain)}")
        elif self._finish_reason == "abort":
            self._end(Outcome.ABORTED, "by the server")
        elif not self._done and self._finish_reason is None:
            self._end(Outcome.ERRORED, self._why_unfinished())
        else:
            self._end(Outcome.COMPLETED, None)

    def _why_unfinished(self) -> str:
        kind = self._response.headers.get("content-type", "")
        if self._streamed and kind.startswith("application/json"):
            return "the answer came whole, not as a stream; --no-stream asks for whole ones"
        return "the response ended before the answer did"

    def _read_whole(self) -> None:
        """Of an answer that is no stream: what it says, and why it ended."""
        try:
            answer = _read_chunk(self._plain)
        except _UNREADABLE as error:
            self._misread(error)
            return
        self._usage = answer.usage or self._usage
        for choice in answer.choices:
            self._finish_reason = choice.finish_reason or self._finish_reason
            self._text.append(choice.text or (choice.message and choice.message.content) or "")

    def _misread(self, error: Exception) -> None:
        self._end(Outcome.ERRORED, f"not what a server of this protocol sends: {error}")

    def _end(self, outcome: Outcome, error: str | None) -> None:
        """The first reason counts."""
        if self._outcome is None:
            self._outcome, self._error = outcome, error


def _message(body: bytearray) -> str:
    """What a refusal says, in OpenAI's form or any other."""
    try:
        told = msgspec.json.decode(body)
    except _UNREADABLE:
        told = None
    error = told.get("error", told.get("detail")) if isinstance(told, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return str(message or body.decode("utf-8", "replace"))[:_SHOWN]
