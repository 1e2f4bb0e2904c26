"""What a client has in its hands of a core process: its own one (`CoreProcess`), or one that somebody else started."""

import asyncio
from pathlib import Path
from typing import Protocol

import msgspec

from octavo.config import EngineConfig
from octavo.hub.files import ModelFiles


class CoreHold(Protocol):
    """A core process, as far as a client has a say in its life."""

    @property
    def folder(self) -> Path:
        """Where the sockets are bound."""
        ...

    @property
    def client(self) -> int:
        """Which of the core's clients this one is."""
        ...

    @property
    def is_owned(self) -> bool:
        """Whether this client ends the process."""
        ...

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    async def wait(self) -> int:
        """Waits for the end; returns the exit code."""
        ...

    def note_connection(self) -> None:
        """This client's connections stand."""
        ...

    def hang_up(self) -> None:
        """Has the process drop everything and end."""
        ...

    def close(self) -> None:
        """Ends the process if it has not ended, by force if it must be."""
        ...


class JoinOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a process needs to become another client of a core process."""

    config: EngineConfig
    model: ModelFiles
    folder: Path
    core_pid: int
    client: int
    """Which one it is to be."""


class JoinedCore:
    """A core process that another process has started, watches and ends. That one tells when it is gone."""

    is_owned = False

    def __init__(self, order: JoinOrder) -> None:
        self.folder = order.folder
        self.pid = order.core_pid
        self.client = order.client

    async def wait(self) -> int:
        """Never returns: only a parent learns of the end of its child."""
        never: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        return await never

    def note_connection(self) -> None:
        """Nothing to do: this process says itself when it is ready."""

    def hang_up(self) -> None:
        """Nothing to do: the process is not this one's."""

    def close(self) -> None:
        """Nothing to do: the process is not this one's."""
