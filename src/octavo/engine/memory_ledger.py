"""What an engine takes of this machine's memory, known before its weights are loaded."""

from dataclasses import dataclass
from typing import Literal

from octavo.sizes import size_text

LimitName = Literal["max_memory", "machine"]


@dataclass(frozen=True, kw_only=True)
class MemoryLedger:
    """Bytes of one engine, by what they are for: what it may come to hold at most, once every buffer and block has been
    used. Processes that speak HTTP in front of it are not in it."""

    process_bytes: int = 0
    """Interpreter, libraries, tokenizer: what the process held before the weights, and what it will need besides."""
    weight_bytes: int = 0
    """Of the model, packed, with its vectors and rotary tables."""
    draft_weight_bytes: int = 0
    """Of a model that guesses."""
    step_bytes: int = 0
    """Activations, logits and scratch of the largest step."""
    draft_step_bytes: int = 0
    """The same, of a model that guesses."""
    batch_bytes: int = 0
    """Tokens and block tables of `max_num_seqs` sequences."""
    loading_bytes: int = 0
    """Converted weights that wait to be packed, while there are no steps yet."""
    kv_bytes: int = 0
    """All blocks."""
    kv_index_bytes: int = 0
    """What is known of these blocks when all are cached, and where tokens in them are looked up for drafts."""
    lookup_bytes: int = 0
    """Earlier answers, kept for drafts."""
    kv_host_bytes: int = 0
    """Blocks kept in main memory behind the pool."""
    file_bytes: int = 0
    """Of the model's tensors as they stand in its files. No memory of the engine's: pages of a file may be kept by the
    system as long as nobody else wants the room."""
    limit_bytes: int = 0
    """The engine may take so much."""
    limit: LimitName = "machine"
    """Who says so: the setting, or what machine and container have free."""

    @property
    def fixed_bytes(self) -> int:
        """All that does not depend on the number of blocks."""
        return self.total_bytes - self.kv_bytes - self.kv_index_bytes

    @property
    def total_bytes(self) -> int:
        """Everything."""
        return sum(num_bytes for _, num_bytes in self.parts())

    def parts(self) -> list[tuple[str, int]]:
        """What takes memory, with its bytes; of loading what is more than the buffers that take its place."""
        return [
            ("process", self.process_bytes),
            ("weights", self.weight_bytes),
            ("draft weights", self.draft_weight_bytes),
            ("step buffers", self.step_bytes),
            ("draft step buffers", self.draft_step_bytes),
            ("sequences", self.batch_bytes),
            ("loading", max(0, self.loading_bytes - self.step_bytes - self.draft_step_bytes - self.batch_bytes)),
            ("earlier answers", self.lookup_bytes),
            ("KV blocks", self.kv_bytes),
            ("KV index", self.kv_index_bytes),
            ("KV in host memory", self.kv_host_bytes),
        ]

    @property
    def left_bytes(self) -> int:
        """What the limit leaves for blocks and what is known of them; negative: not even the rest fits."""
        return self.limit_bytes - self.fixed_bytes

    def describe(self) -> str:
        """The total, in a few words."""
        whose = {"max_memory": "max_memory", "machine": "free"}[self.limit]
        return f"at most {size_text(self.total_bytes)} of memory ({size_text(self.limit_bytes)} {whose})"

    def arithmetic(self) -> str:
        """The sum that has to fit, without blocks."""
        sizes = [(name, size) for name, size in self.parts() if size and not name.startswith("KV bl")]
        whose = {"max_memory": "max_memory allows", "machine": "of this machine's memory can be had"}[self.limit]
        terms = " + ".join(f"{name} {size_text(size)}" for name, size in sizes)
        return f"{size_text(self.limit_bytes)} {whose}, and without KV blocks the engine takes {terms}"

    def lines(self) -> list[str]:
        """A table for people: a line per part, the total, and what it is held against."""
        rows = [(name, size) for name, size in self.parts() if size]
        rows += [("total", self.total_bytes), ("limit" if self.limit == "max_memory" else "free", self.limit_bytes)]
        width = max(len(name) for name, _ in rows)
        return [f"{name:{width}}  {size_text(size):>8}" for name, size in rows]
