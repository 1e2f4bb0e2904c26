"""A backend that is made when it is first needed."""

import threading
from collections.abc import Callable

from octavo.decoding.structured.backend import CompiledGrammar, GrammarBackend
from octavo.request.structured import StructuredSpec


class DeferredBackend:
    """A :class:`GrammarBackend`. A vocabulary costs time and memory, and most engines are never asked for a grammar."""

    def __init__(self, make: Callable[[], GrammarBackend]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._backend: GrammarBackend | None = None

    def prepare(self) -> None:
        """See GrammarBackend."""
        self._made().prepare()

    def compile(self, spec: StructuredSpec) -> CompiledGrammar:
        """See GrammarBackend."""
        return self._made().compile(spec)

    def _made(self) -> GrammarBackend:
        with self._lock:
            if self._backend is None:
                self._backend = self._make()
            return self._backend
