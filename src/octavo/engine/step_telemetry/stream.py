"""Step records over ZeroMQ: a PUB socket, three frames per record, as KV events have them.

    [topic][number, 8 bytes, big-endian][msgpack of a StepRecord, a map]

A follower that is slow, hangs or is gone loses records, which its numbers tell, and costs the engine nothing: each
follower has a queue of bounded length in the socket's own thread, and sending never waits.
"""

import contextlib

import msgspec
import zmq

from octavo.config import StepMetricsConfig
from octavo.engine.binding import Socket, bind_socket, bound_address
from octavo.request.step_record import StepRecord

LINGER_MS = 500
"""How long sent records are still carried out after the end."""

_encode = msgspec.msgpack.Encoder().encode


class StepStream:
    """A `StepSink` for followers of all steps."""

    wants_beats = True

    def __init__(self, config: StepMetricsConfig, address: str) -> None:
        """Listens.

        Raises:
            ConfigError: the address is taken, or cannot be listened on.
        """
        self._context: zmq.Context[Socket] = zmq.Context()
        self._topic = config.step_metrics_topic.encode()
        try:
            self._socket = bind_socket(
                self._context, zmq.PUB, "step_metrics_endpoint", address, config.step_metrics_buffer_steps
            )
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self.endpoint = bound_address(self._socket)
        """Where it listens in fact: with the port that was found where any would do."""

    def put(self, record: StepRecord) -> None:
        """See `StepSink.put`."""
        frames = (self._topic, record.counter_id.to_bytes(8, "big"), _encode(record))
        with contextlib.suppress(zmq.ZMQError):  # closed, or out of memory: no step is lost for a message
            self._socket.send_multipart(frames, zmq.NOBLOCK)

    def close(self) -> None:
        """See `StepSink.close`."""
        self._context.destroy(linger=LINGER_MS)
