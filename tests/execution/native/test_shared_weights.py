"""Packed weights in a file: the same bits, held once, never taken for what they are not."""

import logging
import os
import re
import threading
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path

import numpy as np
import pytest

from octavo.execution.native import NativeExecutor
from octavo.execution.native import shared_weights as module
from octavo.execution.native.shared_weights import SharedWeights
from octavo.execution.weights import load_model
from tests.execution.driver import Driver, layout_for
from tests.execution.test_weights import open_tiny

SIZES = {"threads": 2, "isa": "auto", "max_tokens": 32, "max_rows": 4, "max_seqs": 2, "max_positions": 48}


class Rig:
    """One model, and executors of it."""

    def __init__(self, folder: Path, **choices: object) -> None:
        self.program, self.weights = load_model(open_tiny(folder, **choices))
        self.layout = layout_for(self.program, tokens=48)
        self.shared = SharedWeights(folder / "packed", "a model", "model.gguf")

    def start(self, shared: SharedWeights | None) -> NativeExecutor:
        return NativeExecutor(self.program, self.weights, self.layout, shared=shared, **SIZES)  # type: ignore[arg-type]

    def logits(self, shared: SharedWeights | None) -> np.ndarray:
        driver = Driver(self.start(shared))
        return driver.executor.run(driver.batch([(driver.start(range(20)), 20)])).copy()

    def file(self) -> Path:
        (path,) = (self.shared.folder).glob("*.weights")
        return path


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_packing_mapping_and_private_memory_give_equal_bits(rig: Rig) -> None:
    private = rig.logits(None)
    for _ in range(2):  # the first packs, the second maps
        assert rig.start(rig.shared).shares_weights
        np.testing.assert_array_equal(rig.logits(rig.shared).view(np.int32), private.view(np.int32))
    assert not rig.start(None).shares_weights
    assert sorted(path.suffix for path in rig.shared.folder.iterdir()) in ([".lock", ".weights"], [".weights"])


def test_the_second_packs_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.start(rig.shared)
    monkeypatch.setattr(module, "_pack_into", lambda *_: pytest.fail("packed again"))
    assert rig.start(rig.shared).shares_weights


def test_several_who_start_at_one_time_write_one_file(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[int] = []
    pack_into = module._pack_into

    def counted(*args: object) -> None:
        packed.append(1)
        pack_into(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_pack_into", counted)
    started: list[NativeExecutor] = []
    threads = [threading.Thread(target=lambda: started.append(rig.start(rig.shared))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(packed) == 1
    assert [executor.shares_weights for executor in started] == [True] * 4


def test_other_weights_have_another_file(rig: Rig, tmp_path: Path) -> None:
    other = Rig(tmp_path / "other", seed=5)
    same_name = SharedWeights(rig.shared.folder, rig.shared.model, "elsewhere.gguf")
    rig.start(rig.shared)
    private = other.logits(None)
    np.testing.assert_array_equal(other.logits(same_name).view(np.int32), private.view(np.int32))
    assert len(list(rig.shared.folder.glob("*.weights"))) == 2


def test_what_an_earlier_file_in_the_same_place_left_goes(rig: Rig) -> None:
    rig.start(rig.shared)
    rig.start(SharedWeights(rig.shared.folder, "a newer model", rig.shared.place))
    assert b"a newer model" in rig.file().read_bytes()[:4096]


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)


def zero_data(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(module.DATA_OFFSET)
        file.write(bytes(4096))


def forget_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(4096))


def take_another(path: Path) -> None:
    with path.open("r+b") as file:
        header = file.read(4096)
        file.seek(0)
        file.write(re.sub(rb'"key": "....', b'"key": "0000', header))


def open_to_all(path: Path) -> None:
    path.chmod(0o666)


@pytest.mark.parametrize("damage", [cut, zero_data, forget_header, take_another, open_to_all])
def test_a_file_that_is_not_sound_is_made_anew(
    rig: Rig, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    private = rig.logits(None)
    rig.start(rig.shared)
    damage(rig.file())
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(rig.logits(rig.shared).view(np.int32), private.view(np.int32))
    assert "it is made anew" in caplog.text
    caplog.clear()
    assert rig.start(rig.shared).shares_weights
    assert not caplog.text


def test_a_link_is_not_followed(rig: Rig, tmp_path: Path) -> None:
    rig.start(rig.shared)
    path, elsewhere = rig.file(), tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert rig.start(rig.shared).shares_weights
    assert not path.is_symlink()


def test_a_full_disk_leaves_weights_private_and_nothing_behind(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with caplog.at_level(logging.WARNING):
        executor = rig.start(rig.shared)
    assert not executor.shares_weights
    assert "weights are not shared" in caplog.text
    assert "No space left on device" in caplog.text
    assert not [path for path in rig.shared.folder.iterdir() if path.suffix != ".lock"]


def test_a_folder_that_cannot_be_leaves_them_private(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.shared.folder.write_text("a file")
    with caplog.at_level(logging.WARNING):
        assert not rig.start(rig.shared).shares_weights
    assert "weights are not shared" in caplog.text
