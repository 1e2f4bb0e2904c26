"""The two sockets of a KV event stream: one that tells everybody, one that answers who asks."""

import errno
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

import zmq

from octavo.config import KVEventsConfig
from octavo.errors import ConfigError

Socket = zmq.Socket[bytes]

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
        events = _bind(context, zmq.PUB, "kv_events_endpoint", config.kv_events_endpoint, steps)
        requests: Socket | None = None
        if config.kv_events_replay_endpoint is not None:
            name, address = "kv_events_replay_endpoint", config.kv_events_replay_endpoint
            requests = _bind(context, zmq.ROUTER, name, address, steps + REPLY_ROOM)
    except ConfigError:
        context.destroy(linger=0)
        raise
    return EventSockets(context, events, requests, _bound(events), None if requests is None else _bound(requests))


def _bind(context: zmq.Context[Socket], kind: int, name: str, address: str, most_messages: int) -> Socket:
    opened = context.socket(kind)
    opened.setsockopt(zmq.SNDHWM, most_messages)
    opened.setsockopt(zmq.TCP_KEEPALIVE, 1)
    opened.setsockopt(zmq.IPV6, address.startswith("tcp://["))
    _require_free_path(name, address)
    try:
        opened.bind(re.sub(r":0$", ":*", address))
    except zmq.ZMQError as error:
        raise ConfigError(name, address, _why(error)) from None
    return opened


def _require_free_path(name: str, address: str) -> None:
    """ZeroMQ takes a path from whoever listens there without a word."""
    path = address.removeprefix("ipc://")
    if path == address or not Path(path).is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(path) == 0:
            raise ConfigError(name, address, _TAKEN)


_TAKEN = "is taken by another process; end that one or choose another address"
_REASONS = {
    errno.EADDRINUSE: _TAKEN,
    errno.ENODEV: "is no address of this machine; write one of its own in numbers, such as 127.0.0.1",
    errno.EADDRNOTAVAIL: "is no address of this machine; write one of its own in numbers, such as 127.0.0.1",
}


def _why(error: zmq.ZMQError) -> str:
    known = _REASONS.get(error.errno or 0)
    return known or f"cannot be listened on: {os.strerror(error.errno or 0)}; choose another address"


def _bound(opened: Socket) -> str:
    return opened.getsockopt_string(zmq.LAST_ENDPOINT)
