"""Incremental detokenisation: token ids in, text out, never half a character."""

import codecs
from collections.abc import Iterable

from octavo.text.tokenizer import Tokenizer

_UTF8_DECODER = codecs.getincrementaldecoder("utf-8")


class IncrementalDetokenizer:
    """Turns a stream of token ids into a stream of text.

    The deltas of any partition of the ids, and the last flush, concatenate to
    `tokenizer.decode(ids, skip_special=skip_special, continues=continues)`.

    Ids are turned into bytes and the bytes go through one incremental UTF-8 decoder, so what is held back is
    at most the three bytes of an unfinished character. Bytes that cannot begin or continue one become U+FFFD
    at once: a run of them costs the same per token as text does. (Decoding a growing window of ids again and
    again, and holding everything back while its text ends in U+FFFD, never ends on such a run.)
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True, continues: bool = False) -> None:
        """
        Args:
            tokenizer: of the model that produces the ids.
            skip_special: leave out control tokens instead of spelling them.
            continues: text stands before the first id, so its leading space stays.
        """
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._drops_space = tokenizer.drops_first_space and not continues
        self._decoder = _UTF8_DECODER("replace")

    def push(self, token_ids: Iterable[int]) -> str:
        """The text that these ids complete; empty while a character is unfinished.

        Raises:
            InvalidRequestError: an id outside the vocabulary; nothing of this call is then taken.
        """
        joined = b"".join(self._tokenizer.text_bytes(i, skip_special=self._skip_special) for i in token_ids)
        if self._drops_space and joined:
            self._drops_space = False
            joined = joined.removeprefix(b" ")
        return self._decoder.decode(joined)

    def flush(self) -> str:
        """What is left when no more ids come: U+FFFD for an unfinished character, else nothing."""
        return self._decoder.decode(b"", final=True)
