"""Prints a line for every step of an engine that was started with --step-metrics-endpoint.

Usage: python examples/follow_steps.py tcp://127.0.0.1:20380
"""

import contextlib
import sys

import msgspec
import zmq

from octavo.request.step_record import StepRecord


def line(record: StepRecord) -> str:
    """What a step was made of, and what it took."""
    scheduled, queued, detail = record.scheduled_requests, record.queued_requests, record.octavo
    if detail.step < 0:
        return "at rest"
    return (
        f"step {detail.step}: {scheduled.sum_prefill_tokens} tokens of {scheduled.num_prefill_requests} prompts, "
        f"{scheduled.num_decode_requests} decode behind {scheduled.sum_decode_kv_tokens}, "
        f"{detail.num_accepted_draft_tokens} of {detail.num_draft_tokens} drafts right, "
        f"{queued.num_prefill_requests + queued.num_decode_requests} wait; "
        f"{record.wall_time * 1e3:.2f} ms, {detail.execute_s * 1e3:.2f} in the model"
    )


def main(endpoint: str) -> None:
    """Follows until it is stopped. Of a rest, which an engine tells once a second, only the first line is shown."""
    decode = msgspec.msgpack.Decoder(StepRecord).decode
    socket: zmq.Socket[bytes] = zmq.Context().socket(zmq.SUB)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    socket.connect(endpoint)
    expected: int | None = None
    resting = False
    while True:
        record = decode(socket.recv_multipart()[2])
        if expected is not None and record.counter_id > expected:
            print(f"{record.counter_id - expected} records were lost")
        expected = record.counter_id + 1
        if record.octavo.step >= 0 or not resting:
            print(line(record), flush=True)
        resting = record.octavo.step < 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or "://" not in sys.argv[1]:
        sys.exit(__doc__)
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1])
