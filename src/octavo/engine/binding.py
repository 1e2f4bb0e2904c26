"""Opening ZeroMQ sockets at addresses that users have chosen."""

import errno
import os
import re
import socket
from pathlib import Path

import zmq

from octavo.errors import ConfigError

Socket = zmq.Socket[bytes]


def bind_socket(context: zmq.Context[Socket], kind: int, name: str, address: str, most_messages: int) -> Socket:
    """A socket that listens.

    Args:
        name: of the setting that holds the address.
        most_messages: that wait for each of its followers.

    Raises:
        ConfigError: the address is taken, or cannot be listened on.
    """
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


def bound_address(opened: Socket) -> str:
    """Where it listens in fact: with the port that was found where any would do."""
    return opened.getsockopt_string(zmq.LAST_ENDPOINT)
