"""`octavo serve --step-metrics-endpoint --step-metrics-file`: what followers learn is what the server did."""

from pathlib import Path

import httpx
import msgspec
import pytest
import zmq

from octavo.request.step_record import StepRecord
from tests.end_to_end.test_serve_process import serve
from tests.server.conftest import wait_until

PATIENCE_MS = 30_000
decode = msgspec.msgpack.Decoder(StepRecord).decode
decode_line = msgspec.json.Decoder(StepRecord).decode


def test_stream_file_and_load_tell_of_the_same_steps(tiny_file: str, tmp_path: Path) -> None:
    file = tmp_path / "steps.jsonl"
    flags = (
        "--step-metrics-endpoint",
        "tcp://127.0.0.1:0",
        "--step-metrics-topic",
        "t",
        "--step-metrics-file",
        str(file),
        "--speculation",
        "off",
    )
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context, serve(tiny_file, *flags) as process, context.socket(zmq.SUB) as socket:
        card = httpx.get(f"{process.url}/load").json()
        assert card["step"] is None and card["step_metrics"]["endpoint"] in process.ready_line
        socket.setsockopt(zmq.RCVTIMEO, PATIENCE_MS)
        socket.setsockopt(zmq.SUBSCRIBE, b"t")
        socket.connect(card["step_metrics"]["endpoint"])
        beat = decode(socket.recv_multipart()[2])  # by a sign of life the subscription is known to stand
        assert (beat.wall_time, beat.octavo.step, beat.worker_id) == (0.0, -1, card["step_metrics"]["worker_id"])
        for prompt, count in (("one", 5), ("another, longer one", 17)):
            body = {"prompt": prompt, "max_tokens": count, "ignore_eos": True, "temperature": 0}
            assert httpx.post(f"{process.url}/v1/completions", json=body, timeout=60).status_code == 200

        def at_rest() -> bool:
            figures = httpx.get(f"{process.url}/load").json()
            return not figures["num_running"] and figures["step"]["octavo"]["step"] == figures["counters"]["steps"] - 1

        wait_until(at_rest, "the last step is shown")
        card = httpx.get(f"{process.url}/load").json()
        heard: list[StepRecord] = []
        while not heard or heard[-1].octavo.step != card["step"]["octavo"]["step"]:
            heard.append(decode(socket.recv_multipart()[2]))
        process.popen.terminate()
        code, errors = process.end()
        assert code == 0, errors
    numbers = [record.counter_id for record in heard]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert msgspec.to_builtins(heard[-1]) == card["step"]
    steps = [record for record in heard if record.octavo.step >= 0]
    assert [decode_line(line) for line in file.read_bytes().splitlines()] == steps
    scheduled = [record.scheduled_requests for record in steps]
    num_run = sum(part.sum_prefill_tokens + part.num_decode_requests for part in scheduled)
    assert num_run == card["counters"]["computed_tokens"]
    assert sum(record.octavo.num_sampled_requests for record in steps) == 5 + 17
    assert sum(record.octavo.execute_s for record in steps) == pytest.approx(card["counters"]["execute_s"])
