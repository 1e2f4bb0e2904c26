"""From the engine's deltas to the pieces of an answer. Streamed and whole answers are made of the same pieces, so they
cannot differ."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from octavo.engine.output import ChoiceDelta, GenerationDelta
from octavo.request.outputs import FinishReason, LogprobRow, RequestStats
from octavo.server.conversation.reading import PLAIN, Reading, ReasoningTokens
from octavo.server.conversation.token_texts import ScoredToken, TokenTexts
from octavo.server.prompts import Prompt
from octavo.server.serving_engine import TextCodec
from octavo.server.tools.events import AnswerEvent, ContentDelta, ToolCallStart, merged

PromptRows = Sequence[LogprobRow | None]


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """What a request wants to see of its answer."""

    num_top_logprobs: int | None = None
    """None: no logprobs."""
    named_logprobs: bool = False
    """They are those of ids that the request names."""
    tokens_as_ids: bool = False
    """Logprobs spell tokens as `token_id:7`."""
    num_prompt_logprobs: int | None = None
    """vLLM's `prompt_logprobs`; None: not asked for."""
    echo: bool = False
    """The prompt stands before the answer, with its logprobs if there are any."""
    return_token_ids: bool = False
    return_prompt_text: bool = False
    stream_interval: int = 1
    """A piece holds so many tokens at least, but for the first one and the last."""
    skip_special: bool = True
    reading: Reading = PLAIN
    """How the text is taken apart."""
    discard_output: bool = False
    """max_tokens=0: only the prompt is wanted; the one token that the engine makes is dropped."""

    @property
    def needs_prompt_rows(self) -> bool:
        """Whether the first piece of a choice cannot be written without the prompt's logprobs."""
        return self.num_prompt_logprobs is not None or (self.echo and self.num_top_logprobs is not None)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The next part of one choice. Concatenated, pieces are the whole choice."""

    index: int
    events: tuple[AnswerEvent, ...] = ()
    """What the text of this piece says."""
    token_ids: tuple[int, ...] = ()
    """Tokens since the last piece. Text that is still held back may belong to some of them."""
    scored: tuple[ScoredToken, ...] = ()
    """Their logprobs, where asked for."""
    first: bool = False
    """Of this choice."""
    calls: bool = False
    """The choice holds a call, in this piece or before."""
    finish_reason: FinishReason | None = None
    """With the last piece of the choice."""
    stop_reason: str | int | None = None

    @property
    def text(self) -> str:
        """The content in this piece."""
        return "".join(event.text for event in self.events if isinstance(event, ContentDelta))


@dataclass
class GatheredPieces:
    """The pieces of one choice, added up."""

    index: int
    _pieces: list[Piece] = field(default_factory=list)

    def add(self, piece: Piece) -> None:
        """The next piece of the choice."""
        self._pieces.append(piece)

    def whole(self) -> Piece:
        """One piece that is the whole choice."""
        if not self._pieces:
            return Piece(index=self.index, first=True)
        return replace(
            self._pieces[-1],
            events=merged(event for piece in self._pieces for event in piece.events),
            token_ids=tuple(token_id for piece in self._pieces for token_id in piece.token_ids),
            scored=tuple(token for piece in self._pieces for token in piece.scored),
            first=True,
        )


class ScoreKeeper:
    """Holds the logprobs of tokens whose text is not shown yet; drops those that a stop string cuts off."""

    def __init__(self, texts: TokenTexts, shown_chars: int) -> None:
        self._texts = texts
        self._shown_chars = shown_chars
        self._waiting: list[ScoredToken] = []

    def take(self, delta: ChoiceDelta) -> list[ScoredToken]:
        """Adds a delta's tokens; returns those that may be shown with it."""
        self._shown_chars += len(delta.text)
        self._waiting += self._texts.score(delta.token_ids, delta.logprobs or ())
        cut = isinstance(delta.stop_reason, str)
        shown = len(self._waiting)
        if delta.finish_reason is None or cut:
            shown = sum(token.offset < self._shown_chars for token in self._waiting)
        released, rest = self._waiting[:shown], self._waiting[shown:]
        self._waiting = [] if cut else rest
        return released


class ChoiceWriter:
    """One choice: turns its deltas into pieces, none of them empty."""

    def __init__(
        self, index: int, prompt: Prompt, rows: PromptRows | None, options: AnswerOptions, tokenizer: TextCodec | None
    ) -> None:
        self._index = index
        self._options = options
        self._parser = options.reading.parser()
        self._reasoning_tokens = ReasoningTokens(self._parser)
        self._has_text = tokenizer is not None
        self._started = False
        self._calls = False
        self._waiting_ids: list[int] = []
        lead = options.reading.lead or (prompt.text if options.echo else "")
        self._waiting_events: list[AnswerEvent] = [ContentDelta(lead)] if lead else []
        self._waiting_scores: list[ScoredToken] = []
        self._keeper: ScoreKeeper | None = None
        if tokenizer is not None and options.num_top_logprobs is not None:
            texts = TokenTexts(
                tokenizer,
                options.num_top_logprobs,
                skip_special=options.skip_special,
                as_ids=options.tokens_as_ids,
                named=options.named_logprobs,
            )
            if options.echo:
                self._waiting_scores = texts.score_prompt(prompt.token_ids, rows or (), prompt.text)
            self._keeper = ScoreKeeper(texts, len(prompt.text) if options.echo else 0)

    def write(self, delta: ChoiceDelta) -> Piece | None:
        """The piece for a delta; None while there is nothing to show."""
        finish = delta.finish_reason
        if self._options.discard_output:
            return None if finish is None else self._piece(FinishReason.LENGTH, None)
        self._waiting_ids += delta.token_ids
        self._waiting_scores += [] if self._keeper is None else self._keeper.take(delta)
        events = self._parser.feed(delta.text) + ([] if finish is None else self._parser.finish())
        self._waiting_events += events
        self._reasoning_tokens.add(delta.text_offsets)
        if finish is None and (self._is_silent(events) or self._is_early()):
            return None
        return self._piece(finish, delta.stop_reason)

    def _is_silent(self, events: list[AnswerEvent]) -> bool:
        """There should be text, but it is held back."""
        return self._has_text and not events

    def _is_early(self) -> bool:
        return self._started and len(self._waiting_ids) < self._options.stream_interval

    @property
    def num_reasoning_tokens(self) -> int:
        """How many of the tokens so far are known to be reasoning."""
        return self._reasoning_tokens.count

    def _piece(self, finish: FinishReason | None, stop_reason: str | int | None) -> Piece:
        first, self._started = not self._started, True
        events, self._waiting_events = tuple(self._waiting_events), []
        token_ids, self._waiting_ids = tuple(self._waiting_ids), []
        scored, self._waiting_scores = tuple(self._waiting_scores), []
        self._calls = self._calls or any(isinstance(event, ToolCallStart) for event in events)
        return Piece(
            index=self._index,
            events=events,
            token_ids=token_ids,
            scored=scored,
            first=first,
            calls=self._calls,
            finish_reason=finish,
            stop_reason=stop_reason,
        )


class PromptWriter:
    """All choices of one prompt. Choices wait for the prompt's logprobs, which come with choice 0, where they need
    them."""

    def __init__(self, prompt: Prompt, first_index: int, options: AnswerOptions, tokenizer: TextCodec | None) -> None:
        self.prompt = prompt
        self.num_cached_tokens = 0
        self.num_output_tokens = 0
        self.prompt_rows: PromptRows | None = None
        self.stats: RequestStats | None = None
        """The ledger of the first choice, when that has ended."""
        self._first_index = first_index
        self._options = options
        self._tokenizer = tokenizer
        self._writers: dict[int, ChoiceWriter] = {}
        self._backlog: list[ChoiceDelta] = []

    @property
    def num_reasoning_tokens(self) -> int:
        """Of all choices, so far."""
        return sum(writer.num_reasoning_tokens for writer in self._writers.values())

    def write(self, delta: GenerationDelta) -> Iterator[Piece]:
        """Pieces for a delta of any choice."""
        self.num_cached_tokens = delta.num_cached_tokens
        if delta.prompt_logprobs is not None:
            self.prompt_rows = delta.prompt_logprobs
        if delta.choice.index == 0:
            self.stats = delta.choice.stats
        self._backlog.append(delta.choice)
        if self._options.needs_prompt_rows and self.prompt_rows is None:
            return
        ready, self._backlog = self._backlog, []
        for choice in ready:
            if not self._options.discard_output:
                self.num_output_tokens += len(choice.token_ids)
            piece = self._writer(choice.index).write(choice)
            if piece is not None:
                yield piece

    def _writer(self, choice: int) -> ChoiceWriter:
        if choice not in self._writers:
            self._writers[choice] = ChoiceWriter(
                self._first_index + choice, self.prompt, self.prompt_rows, self._options, self._tokenizer
            )
        return self._writers[choice]
