"""Whatever the bytes: a ModelError, quickly, without memory to speak of."""

import struct
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.errors import ModelError, ModelFileError
from octavo.execution.loader import open_checkpoint
from tests.effort import times
from tests.execution.loader.gguf_pieces import Pieces, sound_file

SOUND = sound_file()
RAW = SOUND.bytes()
MAX_ALLOCATED_BYTES = 1 << 20
MAX_CPU_S = 2.0


def opens_or_fails_cleanly(path: Path, raw: bytes) -> bool:
    """Did it open? Raises on any exception but ModelError, on a large allocation, on slowness."""
    path.write_bytes(raw)
    start = time.process_time()
    tracemalloc.start()
    try:
        checkpoint = open_checkpoint([path])
        for name, info in checkpoint.tensors.items():
            assert checkpoint.raw(name).nbytes == info.nbytes
    except ModelError:
        return False
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MAX_ALLOCATED_BYTES
        assert time.process_time() - start < MAX_CPU_S
    return True


def test_the_sound_file_opens(tmp_path: Path) -> None:
    assert opens_or_fails_cleanly(tmp_path / "m.gguf", RAW)


def test_truncated_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for length in range(len(RAW)):
        path.write_bytes(RAW[:length])
        with pytest.raises(ModelFileError):
            open_checkpoint([path])


def test_message_of_a_truncated_download(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(RAW[:-1])
    with pytest.raises(
        ModelFileError, match=r"'linear'.*needs 136 bytes, but the file ends at \d+: it is truncated. Fetch"
    ):
        open_checkpoint([path])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=times(150), deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(RAW) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_flipped_bytes(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    raw = bytearray(RAW)
    for at, value in flips:
        raw[at] = value
    opens_or_fails_cleanly(tmp_path / "m.gguf", bytes(raw))


HOSTILE_NUMBERS = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**60, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1]
LENGTH_FIELDS = [label for label, raw in SOUND.fields if len(raw) == 8 and not label.startswith(("value.", "data"))]


@pytest.mark.parametrize("label", LENGTH_FIELDS)
def test_hostile_lengths(tmp_path: Path, label: str) -> None:
    for number in HOSTILE_NUMBERS:
        raw = struct.pack("<Q", number)
        if raw != dict(SOUND.fields)[label]:
            opens_or_fails_cleanly(tmp_path / "m.gguf", SOUND.replaced_bytes(label, raw).bytes())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=times(50), deadline=None)
@given(st.binary(max_size=300))
def test_noise_behind_the_magic(tmp_path: Path, noise: bytes) -> None:
    opens_or_fails_cleanly(tmp_path / "m.gguf", b"GGUF" + struct.pack("<I", 3) + noise)


def test_many_small_things_cost_no_more_than_the_file(tmp_path: Path) -> None:
    """A megabyte of empty strings, then of tensor infos: linear in the file, and no quadratic search for doubles."""
    words = Pieces()
    words.fields = [("head", b"GGUF" + struct.pack("<IQQ", 3, 0, 1))]
    words.string("key", "words")
    words.add("array", "IIQ", 9, 8, 131_072)
    words.fields.append(("items", bytes(131_072 * 8)))
    start = time.process_time()
    assert open_checkpoint([words.write(tmp_path / "words.gguf")]).metadata["words"] == [""] * 131_072
    infos = Pieces()
    infos.fields = [("head", b"GGUF" + struct.pack("<IQQ", 3, 20_000, 0))]
    for i in range(20_000):
        infos.tensor(f"{i:05}", [8], 0, 0)
    infos.fields.append(("data", bytes(64)))
    with pytest.raises(ModelFileError, match="overlap"):
        open_checkpoint([infos.write(tmp_path / "infos.gguf")])
    assert time.process_time() - start < 5
