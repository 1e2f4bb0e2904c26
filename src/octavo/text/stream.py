"""The text side of one streamed answer: token ids in, text deltas out, ended by a stop string."""

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.text.detokenizer import IncrementalDetokenizer
from octavo.text.stop import StopStringMatcher
from octavo.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TextDelta:
    """What a push of token ids gave."""

    text: str = ""
    """New text, final and never taken back."""
    num_tokens: int = 0
    """How many of the pushed ids belong to the answer. Fewer than were pushed only if `stop` is set: the last
    of them completed it. Token ids, logprobs and usage are cut there."""
    stop: str | None = None
    """The stop string that ended the answer."""
    text_offsets: tuple[int, ...] = ()
    """For each of these ids, where its text begins in the whole text of the answer, in characters. A
    character cut into several tokens belongs to the one that completes it."""


class TextStream:
    """Detokeniser and stop strings of one answer.

    The deltas of any partition of the ids into pushes, and the last flush, concatenate to the same text, and
    the same ids are used.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stops: Sequence[str] = (),
        include_stop: bool = False,
        min_tokens: int = 0,
        skip_special: bool = True,
        continues: bool = False,
    ) -> None:
        """
        Args:
            tokenizer: of the model that produces the ids.
            stops: strings that end the answer.
            include_stop: the text keeps the stop string, or the text of the stop token, that ended it.
            min_tokens: stop strings in the text of this many first tokens do not count.
            skip_special: leave out control tokens instead of spelling them.
            continues: text stands before the first id, so its leading space stays.
        """
        self._detokenizer = IncrementalDetokenizer(tokenizer, skip_special=skip_special, continues=continues)
        self._matcher = StopStringMatcher(stops, include_stop=include_stop)
        self._include_stop = include_stop
        self._unmatched_tokens = min_tokens
        """Tokens still to come whose text is not searched; below zero once that many have passed."""
        self._num_characters = 0
        """Length of the detokenised text, held or emitted."""
        self._stop: str | None = None

    def push(self, token_ids: Sequence[int], *, ends_with_stop_token: bool = False) -> TextDelta:
        """Takes the next ids of the answer.

        Args:
            token_ids: any number of ids; those after a stop string are ignored.
            ends_with_stop_token: the last id is why the engine ended the answer (end of text, or one of the
                request's stop ids): its text is left out unless `include_stop`.

        Raises:
            InvalidRequestError: an id outside the vocabulary.
        """
        texts: list[str] = []
        offsets: list[int] = []
        silent_at = len(token_ids) - 1 if ends_with_stop_token and not self._include_stop else -1
        for at, token_id in enumerate(token_ids):
            if self._stop is not None:
                break
            offsets.append(self._num_characters)
            if at != silent_at:
                text = self._detokenizer.push((token_id,))
                texts.append(self._search(text, counts=self._unmatched_tokens <= 0))
            self._unmatched_tokens -= 1
        return TextDelta("".join(texts), len(offsets), self._stop, tuple(offsets))

    def flush(self) -> TextDelta:
        """The text held back, when the answer ends. An unfinished character becomes U+FFFD, and that may
        complete a stop string."""
        if self._stop is not None:
            return TextDelta(stop=self._stop)
        text = self._search(self._detokenizer.flush(), counts=self._unmatched_tokens < 0)
        return TextDelta(text + self._matcher.flush(), stop=self._stop)

    def _search(self, text: str, *, counts: bool) -> str:
        self._num_characters += len(text)
        if not counts:
            return text
        found = self._matcher.feed(text)
        self._stop = found.stop
        return found.text
