"""What a record of a step costs the step loop: thread CPU time per step in which everybody decodes, without and with a
stream that somebody follows, and a file.

Usage: python benchmarks/step_records.py [NUM_STEPS]
"""

import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import zmq

from octavo.config import StepMetricsConfig
from octavo.engine.step_telemetry.file import StepFile
from octavo.engine.step_telemetry.recorder import Landing, StepRecorder
from octavo.engine.step_telemetry.sink import StepSink
from octavo.engine.step_telemetry.stream import StepStream
from octavo.request.step_record import QueuedFigures
from octavo.scheduling.plan import StepPlan, StepResult

ADDRESS = "tcp://127.0.0.1:0"


def plans(num_requests: int, num_steps: int) -> list[StepPlan]:
    """Steps of requests with contexts of a hundred tokens and more."""
    names = tuple(f"request-{number}" for number in range(num_requests))
    return [
        StepPlan(
            step=step,
            request_ids=names,
            num_scheduled_tokens=(1,) * num_requests,
            num_computed_tokens=tuple(range(100 + step, 100 + step + num_requests)),
            new_block_ids=((),) * num_requests,
        )
        for step in range(num_steps)
    ]


def cost_us(num_requests: int, num_steps: int, sinks: Sequence[StepSink]) -> float:
    """Of one step."""
    recorder, queued = StepRecorder(sinks, worker_id="0" * 32, wall_clock=time.time), QueuedFigures()
    result = StepResult(step=0, token_ids=((1,),) * num_requests)
    begin = time.thread_time()
    for plan in plans(num_requests, num_steps):
        recorder.planned(plan, (queued, num_requests, 1000), 0.0, 0.1)
        recorder.landed(plan, result, Landing(0.1, 0.2, 0.3, has_more=True))
    planned = time.thread_time()
    plans(num_requests, num_steps)
    made = time.thread_time() - planned
    return (planned - begin - made) / num_steps * 1e6


def follow(endpoint: str, stop: threading.Event) -> None:
    """Reads all."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    socket.connect(endpoint)
    while not stop.is_set():
        if socket.poll(50):
            socket.recv_multipart()
    context.destroy(linger=0)


def main(num_steps: int) -> None:
    """Prints a table."""
    print("| requests | nobody follows | with stream and file |\n|---|---|---|")
    for num_requests in (1, 16, 64, 256):
        alone = cost_us(num_requests, num_steps, ())
        with tempfile.TemporaryDirectory() as folder:
            config = StepMetricsConfig(step_metrics_endpoint=ADDRESS)
            stream, file = StepStream(config, ADDRESS), StepFile(config, str(Path(folder, "steps.jsonl")))
            stop = threading.Event()
            follower = threading.Thread(target=follow, args=(stream.endpoint, stop))
            follower.start()
            followed = cost_us(num_requests, num_steps, (stream, file))
            stop.set()
            follower.join()
            stream.close()
            file.close()
        print(f"| {num_requests} | {alone:.1f} us | {followed:.1f} us |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3000)
