"""Encoding by the `tokenizers` library."""

import threading

from tokenizers import Tokenizer as LibraryTokenizer


class LibraryEncoder:
    """A :class:`TextEncoder` over one library tokenizer that knows its special and user-defined tokens."""

    def __init__(self, library: LibraryTokenizer) -> None:
        library.no_truncation()
        library.no_padding()
        self._library = library
        # The library keeps "spellings of special tokens are text" as a switch of the whole object, and a
        # second object would double memory and load time.
        self._switch = threading.Lock()

    def encode(self, text: str, parse_special: bool) -> list[int]:
        with self._switch:
            self._library.encode_special_tokens = not parse_special
            return self._library.encode(text, add_special_tokens=False).ids
