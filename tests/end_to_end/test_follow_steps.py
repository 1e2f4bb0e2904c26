"""`examples/follow_steps.py`, as users start it."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

SCRIPT = Path(__file__).parents[2] / "examples" / "follow_steps.py"


@pytest.mark.parametrize("arguments", [(), ("127.0.0.1:20380",), ("tcp://127.0.0.1:1", "more")])
def test_whoever_starts_it_otherwise_is_told_how(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Usage: python examples/follow_steps.py tcp://" in done.stderr and "Traceback" not in done.stderr


def record(number: int, step: int, **detail: Any) -> list[bytes]:
    """As the engine sends it; what is left out is 0."""
    fields = {"version": 1, "counter_id": number, "octavo": {"version": 1, "step": step, **detail}}
    return [b"", number.to_bytes(8, "big"), msgspec.msgpack.encode(fields)]


def test_it_tells_of_steps_drafts_losses_and_rests_until_it_is_stopped() -> None:
    with zmq.Context() as context, context.socket(zmq.XPUB) as socket:
        socket.setsockopt(zmq.RCVTIMEO, 60_000)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        command = [sys.executable, SCRIPT, f"tcp://127.0.0.1:{port}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert socket.recv() == b"\x01"  # it has subscribed
            socket.send_multipart(record(0, -1))
            socket.send_multipart(record(1, -1))
            socket.send_multipart(record(4, 0, num_draft_tokens=3, num_accepted_draft_tokens=2))
            assert process.stdout is not None and process.stderr is not None
            lines = [process.stdout.readline().rstrip() for _ in range(3)]
            process.send_signal(signal.SIGINT)
            assert (process.wait(60), process.stderr.read()) == (0, "")
    assert lines[:2] == ["at rest", "2 records were lost"]
    assert lines[2].startswith("step 0: ") and ", 2 of 3 drafts right, " in lines[2]
