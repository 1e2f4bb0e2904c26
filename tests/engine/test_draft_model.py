"""`--speculation draft:MODEL`: what is counted, what is refused, what is let go of."""

from collections.abc import Callable
from pathlib import Path

import pytest

from octavo import LLM
from octavo.config import MODEL_KINDS, EngineConfig
from octavo.engine.executors import Executors
from octavo.engine.second_model import SECOND_MODELS
from octavo.errors import ConfigError
from octavo.execution.loader.tiny.spec import TinyModel
from octavo.execution.loader.tiny.write import write_tiny_model
from octavo.request.params import SamplingParams

FIELDS = {"max_model_len": 64, "threads": 1, "max_num_seqs": 4}
DRAFTING = {**FIELDS, "num_speculative_tokens": 5}
GREEDY = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True)
DRAFT = TinyModel(layers=3, kv_heads=1, seed=3)
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, model: TinyModel, **more: str) -> str:
        return str(write_tiny_model(tmp_path / name, model, **more))  # type: ignore[arg-type]

    return written


def info_of(model: str, **fields: object):
    with LLM(model, **{**FIELDS, **fields}) as llm:
        return llm.info


def test_bytes_of_both_models_are_counted(tiny_model: str, write: Write) -> None:
    draft = write("draft.gguf", DRAFT)
    alone, second, both = info_of(tiny_model), info_of(draft), info_of(tiny_model, speculation=f"draft:{draft}")
    assert both.weight_bytes == alone.weight_bytes + second.weight_bytes
    assert both.kv_bytes_per_token == alone.kv_bytes_per_token + second.kv_bytes_per_token
    assert both.kv_bytes == alone.kv_bytes + second.kv_bytes
    assert (both.draft_weight_bytes, both.draft_kv_bytes_per_token) == (second.weight_bytes, second.kv_bytes_per_token)
    assert f"speculation by draft:{draft} (" in both.describe()
    assert f"{second.kv_bytes_per_token} bytes of KV a token)" in both.describe()
    assert both.num_blocks == alone.num_blocks
    assert both.kv_root != alone.kv_root, "its blocks hold more"


def test_given_memory_holds_fewer_tokens(tiny_model: str, write: Write) -> None:
    draft = write("draft.gguf", TinyModel(seed=3))
    alone = info_of(tiny_model, kv_cache_memory_bytes=2**20)
    both = info_of(tiny_model, kv_cache_memory_bytes=2**20, speculation=f"draft:{draft}")
    assert both.num_kv_tokens == alone.num_kv_tokens // 2


@pytest.mark.parametrize("executor", ["native", "reference"])
def test_a_draft_model_may_be_of_another_format(write: Write, executor: str) -> None:
    tiny_model = write("target.gguf", TinyModel(vocabulary="spm"))
    draft = write("draft", TinyModel(vocabulary="spm", layers=3, kv_heads=1, seed=3), format="safetensors")
    fields = {**FIELDS, "executor": executor}
    with LLM(tiny_model, **fields) as llm:
        expected = llm.generate([[9, 8, 7]], GREEDY)[0].outputs[0].token_ids
    with LLM(tiny_model, **fields, num_speculative_tokens=5, speculation=f"draft:{draft}") as llm:
        assert llm.generate([[9, 8, 7]], GREEDY)[0].outputs[0].token_ids == expected
        assert llm.load().counters["draft_tokens"] > 0


def test_other_tokens_are_refused_and_named(tiny_model: str, write: Write) -> None:
    other = write("spm.gguf", TinyModel(vocabulary="spm"))
    with pytest.raises(ConfigError, match=r"have other tokens: \d+ is '.*' in the first and '.*' in the second; give"):
        LLM(tiny_model, **DRAFTING, speculation=f"draft:{other}")
    fewer = write("fewer.gguf", TinyModel(vocab_size=400))
    with pytest.raises(ConfigError, match=r"has 400 tokens, .* \d+; give a draft model with the tokenizer"):
        LLM(tiny_model, **DRAFTING, speculation=f"draft:{fewer}")


def test_more_rows_of_padding_are_no_other_tokens(tiny_model: str, write: Write) -> None:
    padded = write("padded.gguf", TinyModel(vocab_size=600, seed=2))
    with LLM(tiny_model, **DRAFTING, speculation=f"draft:{padded}") as llm:
        llm.generate([[9, 8, 7]], GREEDY)
        assert llm.load().counters["draft_tokens"] > 0


def test_without_tokenizers_sizes_must_do(tiny_model: str, write: Write, caplog: pytest.LogCaptureFixture) -> None:
    spm = write("spm.gguf", TinyModel(vocabulary="spm"))
    with LLM(tiny_model, **DRAFTING, skip_tokenizer_init=True, speculation=f"draft:{spm}") as llm:
        llm.generate([[9, 8, 7]], GREEDY)
    assert "without tokenizers nobody knows" in caplog.text


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("draft:", "speculation='draft:': must be one of off, .*draft:MODEL"),
        ("drafts:x", "must be one of off, .*draft:MODEL"),
        ("draft:no-such-model", "unknown model 'no-such-model'"),
        ("draft:./nothing.gguf", "no such file or folder"),
    ],
)
def test_names_that_mean_nothing_are_refused(tiny_model: str, name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        LLM(tiny_model, **DRAFTING, speculation=name)


def test_the_configuration_knows_the_kinds_that_there_are() -> None:
    assert set(MODEL_KINDS) == set(SECOND_MODELS)


def test_shorter_training_is_said_at_start(tiny_model: str, write: Write, caplog: pytest.LogCaptureFixture) -> None:
    short = write("short.gguf", TinyModel(context_length=32))
    with LLM(tiny_model, **DRAFTING, speculation=f"draft:{short}") as llm:
        (output,) = llm.generate([list(range(8, 48))])
        assert output.outputs[0].token_ids
    assert "made for 32 positions" in caplog.text


def test_a_table_of_positions_that_ends_too_early_is_refused(tiny_model: str, write: Write) -> None:
    short = write("short.gguf", TinyModel(architecture="gpt2", kv_heads=4, context_length=63))
    drafting = {**DRAFTING, "skip_tokenizer_init": True, "speculation": f"draft:{short}"}
    with pytest.raises(ConfigError, match=r"max_model_len=64: .*short\.gguf looks positions up in a table of 63"):
        LLM(tiny_model, **drafting)
    with LLM(tiny_model, **{**drafting, "max_model_len": 63}) as llm:
        (output,) = llm.generate([[9, 8, 7]], SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True))
        assert len(output.outputs[0].token_ids) == 60


def test_all_memory_is_let_go_of(tiny_model: str, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Executors] = []
    init = Executors.__init__

    def remember(self: Executors, *arguments: object) -> None:
        init(self, *arguments)  # type: ignore[arg-type]
        built.append(self)

    monkeypatch.setattr(Executors, "__init__", remember)
    with LLM(tiny_model, **DRAFTING, speculation=f"draft:{write('draft.gguf', DRAFT)}") as llm:
        before = llm.load()
        for _ in range(3):
            llm.generate([[9, 8, 7], [1, 2]])
            after = llm.load()
            assert (after.num_free_blocks, after.num_running) == (before.num_free_blocks, 0)
    (executors,) = built
    for executor in (executors.model, executors.second):
        with pytest.raises(ValueError, match="closed"):
            executor.block_bytes(0)


def test_an_engine_without_it_has_no_second_executor(tiny_model: str) -> None:
    config = EngineConfig.from_fields({"model": tiny_model, **FIELDS})
    assert config.speculation.speculation == "auto"
    assert info_of(tiny_model).draft_weight_bytes == 0
