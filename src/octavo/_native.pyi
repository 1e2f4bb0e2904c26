"""Types of the native extension (csrc/). One section per kernel family, in the order of csrc/module.cpp."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_Int32 = npt.NDArray[np.int32]
_Float32 = npt.NDArray[np.float32]
_Float64 = npt.NDArray[np.float64]
_UInt8 = npt.NDArray[np.uint8]

# --- base -------------------------------------------------------------------------------------------------------

class OutOfMemoryError(MemoryError):
    """The system refused memory; the message says for what and how much."""

class ThreadPool:
    """Compute threads shared by the executor and the sampler. Workers start with the first run."""

    def __init__(self, threads: int) -> None: ...
    @property
    def threads(self) -> int: ...
    def trace_run(self, chunks_by_stage: Sequence[int]) -> list[list[int]]:
        """Runs empty stages of the given numbers of chunks; returns [stage][chunk] -> thread that ran it."""

def set_leak_warnings(wanted: bool) -> None:
    """Whether objects that still live at the interpreter's end are listed on stderr (the default)."""

def available_isas() -> list[str]:
    """Kernel paths that this CPU can run, the slowest first."""

def steady_ns() -> int:
    """The clock of all times that leave the core, in nanoseconds."""

def resolve_isa(name: str) -> str:
    """The kernel path behind "auto", "amx", "avx512", "avx2" or "portable". ValueError where this CPU lacks it."""

# --- sampling -----------------------------------------------------------------------------------------------------

class SlotParams:
    """Sampling parameters of one request, as the native sampler takes them."""

    greedy: bool
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    seed: int
    min_tokens: int
    num_logprobs: int
    logprob_token_ids: list[int]
    logit_bias: list[tuple[int, float]]
    allowed_token_ids: list[int]
    bad_words: list[list[int]]
    stop_token_ids: list[int]

    def __init__(self) -> None: ...

_LogprobColumns = tuple[_Int32, _Float32, _Int32, _Int32]

class Sampler:
    """The native sampler; `octavo.decoding.sampler.NativeSampler` wraps it."""

    def __init__(self, pool: ThreadPool, vocab_size: int, valid_vocab_size: int, isa: str) -> None: ...
    def add(self, slot: int, params: SlotParams, prompt_token_ids: list[int], output_token_ids: list[int]) -> None: ...
    def remove(self, slot: int) -> None: ...
    def sample(
        self,
        logits: _Float32,
        slots: _Int32,
        masks: _Int32 | None,
        mask_rows: _Int32 | None,
        replaced: _Float32 | None = None,
        replaced_rows: _Int32 | None = None,
        forced: _Int32 | None = None,
        drafts: _Int32 | None = None,
    ) -> tuple[_Int32, list[tuple[int, int]], _LogprobColumns | None]:
        """(token ids `[rows]`, (row, status) of each row that failed, logprobs or None if no row asked)

        `replaced` `[k, valid_vocab_size]`: logits to draw from instead, `replaced_rows` `[rows]` which of them a row
        has (-1: none); `forced` `[rows]`: tokens that are not drawn (-1: they are); `drafts` `[rows]`: a row that names
        one and has drawn it is followed by the next row, of the same slot. Rows that do not count have the id -1."""
    def score(self, logits: _Float32, targets: _Int32, num_logprobs: int) -> _LogprobColumns: ...
    def adjust(self, logits: _Float32, slot: int, mask: _Int32 | None) -> _Float32: ...
    def candidates(self, logits: _Float32, slot: int, mask: _Int32 | None) -> list[int]: ...

def philox4x32(counter: list[int], key: int) -> list[int]:
    """Philox4x32-10 of one counter of four words."""

def exponential_noise(seed: int, position: int, num_tokens: int, isa: str) -> _Float64:
    """Noise of token ids [0, num_tokens) at one output position."""

def row_mass(pool: ThreadPool, logits: _Float32, temperature: float, isa: str) -> int:
    """Sum of the weights of a row `[vocab]`, in units of 2^-44 of the largest."""

# --- ops --------------------------------------------------------------------------------------------------------

def evaluate(function: str, x: _Float32, isa: str) -> _Float32:
    """exp, tanh, silu or gelu_tanh of every element of `x[n]`, as the kernels compute it."""

def round_trip(type: str, x: _Float32, isa: str) -> _Float32:  # noqa: A002
    """Every element of `x[n]` stored as fp32, fp16, bf16, int8 or fp8 and loaded again.

    int8 and fp8 store codes without a scale: `x` lies in [-127, 127] or [-1.75, 1.75].
    """

# --- executor ---------------------------------------------------------------------------------------------------

class KvMemory:
    """Blocks of K and V, for the layers of one or more executors that take turns."""

    def __init__(
        self,
        *,
        num_blocks: int,
        block_size: int,
        layers_per_block: int,
        kv_dtype: str,
        layers: Sequence[tuple[int, int, int, int, int | None]],
    ) -> None:
        """`layers`: (group, place, kv_heads, head_dim, window) of each cache layer. Raises OutOfMemoryError."""
    def block_bytes(self, group: int) -> int:
        """Bytes of one block of a cache group, over all its layers."""
    def read_block(self, group: int, block_id: int, out: _UInt8) -> None:
        """Copies a block into `out`; without the GIL, from any thread, beside a step that does not write the block."""
    def write_block(self, group: int, block_id: int, data: _UInt8) -> None:
        """Fills a block from `data`; as `read_block`, beside a step that does not touch the block."""
    @property
    def num_bytes(self) -> int: ...

class Executor:
    """A program recorded as sections of stages over buffers. Record in program order, `build`, then `run`.

    Buffers, weights and int8 forms (panels) are known by the index that their `add_` method returned. Mistakes in
    recording raise RuntimeError or IndexError.
    """

    def __init__(
        self,
        pool: ThreadPool,
        memory: KvMemory,
        *,
        isa: str,
        max_tokens: int,
        max_rows: int,
        max_seqs: int,
        max_positions: int,
        vocab_size: int,
    ) -> None:
        """Layers are those of `memory`."""
    def add_buffer(self, *, rows: bool, width: int, local: bool) -> int:
        """A float matrix `[tokens or rows, width]`. `local`: it carries nothing from one section to another."""
    def add_panels(self, buffer: int, *, local: bool) -> int:
        """The int8 form of a buffer."""
    def add_matrix(
        self,
        *,
        format: int,  # noqa: A002
        n: int,
        k: int,
    ) -> int:
        """A weight `[n, k]` by its shape; `format` is its GGUF type number. Its bytes come with `pack`."""
    def matrix_bytes(self, matrix: int) -> int:
        """Of a weight, packed; of a borrowed one 0."""
    def allocate_weights(self) -> None:
        """Memory for all weights that were added."""
    def map_weights(self, *, file: int, offset: int) -> None:
        """In its place, the memory of a file (a descriptor, which may be closed afterwards) that holds all weights
        packed from `offset` on, in the order in which they were added."""
    def fetch_weights(self, begin: int, end: int) -> None:
        """Brings weights `[begin, end)` of a mapped file into memory: they would come one page at a time."""
    def pack(self, sources: Sequence[tuple[int, _UInt8, _Int32 | None, bool]], *, out: _UInt8 | None = None) -> None:
        """Packs weights that follow each other, into their memory or into `out`.

        Each source: the weight, its bytes as they stand in a file, output row -> row in these bytes (None: the same),
        and whether they are a view of a mapped file, whose pages are given back once they are packed."""
    def borrow_matrix(self, *, owner: Executor, matrix: int) -> int:
        """A matrix of another executor, which is built and stays alive for as long as this one: held once for both."""
    def add_vector(self, values: _Float32) -> int:
        """A float vector (norm weight, bias, rotation table), copied."""
    def open_section(self, *, rows: bool) -> None:
        """Starts a section: its stages run block of rows by block of rows. Attention is a section of its own."""
    def open_rows(self) -> None:
        """Starts a stage of row ops; those recorded next join it."""
    def embed(self, *, matrix: int, scale: float, out: int) -> None: ...
    def embed_positions(self, *, matrix: int, out: int) -> None: ...
    def rms_norm(self, *, x: int, out: int, weight: int, eps: float, groups: int) -> None: ...
    def layer_norm(self, *, x: int, out: int, weight: int, bias: int | None, eps: float) -> None: ...
    def rope(self, *, x: int, heads: int, head_dim: int, rotary_dim: int, turns: int) -> None: ...
    def cache_write(self, *, k: int, v: int, layer: int) -> None: ...
    def gate(self, *, activation: str, gate: int, up: int, out: int) -> None: ...
    def activate(self, *, activation: str, x: int, out: int) -> None: ...
    def add(self, *, x: int, y: int, out: int) -> None: ...
    def scale(self, *, x: int, factor: float, out: int) -> None: ...
    def select(self, *, x: int, out: int) -> None: ...
    def reorder(self, *, x: int, order: _Int32, out: int) -> None: ...
    def softcap(self, *, x: int, cap: float) -> None: ...
    def quantize(self, *, panels: int) -> None: ...
    def linear(self, *, x: int, panels: int | None, segments: Sequence[tuple[int, int | None, int, bool]]) -> None:
        """A stage. `segments`: (matrix, bias, out, add) of each weight that reads x."""
    def attention(self, *, q: int, out: int, layer: int, heads: int, scale: float, softcap: float) -> None:
        """A stage. `softcap` 0: none."""
    def route(self, *, routing: str, logits: int, top_k: int, out: int) -> None: ...
    def sigmoid_scale(self, *, x: int, gate: int, out: int) -> None: ...
    def experts(
        self, *, x: int, routes: int, out: int, activation: str, experts: Sequence[tuple[int, int, int]]
    ) -> None:
        """A section of six stages. `experts`: the matrices (gate, up, down) of each."""
    def add_experts_memory(self, *, experts: int, top_k: int, width: int, inner: int) -> None:
        """What layers of experts take turns in; recording `experts` adds it, too."""
    def expert_loads(self) -> list[list[int]]:
        """[layer of experts][expert] -> rows that it has met in all steps so far."""
    def expert_totals(self) -> list[tuple[int, int]]:
        """[layer of experts] -> the sum of these, and the largest."""
    def build(self) -> None:
        """Allocates the memory of a step; weights have theirs by then."""
    def fill(self, *, buffer: int, rows: _Float32) -> None:
        """Writes the first rows of a buffer over tokens that no stage writes; they stay until they are filled again."""
    def run(
        self,
        *,
        token_ids: _Int32,
        positions: _Int32,
        seq_starts: _Int32,
        context_lens: _Int32,
        block_tables: _Int32,
        slot_mapping: _Int32,
        logit_rows: _Int32,
        copies: Sequence[tuple[int, int, int]],
    ) -> None:
        """One step; arrays as in `StepBatch`, copies as (group, source, target)."""
    def run_rows(self, logit_rows: _Int32, *, last: tuple[int, int] | None = None) -> None:
        """The stages over rows again, for other rows of the last step."""
    def time_stages(self, on: bool) -> None:
        """From now on all runs keep the times of their stages, or none does."""
    def take_times(self) -> npt.NDArray[np.int64]:
        """What has been kept since the last call, in the order in which it ran: `[stages, 6]`, section (0 copies
        blocks), stage, rows, begin and end on the clock of `steady_ns`, and the time of all threads in it together."""
    def view(self, buffer: int) -> _Float32:
        """The rows of a buffer that the last step filled."""
    @property
    def packed_bytes(self) -> int:
        """Of all weights that were added (not of borrowed ones), packed."""
    @property
    def vector_bytes(self) -> int: ...
    @property
    def step_bytes(self) -> int:
        """What `build` allocates for what has been recorded so far."""
    @property
    def scratch_bytes(self) -> int: ...

# --- batch ------------------------------------------------------------------------------------------------------

class SlotTable:
    """What the runner keeps of its live requests, one row per slot; the arrays stay the caller's to fill."""

    def __init__(self, tokens: _Int32, num_tokens: _Int32, block_tables: _Int32, block_size: int) -> None:
        """`tokens` `[slots, max_len]`, `num_tokens` `[slots]` (known), `block_tables` `[groups, slots, blocks]`."""
    def assemble(
        self,
        slots: Sequence[int],
        scheduled: Sequence[int],
        computed: Sequence[int],
        drafts: Sequence[Sequence[int]] | None = None,
    ) -> tuple[_Int32, _Int32, _Int32, _Int32, _Int32, _Int32, _Int32, _Int32, _Int32, _Int32]:
        """The arrays of a step in the order of `StepBatch`, then for each logit row its sequence's place in the plan,
        its slot, and the draft behind it (-1: none). ValueError where the plan does not fit the table.

        With `drafts`, [sequences], those of a sequence run behind its last known token, and have logit rows, too.
        `scheduled` leaves them out; `computed` may then count drafts that were wrong, and gives way: no token runs
        behind the known ones but drafts."""
    def append(self, slots: _Int32, token_ids: _Int32) -> None:
        """One more known token for each slot; negative ids are left out."""

# --- peaks --------------------------------------------------------------------------------------------------------

def int8_peak(pool: ThreadPool, isa: str, seconds: float) -> float:
    """Most multiplications and additions of bytes per second, in registers, with the path's own instructions.

    A multiply and an add count two. The best of runs that last `seconds` altogether.
    """

def float_peak(pool: ThreadPool, isa: str, seconds: float) -> float:
    """Most floating-point operations per second; a fused multiply-add counts two."""

def read_peak(pool: ThreadPool, isa: str, seconds: float, num_bytes: int) -> float:
    """Most bytes read per second from `num_bytes` of memory in huge pages, which should exceed all caches."""

# --- quant --------------------------------------------------------------------------------------------------------

def fit_groups(form: str, x: _Float32, isa: str) -> tuple[_Float32, _Float32]:
    """The scale d, and where the format has one the offset m (else empty), of each group `x[i]` with the least squared
    error found. Of Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL (and of the K-quants' groups). ValueError for other types."""

def fit_super_blocks(form: str, x: _Float32, isa: str) -> tuple[_Float32, _Float32, npt.NDArray[np.int8], _UInt8]:
    """Steps and multiples of each block `x[i]` of 256: d, dmin, scales, mins (dmin and mins empty without offsets).
    Of the K-quants. ValueError for other types."""

# --- speculation --------------------------------------------------------------------------------------------------

class NgramIndex:
    """One growing text, and where its last tokens stood before. ValueError unless 1 <= min_n <= max_n <= 32."""

    def __init__(self, min_n: int, max_n: int) -> None: ...
    def extend(self, token_ids: Sequence[int]) -> None:
        """Tokens behind those known. Many are taken in without Python's lock: no other call may overlap."""

    def draft(self, max_tokens: int) -> tuple[list[int], int]:
        """(`max_tokens` tokens, n) behind the most recent earlier place of the longest n-gram at the end of the text;
        ([], 0) where it never stood before."""

    def __len__(self) -> int: ...
    @property
    def num_bytes(self) -> int: ...

class SuffixAutomaton:
    """All contexts of a growing text, and what followed them how often. Tokens below 0 part texts from each other."""

    def __init__(self) -> None: ...
    def extend(self, token_ids: Sequence[int]) -> None:
        """Tokens behind those known. Many are taken in without Python's lock: no other call may overlap."""

    def draft(self, max_tokens: int, min_chance: float) -> tuple[list[int], list[float], int]:
        """(tokens, chance of each if all before it are right, length of the context) behind the text, for as long as
        the product of their chances is at least `min_chance`."""

    def draft_after(
        self, tail: Sequence[int], max_tokens: int, min_chance: float
    ) -> tuple[list[int], list[float], int]:
        """The same behind another text that ends in `tail`."""

    def __len__(self) -> int:
        """Tokens taken in."""

    @property
    def num_bytes(self) -> int: ...
