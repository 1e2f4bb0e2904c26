from pathlib import Path

import psutil

from octavo.platform.cpu import describe_machine


def test_without_limits_it_is_the_machine_itself(tmp_path: Path) -> None:
    machine = describe_machine(tmp_path)
    assert 1 <= machine.usable_cores <= (psutil.cpu_count() or 1)
    assert machine.total_memory_bytes == psutil.virtual_memory().total
    assert machine.model_name


def test_container_limits_are_respected(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    (tmp_path / "memory.max").write_text(f"{64 << 20}\n")
    (tmp_path / "memory.current").write_text(f"{24 << 20}\n")
    machine = describe_machine(tmp_path)
    assert machine.usable_cores == 1
    assert machine.total_memory_bytes == 64 << 20
    assert machine.available_memory_bytes == 40 << 20


def test_less_than_one_core_still_is_one_thread_and_max_means_no_limit(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    machine = describe_machine(tmp_path)
    assert machine.usable_cores == 1
    assert machine.total_memory_bytes == psutil.virtual_memory().total
