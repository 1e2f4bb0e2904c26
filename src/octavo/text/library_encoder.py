"""Encoding by the `tokenizers` library."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tokenizers import Tokenizer as LibraryTokenizer

from octavo.errors import InvalidRequestError
from octavo.text.library_faults import encoding
from octavo.text.special_splitter import SpecialSplitter

LONG_TEXT_CHARS = 2_000
"""From here on a text goes the library's way for batches, which lets other Python threads run meanwhile (the way for
single texts does not: a text of megabytes would stop a server for seconds). For short ones it is the slower way."""


MAX_TOKENS = 2**20
"""Of one text. To hand over more ids would keep other threads from running for too long."""


class LibraryEncoder:
    """A :class:`TextEncoder` over one library tokenizer that knows its special and user-defined tokens.

    The library keeps "spellings of special tokens are text" as a switch of the whole object, and a second object would
    double memory and load time. So encodings that want the same setting run side by side, and the switch is turned
    between them; a text without any such spelling does not care, and waits for nobody.
    """

    def __init__(self, library: LibraryTokenizer) -> None:
        library.no_truncation()
        library.no_padding()
        self._library = library
        special = {i: token for i, token in library.get_added_tokens_decoder().items() if token.special}
        self._special = SpecialSplitter({token.content: i for i, token in special.items()})
        self._seen_after_normalising = any(token.normalized for token in special.values())
        self._turn = threading.Condition()
        self._spell_special = bool(library.encode_special_tokens)
        """The switch."""
        self._num_running = 0

    def encode(self, text: str, parse_special: bool) -> list[int]:
        with encoding(), self._switched(not parse_special if self._may_hold_special(text) else None):
            if len(text) < LONG_TEXT_CHARS:
                return self._library.encode(text, add_special_tokens=False).ids
            encoded = self._library.encode_batch_fast([text], add_special_tokens=False)[0]
            if len(encoded) > MAX_TOKENS:
                raise InvalidRequestError("prompt", f"{len(encoded)} tokens", f"one text has at most {MAX_TOKENS}")
            return encoded.ids

    def _may_hold_special(self, text: str) -> bool:
        return self._seen_after_normalising or any(isinstance(part, int) for part in self._special.split(text))

    @contextmanager
    def _switched(self, spell_special: bool | None) -> Iterator[None]:
        """Keeps the switch as wanted for the length of the block; None: as it is."""
        with self._turn:
            self._turn.wait_for(lambda: spell_special in (None, self._spell_special) or not self._num_running)
            if spell_special not in (None, self._spell_special):
                self._library.encode_special_tokens = self._spell_special = bool(spell_special)
            self._num_running += 1
        try:
            yield
        finally:
            with self._turn:
                self._num_running -= 1
                self._turn.notify_all()
