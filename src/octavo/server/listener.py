"""The address that the server takes: light on imports, because it comes before everything else."""

import errno
import socket
from typing import Any

from octavo.config import ServerConfig
from octavo.errors import ConfigError


class SharedListener(socket.socket):
    """A listening socket that several processes accept from, each one connection per turn of its event loop.

    asyncio accepts all that wait in one go, so of many clients that come at one time the process that is woken first
    would get nearly all.
    """

    _has_taken = False

    def accept(self) -> tuple[socket.socket, Any]:
        """See `socket.accept`.

        Raises:
            BlockingIOError: nobody waits, or this process has had its turn.
        """
        if self._has_taken:
            self._has_taken = False
            raise BlockingIOError
        accepted = super().accept()
        self._has_taken = True
        return accepted


def bind(config: ServerConfig) -> socket.socket:
    """Takes the address before the model is loaded, so that a busy port costs no time.

    Raises:
        ConfigError: the host does not resolve, or the port cannot be had.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise ConfigError("host", config.host, f"is no address of this machine ({error.strerror})") from None
    made = SharedListener if config.api_server_count > 1 else socket.socket
    listener = made(family, kind, proto)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise _bind_error(config, error) from None
    return listener


def _bind_error(config: ServerConfig, error: OSError) -> ConfigError:
    match error.errno:
        case errno.EADDRINUSE:
            problem = "another program listens there; choose another with --port, or --port 0 for any free one"
            return ConfigError("port", config.port, problem)
        case errno.EACCES:
            return ConfigError("port", config.port, "this user may not take it; choose one above 1023")
    return ConfigError("host", config.host, f"cannot be listened on ({error.strerror})")


def address_of(listener: socket.socket, config: ServerConfig) -> str:
    """The URL that reaches a listener from this machine."""
    scheme = "http" if config.ssl_certfile is None else "https"
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}"
