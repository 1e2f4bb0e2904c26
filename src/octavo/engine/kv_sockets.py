"""The two sockets of a KV event stream: one that tells everybody, one that answers who asks."""

from dataclasses import dataclass

import zmq

from octavo.config import KVEventsConfig
from octavo.engine.binding import Socket, bind_socket, bound_address
from octavo.errors import ConfigError

REPLY_ROOM = 1000
"""Messages that a requester's queue holds beside one whole replay; beyond, replies to it are dropped."""


@dataclass(frozen=True)
class EventSockets:
    """Bound and not in use yet."""

    context: zmq.Context[Socket]
    events: Socket
    requests: Socket | None
    endpoint: str
    """Where `events` listens in fact: with the port that was found where any would do."""
    replay_endpoint: str | None

    def close(self) -> None:
        """For sockets that come to no use."""
        self.context.destroy(linger=0)

    def fill_in(self, topic: str, model: str) -> bytes:
        """A topic with its {placeholders} replaced.

        Raises:
            ConfigError: {host} of a stream that listens on all addresses, or of one that has none.
        """
        host, _, port = self.endpoint.removeprefix("tcp://").rpartition(":")
        if "{host}" in topic and (host == "0.0.0.0" or not self.endpoint.startswith("tcp://")):
            problem = f"{self.endpoint} names no host for {{host}}; write the address that followers know"
            raise ConfigError("kv_events_topic", topic, problem)
        return topic.replace("{host}", host).replace("{port}", port).replace("{model}", model).encode()


def bind_sockets(config: KVEventsConfig) -> EventSockets | None:
    """Opens the addresses of a configuration; None where events are off.

    Raises:
        ConfigError: an address is taken, or cannot be listened on.
    """
    if config.kv_events_endpoint is None:
        return None
    context: zmq.Context[Socket] = zmq.Context()
    try:
        steps = config.kv_events_buffer_steps
        events = bind_socket(context, zmq.PUB, "kv_events_endpoint", config.kv_events_endpoint, steps)
        requests: Socket | None = None
        if config.kv_events_replay_endpoint is not None:
            name, address = "kv_events_replay_endpoint", config.kv_events_replay_endpoint
            requests = bind_socket(context, zmq.ROUTER, name, address, steps + REPLY_ROOM)
    except ConfigError:
        context.destroy(linger=0)
        raise
    return EventSockets(
        context, events, requests, bound_address(events), None if requests is None else bound_address(requests)
    )
