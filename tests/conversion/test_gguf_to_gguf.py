import logging
import os
from pathlib import Path

import numpy as np
import pytest

from octavo.errors import ConfigError, UnsupportedModelError
from octavo.execution.loader import open_checkpoint
from octavo.execution.loader.gguf import encoded_metadata
from octavo.execution.loader.gguf_writer import GGUFTensor, Value, write_gguf
from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from octavo.execution.quant import TensorType, fit
from octavo.execution.quant.recipe import TYPES
from tests.conversion.rig import WIDE, converted

MATRIX, OUTPUT, EMBEDDING, NORM = "blk.0.attn_q.weight", "output.weight", "token_embd.weight", "output_norm.weight"


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf", TinyModel(tied=False, **WIDE))


@pytest.mark.parametrize("name", TYPES)
def test_every_type_is_written_and_read_by_the_public_package(name: str, floats: Path, tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    to, out = TensorType[name.upper()], tmp_path / "out.gguf"
    if to is TensorType.F32:
        with pytest.raises(ConfigError, match="to='f32': would change nothing"):
            converted(floats, "F32", out)
        return
    converted(floats, to.name, out, threads=2)
    reader = gguf.GGUFReader(out)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert tensors[MATRIX].tensor_type.name == to.name
    assert tensors[NORM].tensor_type.name == "F32"
    source = open_checkpoint([floats])
    np.testing.assert_array_equal(tensors[MATRIX].data.view(np.uint8).reshape(-1), fit(to, source.float32(MATRIX)))
    assert reader.get_field("tokenizer.ggml.tokens") is not None


def test_metadata_stays_as_it_was(floats: Path, tmp_path: Path) -> None:
    converted(floats, "Q4_K", tmp_path / "out.gguf")
    before, after = encoded_metadata(floats), encoded_metadata(tmp_path / "out.gguf")
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert changed == {"general.file_type"}
    assert "tokenizer.chat_template" in after


def test_the_matrix_of_the_logits_is_held_in_more_bits(floats: Path, tmp_path: Path) -> None:
    converted(floats, "Q4_0", tmp_path / "out.gguf")
    types = {name: info.type.name for name, info in open_checkpoint([tmp_path / "out.gguf"]).tensors.items()}
    assert (types[MATRIX], types[OUTPUT], types[EMBEDDING]) == ("Q4_0", "Q6_K", "Q4_0")
    converted(floats, "Q4_0", tmp_path / "own.gguf", output_type="Q5_1", embedding_type="Q8_0")
    types = {name: info.type.name for name, info in open_checkpoint([tmp_path / "own.gguf"]).tensors.items()}
    assert (types[MATRIX], types[OUTPUT], types[EMBEDDING]) == ("Q4_0", "Q5_1", "Q8_0")


def test_rows_that_are_no_whole_blocks_fall_back(tmp_path: Path) -> None:
    """Rows of 96 weights are whole blocks of 32, rows of 48 of nothing but floats."""
    model = TinyModel(hidden=96, heads=3, kv_heads=3, intermediate=48, layers=1)
    source = write_tiny_model(tmp_path / "odd.gguf", model)
    converted(source, "Q4_K", tmp_path / "out.gguf")
    types = {name: info.type.name for name, info in open_checkpoint([tmp_path / "out.gguf"]).tensors.items()}
    assert (types[MATRIX], types["blk.0.ffn_down.weight"], types[EMBEDDING]) == ("Q5_0", "F16", "Q8_0")


def test_split_files_become_one(tmp_path: Path) -> None:
    first = write_tiny_model(tmp_path / "split.gguf", TinyModel(**WIDE), shards=3)
    converted(first, "Q8_0", tmp_path / "out.gguf")
    whole = open_checkpoint([tmp_path / "out.gguf"])
    assert len(whole.tensors) == len(open_checkpoint(sorted(tmp_path.glob("split-*.gguf"))).tensors)
    assert not [key for key in whole.metadata if key.startswith("split.")]


def test_fewer_bits_stay_fewer_and_a_second_loss_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = write_tiny_model(tmp_path / "q5.gguf", TinyModel(tensor_type=TensorType.Q5_0, **WIDE))
    with pytest.raises(ConfigError, match="would change nothing: every matrix is in this or in fewer bits already"):
        converted(source, "Q8_0", tmp_path / "out.gguf")
    with caplog.at_level(logging.WARNING):
        converted(source, "Q4_0", tmp_path / "out.gguf")
    assert "q4_0 is made from Q5_0, which had lost some already" in caplog.text
    types = {name: info.type.name for name, info in open_checkpoint([tmp_path / "out.gguf"]).tensors.items()}
    assert (types[MATRIX], types[EMBEDDING]) == ("Q4_0", "Q5_0")  # Q6_K would add bits to the table, and nothing else


def test_a_loss_is_told_of_the_types_that_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = write_tiny_model(tmp_path / "q8.gguf", TinyModel(tensor_type=TensorType.Q8_0, tied=False, **WIDE))
    with caplog.at_level(logging.WARNING):
        converted(source, "Q8_0", tmp_path / "floats.gguf", output_type="F16")
    assert not caplog.text
    with caplog.at_level(logging.WARNING):
        converted(source, "Q8_0", tmp_path / "out.gguf", output_type="Q6_K")
    assert [record.getMessage() for record in caplog.records] == [
        "q6_k is made from Q8_0, which had lost some already: better from floats"
    ]


def test_nothing_is_overwritten_or_left_behind(floats: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    out.write_bytes(b"GGUF precious")
    with pytest.raises(ConfigError, match=r"output=.*is there already; name another place, or replace it with --force"):
        converted(floats, "Q8_0", out)
    assert out.read_bytes() == b"GGUF precious"
    converted(floats, "Q8_0", out, force=True)
    assert open_checkpoint([out]).tensors[MATRIX].type is TensorType.Q8_0
    with pytest.raises(ConfigError, match="there is no folder"):
        converted(floats, "Q8_0", tmp_path / "absent" / "out.gguf")
    with pytest.raises(ConfigError, match="is the model itself"):
        converted(floats, "Q8_0", floats, force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.gguf"]


@pytest.mark.parametrize("content", [b"hi\n", b"", b"GGU"])
def test_a_file_that_is_no_model_is_not_replaced(content: bytes, floats: Path, tmp_path: Path) -> None:
    out = tmp_path / "note.txt"
    out.write_bytes(content)
    with pytest.raises(ConfigError, match=r"output=.*note.txt': is no GGUF file, and --force replaces models only"):
        converted(floats, "Q8_0", out, force=True)
    assert out.read_bytes() == content
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="pipe': is no GGUF file"):
        converted(floats, "Q8_0", tmp_path / "pipe", force=True)


def test_a_weight_beyond_the_type_is_told_and_the_target_stays_absent(floats: Path, tmp_path: Path) -> None:
    source = open_checkpoint([floats])
    tensors = []
    for info in source.tensors.values():
        values = source.float32(info.name).copy()
        if info.name == MATRIX:
            values[0, 0] = 1e6
        tensors.append(GGUFTensor(info.name, info.type, info.shape, [values.reshape(-1).view(np.uint8)]))
    write_gguf(tmp_path / "large.gguf", encoded_metadata(floats), tensors)
    with pytest.raises(UnsupportedModelError, match=r"'blk.0.attn_q.weight' holds 1e\+06, which Q4_K does not: bf16"):
        converted(tmp_path / "large.gguf", "Q4_K", tmp_path / "out.gguf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["large.gguf"]
    converted(tmp_path / "large.gguf", "BF16", tmp_path / "out.gguf")


def test_too_full_a_disk_is_told_before_anything_is_written(
    floats: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    with pytest.raises(ConfigError, match=r"takes .* MB, but 0 MB are free there"):
        converted(floats, "Q8_0", tmp_path / "out.gguf")
    assert not list(tmp_path.iterdir())


def test_pieces_of_another_length_are_refused(tmp_path: Path) -> None:
    tensor = GGUFTensor("t", TensorType.F32, (8,), [np.zeros(31, np.uint8)])
    with pytest.raises(ValueError, match=r"^t \(F32 .*pieces of 31 bytes"):
        write_gguf(tmp_path / "t.gguf", {"a": Value("u32", 1)}, [tensor])


def test_matrices_that_close_a_block_are_held_finer_than_q2_k(floats: Path, tmp_path: Path) -> None:
    converted(floats, "Q2_K", tmp_path / "out.gguf")
    types = {name: info.type.name for name, info in open_checkpoint([tmp_path / "out.gguf"]).tensors.items()}
    assert (types[MATRIX], types["blk.0.attn_output.weight"], types["blk.0.ffn_down.weight"]) == (
        "Q2_K",
        "Q3_K",
        "Q3_K",
    )
