import threading
from pathlib import Path

from octavo.hub.progress import folder_bytes, watch_growth


def test_folder_bytes(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "x").write_bytes(b"123")
    (tmp_path / "a/b/y").write_bytes(b"4567")
    (tmp_path / "dangling").symlink_to(tmp_path / "absent")
    assert folder_bytes(tmp_path) == 7
    assert folder_bytes(tmp_path / "absent") == 0


def test_growth_is_reported_while_the_body_runs(tmp_path: Path) -> None:
    grown = threading.Event()
    seen: list[int] = []

    def report(done_bytes: int) -> None:
        seen.append(done_bytes)
        if done_bytes == 1000:
            grown.set()

    with watch_growth(tmp_path, report):
        (tmp_path / "part").write_bytes(bytes(1000))
        assert grown.wait(timeout=60)
    threads = [thread.name for thread in threading.enumerate()]
    assert "octavo-download-progress" not in threads
    assert seen == sorted(seen)
