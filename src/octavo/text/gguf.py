"""Tokenizers from GGUF metadata: a registry of families by `tokenizer.ggml.model`."""

from collections.abc import Callable, Mapping
from typing import Any

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.text.gguf_bpe import read_bpe
from octavo.text.gguf_metadata import PREFIX, TokenizerMetadata
from octavo.text.gguf_spm import read_spm
from octavo.text.parts import TokenizerParts

FAMILIES: dict[str, Callable[[TokenizerMetadata], TokenizerParts]] = {
    "gpt2": read_bpe,
    "llama": read_spm,
}
"""Value of `tokenizer.ggml.model` -> reader."""


def read_gguf(metadata: Mapping[str, Any]) -> TokenizerParts:
    """The tokenizer that a GGUF file's key/values describe.

    Raises:
        ModelFileError: a key is missing, of the wrong type, or contradicts another; the message names it.
        UnsupportedModelError: a tokenizer family or pre-tokeniser that Octavo does not know.
    """
    family = metadata.get(f"{PREFIX}model")
    if not isinstance(family, str):
        raise ModelFileError(f"{PREFIX}model is missing: the file has no tokenizer")
    if family not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise UnsupportedModelError(f"{PREFIX}model={family!r}: Octavo knows these tokenizer families: {known}")
    return FAMILIES[family](TokenizerMetadata(metadata))
