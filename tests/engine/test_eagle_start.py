"""An engine that is to draft with an EAGLE head: what it refuses at start, and what it says of itself."""

from pathlib import Path

import pytest

from octavo import LLM
from octavo.errors import ConfigError, ModelError, ModelFileError
from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from tests.draft_heads import RandomHead, config, tensors, write_head

FIELDS = {"max_model_len": 64, "threads": 1, "kv_cache_memory_bytes": 2**20}


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_tiny_model(tmp_path / "model.gguf", TinyModel(layers=3)))


def start(model: str, head: Path | str) -> LLM:
    return LLM(model, speculation=f"eagle:{head}", **FIELDS)


@pytest.mark.parametrize("layout", ["eagle", "eagle3"])
def test_it_says_who_guesses_and_counts_its_state(layout: str, model: str, tmp_path: Path) -> None:
    head = RandomHead(layout=layout, draft_vocab=None if layout == "eagle" else 100)
    folder = write_head(tmp_path / "head", config(head), tensors(head))
    with LLM(model, **FIELDS) as llm:
        plain = llm.info
    with start(model, folder) as llm:
        assert llm.info.speculation == f"eagle:{folder}"
        assert llm.info.kv_bytes_per_token == plain.kv_bytes_per_token * 4 // 3  # three layers, and one of equal shape
        assert llm.info.num_blocks < plain.num_blocks
        assert llm.info.weight_bytes > plain.weight_bytes
        assert llm.info.kv_root != plain.kv_root


@pytest.mark.parametrize("method", ["eagle", "eagle3"])
def test_vllms_words_for_it(method: str, model: str, tmp_path: Path) -> None:
    """The layout is told from the file, whichever the method says."""
    folder = str(write_head(tmp_path / "head", config(RandomHead()), tensors(RandomHead())))
    asked = {"method": method, "model": folder, "num_speculative_tokens": 3}
    with LLM(model, speculative_config=asked, **FIELDS) as llm:
        assert llm.info.speculation == f"eagle:{folder}"


def test_a_head_of_another_model(model: str, tmp_path: Path) -> None:
    head = RandomHead(hidden=32)
    folder = write_head(tmp_path / "head", config(head), tensors(head))
    with pytest.raises(ModelFileError, match="hidden_size=32 is not the target's 64: take the head that was made for"):
        start(model, folder)


def test_a_model_that_is_no_head(model: str, tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "other", TinyModel(), format="safetensors")
    with pytest.raises(ModelError, match=r"is no draft head: it lacks fc.weight"):
        start(model, folder)
    with pytest.raises(ModelFileError, match="a GGUF file is read here only as a whole model; this takes a folder"):
        start(model, model)


def test_pickled_weights(model: str, tmp_path: Path) -> None:
    folder = tmp_path / "head"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
    with pytest.raises(ConfigError, match=r"pickled \(pytorch_model.bin\).*Octavo reads safetensors"):
        start(model, folder)


def test_no_folder(model: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"speculation=.*nowhere"):
        start(model, tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="speculation='eagle:'"):
        start(model, "")
