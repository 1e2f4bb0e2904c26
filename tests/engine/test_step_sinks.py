"""Step records over ZeroMQ and in a file: what is read is what was put there, and nobody makes the engine wait."""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from octavo.config import StepMetricsConfig
from octavo.engine.step_telemetry.file import StepFile
from octavo.engine.step_telemetry.open import open_recorder
from octavo.engine.step_telemetry.stream import StepStream
from octavo.errors import ConfigError
from octavo.request.step_record import QueuedFigures, ScheduledFigures, StepDetail, StepRecord

PATIENCE_MS = 20_000


def record(number: int) -> StepRecord:
    return StepRecord(
        worker_id="w" * 32,
        counter_id=number,
        wall_time=0.25,
        scheduled_requests=ScheduledFigures(num_decode_requests=3, sum_decode_kv_tokens=30, var_decode_kv_tokens=1.5),
        queued_requests=QueuedFigures(num_prefill_requests=1, sum_prefill_tokens=7),
        octavo=StepDetail(step=number, execute_s=0.2),
    )


@contextmanager
def stream(**settings: Any) -> Iterator[StepStream]:
    made = StepStream(StepMetricsConfig(step_metrics_endpoint="tcp://127.0.0.1:0", **settings), "tcp://127.0.0.1:0")
    try:
        yield made
    finally:
        made.close()


@contextmanager
def follower(endpoint: str, **options: int) -> Iterator[zmq.Socket[bytes]]:
    """A subscriber to everything."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.RCVTIMEO, PATIENCE_MS)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    for name, value in options.items():
        socket.setsockopt(getattr(zmq, name), value)
    socket.connect(endpoint)
    try:
        yield socket
    finally:
        context.destroy(linger=0)


def put_until_heard(made: StepStream, socket: zmq.Socket[bytes]) -> int:
    """Puts records until the follower, whose subscription is on its way, gets one; the number that comes next."""
    number = 0
    while not socket.poll(5):
        made.put(record(number))
        number += 1
    return number


def test_frames_are_topic_number_and_forward_pass_metrics() -> None:
    with stream(step_metrics_topic="steps@here") as made, follower(made.endpoint) as socket:
        put_until_heard(made, socket)
        topic, number, payload = socket.recv_multipart()
    told = msgspec.msgpack.decode(payload)
    assert topic == b"steps@here" and len(number) == 8
    assert int.from_bytes(number, "big") == told["counter_id"]
    assert told == msgspec.to_builtins(record(told["counter_id"]))
    assert (told["version"], told["dp_rank"], told["worker_id"]) == (1, 0, "w" * 32)
    counts = ("num_prefill_requests", "sum_prefill_tokens", "num_decode_requests", "sum_decode_kv_tokens")
    for part in ("scheduled_requests", "queued_requests"):
        assert all(type(told[part][name]) is int for name in counts)
        assert all(type(told[part][name]) is float for name in ("var_prefill_length", "var_decode_kv_tokens"))
    assert type(told["scheduled_requests"]["sum_prefill_kv_tokens"]) is int


def test_numbers_have_no_gaps_for_who_keeps_up() -> None:
    with stream() as made, follower(made.endpoint) as socket:
        first = put_until_heard(made, socket)
        for number in range(first, first + 500):
            made.put(record(number))
        numbers = []
        while not numbers or numbers[-1] < first + 499:
            numbers.append(int.from_bytes(socket.recv_multipart()[1], "big"))
    assert numbers == list(range(numbers[0], first + 500))


def test_a_follower_that_hangs_loses_records_and_sees_that_it_did() -> None:
    """20,000 records are 10 MB: far more than its queue and all buffers on the way hold."""
    with stream(step_metrics_buffer_steps=10) as made, follower(made.endpoint, RCVHWM=1, RCVBUF=4096) as socket:
        first = put_until_heard(made, socket)
        for number in range(first, 20_000):
            made.put(record(number))  # would never return, or run out of memory, if it waited or kept them all
        numbers = []
        while socket.poll(100):
            numbers.append(int.from_bytes(socket.recv_multipart()[1], "big"))
    assert numbers == sorted(set(numbers)) and len(numbers) < 20_000 - numbers[0]


def test_an_address_that_is_taken_is_told_at_start() -> None:
    with stream() as made, pytest.raises(ConfigError, match=r"step_metrics_endpoint.*taken"):
        open_recorder(StepMetricsConfig(step_metrics_endpoint=made.endpoint))


def test_a_closed_stream_takes_records_in_silence() -> None:
    with stream() as made:
        made.close()
        made.put(record(0))


def settings(path: Path, **more: int) -> StepMetricsConfig:
    return StepMetricsConfig(step_metrics_file=str(path), **more)


def write(path: Path, numbers: range, **more: int) -> None:
    sink = StepFile(settings(path, **more), str(path))
    for number in numbers:
        sink.put(record(number))
    sink.close()
    sink.close()


def steps(path: Path) -> list[int]:
    return [json.loads(line)["octavo"]["step"] for line in path.read_bytes().splitlines()]


def test_a_file_holds_a_record_a_line_and_goes_on_behind_what_stands_there(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    write(path, range(5))
    assert msgspec.json.decode(path.read_bytes().splitlines()[3], type=StepRecord) == record(3)
    write(path, range(5, 7))
    assert steps(path) == list(range(7))


def test_a_file_stays_within_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    write(path, range(1000), step_metrics_file_bytes=2**16)
    older = tmp_path / "steps.jsonl.1"
    assert sorted(tmp_path.iterdir()) == [path, older]
    assert max(path.stat().st_size, older.stat().st_size) <= 2**16
    kept = steps(older) + steps(path)
    assert kept == list(range(kept[0], 1000)) and kept[0] > 0


def test_a_file_that_cannot_be_written_is_told_at_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"step_metrics_file.*No such file"):
        open_recorder(settings(tmp_path / "missing" / "steps.jsonl"))


def test_a_disk_that_fails_costs_the_records_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with caplog.at_level(logging.ERROR):
        write(tmp_path / "steps.jsonl", range(1000), step_metrics_file_bytes=2**16)
    assert "No space left on device" in caplog.text


def test_a_full_disk_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Warnings are errors here, so the thread has ended well, too."""
    with caplog.at_level(logging.ERROR):
        write(Path("/dev/full"), range(10))
    (told,) = caplog.records
    assert "No space left on device" in told.message


def test_half_a_line_of_one_that_was_killed_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    write(path, range(3))
    path.write_bytes(path.read_bytes()[:-20])
    write(path, range(3, 6))
    *first, torn, fourth, fifth, sixth = path.read_bytes().splitlines()
    assert len(first) == 2 and not torn.endswith(b"}")
    assert [json.loads(line)["octavo"]["step"] for line in (fourth, fifth, sixth)] == [3, 4, 5]


def test_two_servers_do_not_turn_over_each_others_file(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    first = StepFile(settings(path, step_metrics_file_bytes=2**16), str(path))
    for number in range(150):  # more than one file holds
        first.put(record(number))
    with pytest.raises(ConfigError, match="is written by another server"):
        open_recorder(settings(path))
    first.close()
    write(path, range(150, 152))
    assert steps(path)[-2:] == [150, 151]


def test_a_pipe_is_told_at_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "steps.jsonl")
    with pytest.raises(ConfigError, match="it is a pipe"):
        open_recorder(settings(tmp_path / "steps.jsonl"))
