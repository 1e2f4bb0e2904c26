"""An `LLM` over the scripted executor: real scheduler, real text handling, no model."""

from collections.abc import Callable, Sequence

from octavo.config import SchedulerConfig
from octavo.engine.core import EngineCore
from octavo.engine.llm import LLM
from octavo.engine.output import EngineInfo
from octavo.engine.words import Words
from octavo.execution.scripted import FaultScript, ScriptedExecutor, no_faults
from octavo.kv.manager import KVManager
from octavo.kv.spec import AttentionSpec, KVDtype, lay_out
from octavo.request.params import SamplingParams
from octavo.scheduling.scheduler import Scheduler
from octavo.text.byte_level import CHARACTER_BY_BYTE
from octavo.text.tokenizer import Tokenizer, from_gguf

NORMAL, CONTROL = 1, 3
EOS = 256


BYTE_VOCABULARY: dict[str, object] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": [*CHARACTER_BY_BYTE, "<|end|>"],
    "tokenizer.ggml.token_type": [NORMAL] * 256 + [CONTROL],
    "tokenizer.ggml.merges": [],
    "tokenizer.ggml.eos_token_id": EOS,
}
"""One token per byte, and an end-of-text token."""


def byte_tokenizer() -> Tokenizer:
    """The tokenizer of `BYTE_VOCABULARY`."""
    return from_gguf(BYTE_VOCABULARY)


def says(text: str) -> Callable[[Sequence[int], int, SamplingParams], int]:
    """A script that answers every prompt with the bytes of a text, then ends."""
    ids = [*text.encode(), EOS]
    return lambda token_ids, num_prompt, params: ids[min(len(token_ids) - num_prompt, len(ids) - 1)]


def scripted_llm(
    script: Callable[[Sequence[int], int, SamplingParams], int] | None = None,
    *,
    faults: FaultScript = no_faults,
    num_blocks: int = 64,
    max_model_len: int = 256,
    **scheduler: int | bool,
) -> LLM:
    layout = lay_out(
        (AttentionSpec(num_kv_heads=1, head_dim=8),), num_blocks=num_blocks, block_size=4, dtype=KVDtype.FP16
    )
    config = SchedulerConfig(**{"max_num_seqs": 64, "max_num_batched_tokens": 1024, **scheduler})  # type: ignore[arg-type]
    planner = Scheduler(config, KVManager(layout), max_model_len)
    executor = ScriptedExecutor(
        layout, vocab_size=257, script=script, faults=faults, max_in_flight=planner.max_in_flight
    )
    ticks = iter(range(10**9))
    core = EngineCore(planner, executor, lambda: float(next(ticks)))
    info = EngineInfo(
        model="scripted",
        served_model_names=("scripted",),
        architecture="none",
        max_model_len=max_model_len,
        vocab_size=257,
        eos_token_ids=(EOS,),
        block_size=4,
        num_blocks=num_blocks,
        kv_bytes_per_token=32,
        weight_bytes=0,
        max_logprobs=20,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        threads=1,
        isa="none",
    )
    return LLM.over(core, Words(byte_tokenizer(), None, {}), info)
