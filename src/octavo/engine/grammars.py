"""Composes structured output: who compiles grammars, and who draws under them. Of the libraries and the vocabulary
nothing is loaded before the first grammar is asked for, or prepared for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from octavo.decoding.structured.backend import GrammarBackend
from octavo.decoding.structured.deferred_backend import DeferredBackend
from octavo.decoding.structured.grammars import Grammars
from octavo.decoding.structured.guided_sampler import GuidedSampler
from octavo.decoding.structured.service import GrammarService
from octavo.engine.grammar_desk import GrammarDesk
from octavo.engine.waker import Waker
from octavo.execution.loader import open_checkpoint
from octavo.execution.protocols import Sampler
from octavo.hub.files import ModelFiles

if TYPE_CHECKING:
    from octavo.text.tokenizer import Tokenizer


class StructuredOutput(NamedTuple):
    """What an engine has for answers of a given shape."""

    desk: GrammarDesk
    sampler: GuidedSampler


def with_grammars(sampler: Sampler, load_tokenizer: Callable[[], Tokenizer], vocab_size: int) -> StructuredOutput:
    """Has a sampler draw under grammars, and somebody compile them.

    Args:
        load_tokenizer: of the model; called once at most, from a thread of its own.
        vocab_size: ids from here on are never sampled.
    """

    def make_backend() -> GrammarBackend:
        from octavo.decoding.structured.llguidance_backend import LLGuidanceBackend  # noqa: PLC0415
        from octavo.decoding.structured.vocabulary import grammar_vocabulary  # noqa: PLC0415

        return LLGuidanceBackend(grammar_vocabulary(load_tokenizer(), vocab_size))

    waker = Waker()
    grammars = Grammars(GrammarService(DeferredBackend(make_backend), waker.wake))
    return StructuredOutput(GrammarDesk(grammars, waker), GuidedSampler(sampler, grammars, vocab_size))


def load_tokenizer(files: ModelFiles) -> Tokenizer:
    """The tokenizer of a model, in a process that has not needed it so far.

    Raises:
        ModelFileError, UnsupportedModelError: it cannot be read or is of a kind Octavo does not know.
    """
    from octavo.text.tokenizer import from_gguf, from_hf  # noqa: PLC0415

    return from_gguf(open_checkpoint(files.files).metadata) if files.kind == "gguf" else from_hf(files.folder)
