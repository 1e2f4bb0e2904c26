"""What the ledger is asked beside model and machine. The fields' docstrings are the command's help."""

from dataclasses import dataclass

from octavo.errors import ConfigError
from octavo.kv.spec import KVDtype


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """How a model is cut."""

    tp: int | None = None
    """Tensor parallel ranks. None: as many devices as divide the attention heads."""
    pp: int = 1
    """Pipeline stages."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is asked of it."""

    prompt_tokens: int = 2050
    """Tokens of the prompt."""
    output_tokens: int = 300
    """Tokens of the answer."""
    batch: int = 64
    """Requests that decode side by side."""
    block_size: int = 16
    """Tokens per KV block."""
    kv_cache_dtype: KVDtype = KVDtype.BF16
    """Number format of cached K and V."""
    chunk_tokens: int = 512
    """Prompt tokens that a step runs at most."""
    max_num_seqs: int = 256
    """Requests that run at one time at most: sizes graphs, bitmasks and penalty counts."""
    drafts: int = 3
    """Drafts per request and step."""
    adapter_rank: int = 16
    """Rank of low-rank adapters."""
    adapter_slots: int = 8
    """Adapters held at one time."""
    image_px: int = 336
    """Side of a square image, in pixels."""
    image_patch_px: int = 14
    """Side of the patch that becomes one token, in pixels."""
    memory_share: float = 0.9
    """Share of a device's memory that weights and KV may take."""

    def __post_init__(self) -> None:
        if self.kv_cache_dtype not in tuple(KVDtype):
            raise ConfigError("kv_cache_dtype", self.kv_cache_dtype, f"must be one of {', '.join(KVDtype)}")
        object.__setattr__(self, "kv_cache_dtype", KVDtype(self.kv_cache_dtype))  # a plain string is fine
        for name, value in vars(self).items():
            if isinstance(value, int) and value < (0 if name == "drafts" else 1):
                raise ConfigError(name, value, "must be positive")
        if not 0 < self.memory_share <= 1:
            raise ConfigError("memory_share", self.memory_share, "must be above 0 and at most 1")
        if self.image_px < self.image_patch_px:
            raise ConfigError("image_px", self.image_px, f"holds no patch of image_patch_px={self.image_patch_px}")

    @property
    def total_tokens(self) -> int:
        """Of a request at its end."""
        return self.prompt_tokens + self.output_tokens
