"""The engine's memory ledger, and what --max-memory leaves for blocks."""

from pathlib import Path

import pytest

from octavo import LLM
from octavo.config import EngineConfig
from octavo.engine.memory_ledger import MemoryLedger
from octavo.errors import ConfigError, OutOfMemoryError
from octavo.execution.loader.tiny.spec import TinyModel
from octavo.execution.loader.tiny.write import write_tiny_model
from octavo.platform.cpu import resident_bytes

FIELDS = {"threads": 1, "max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 64}


def ledger_of(model: str, **fields: object):
    with LLM(model, **{**FIELDS, **fields}) as llm:
        return llm.info.memory


def test_every_part_is_counted(tiny_model: str) -> None:
    ledger = ledger_of(tiny_model, kv_cache_memory_bytes=1 << 20, kv_host_memory_bytes=1 << 20)
    assert ledger.file_bytes > 0
    assert 0 < ledger.weight_bytes < 2 * ledger.file_bytes
    assert ledger.kv_bytes + 2 * 4096 * 16 > ledger.kv_host_bytes == 1 << 20
    assert ledger.step_bytes > 0
    assert ledger.batch_bytes > 0
    assert (ledger.draft_weight_bytes, ledger.draft_step_bytes) == (0, 0)
    assert ledger.total_bytes == sum(size for _, size in ledger.parts())
    assert ledger.limit == "machine"


def test_weights_that_are_converted_are_counted_while_they_wait(tiny_model: str) -> None:
    assert ledger_of(tiny_model).loading_bytes == 0
    ledger = ledger_of(tiny_model, quantization="q8_0")
    assert 0 < ledger.loading_bytes <= ledger.weight_bytes
    alone = MemoryLedger(weight_bytes=100, loading_bytes=10, step_bytes=7, batch_bytes=1)
    assert dict(alone.parts())["loading"] == 2
    assert alone.total_bytes == 110


def test_a_draft_models_buffers_are_counted(tiny_model: str, tmp_path: Path) -> None:
    draft = str(write_tiny_model(tmp_path / "draft.gguf", TinyModel(seed=3)))
    ledger = ledger_of(tiny_model, speculation=f"draft:{draft}", num_speculative_tokens=2)
    assert ledger.draft_weight_bytes > 0
    assert ledger.draft_step_bytes > 0


def test_blocks_get_what_the_limit_leaves(tiny_model: str) -> None:
    limit = resident_bytes() + (64 << 20)
    ledger = ledger_of(tiny_model, max_memory=limit, max_num_seqs=4096)
    assert ledger.limit == "max_memory"
    assert ledger.limit_bytes == limit
    one_block = 64 << 10
    assert limit - one_block <= ledger.total_bytes <= limit


def test_a_share_of_the_machine(tiny_model: str) -> None:
    ledger = ledger_of(tiny_model, max_memory="50%", max_num_seqs=2)
    assert ledger.total_bytes < ledger.limit_bytes


def test_less_than_the_engine_needs_is_refused_with_the_sum_and_the_fix(tiny_model: str) -> None:
    told = r"^10 MB max_memory allows, and without KV blocks the engine takes process [\d.]+ [MG]B \+ weights .*"
    with pytest.raises(OutOfMemoryError, match=told + "raise --max-memory, lower --max-model-len, .*quantisation"):
        ledger_of(tiny_model, max_memory="10MB")


def test_too_little_for_one_request_is_refused_likewise(tiny_model: str) -> None:
    limit = resident_bytes() + (33 << 20)
    fields = {"max_num_seqs": 1, "max_num_batched_tokens": 16, "max_model_len": 256, "max_memory": limit}
    with pytest.raises(OutOfMemoryError, match=r"max_memory allows.*raise --max-memory") as caught:
        for _ in range(20):  # the process itself grows somewhat from one to the next
            ledger_of(tiny_model, **fields)
            fields["max_memory"] -= 64 << 10
    assert "weights" in str(caught.value)


@pytest.mark.parametrize("value", ["much", "0", "120%", "-1GiB", "0%"])
def test_what_is_no_size_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"max_memory=.*a size such as 8GiB, or a share such as 80%"):
        EngineConfig.from_fields({"max_memory": value})


def test_sizes_and_shares() -> None:
    def limit(value: object) -> int | None:
        return EngineConfig.from_fields({"max_memory": value}).execution.max_memory_bytes(total_bytes=1000)

    assert [limit(value) for value in ("8GiB", 12345, "25%", None)] == [8 << 30, 12345, 250, None]


def test_drafts_are_counted_and_left_out_where_they_do_not_fit(tiny_model: str) -> None:
    fields: dict[str, object] = {"num_kv_blocks": 41, "max_num_seqs": 1, "max_model_len": 640}
    with LLM(tiny_model, **{**FIELDS, **fields}) as llm:
        with_drafts = llm.info
    plain = ledger_of(tiny_model, **fields, speculation="off")
    assert with_drafts.speculation == "suffix" and with_drafts.memory.lookup_bytes == 144 << 18
    assert with_drafts.memory.kv_index_bytes - plain.kv_index_bytes == 144 * 40 * 16
    assert with_drafts.memory.step_bytes > plain.step_bytes and plain.lookup_bytes == 0
    tight = {**fields, "max_memory": resident_bytes() + (48 << 20)}
    with LLM(tiny_model, **{**FIELDS, **tight}) as llm:
        assert llm.info.speculation == "off" and llm.info.memory.lookup_bytes == 0
    for asked in ({"speculation": "suffix"}, {"num_speculative_tokens": 2}):
        with pytest.raises(OutOfMemoryError, match=r"earlier answers 38 MB.*give --speculation ngram or off"):
            ledger_of(tiny_model, **tight, **asked)
