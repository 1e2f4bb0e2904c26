"""The core process's loop in a thread, so that a test can put faults into it: sockets, client and server are real."""

import asyncio
import tempfile
import threading
from pathlib import Path

import zmq

from octavo import AsyncLLM
from octavo.config import EngineConfig
from octavo.engine import client_lines, wire
from octavo.engine.build import Instrument, build_core
from octavo.engine.client import CoreClient
from octavo.engine.load_window import LoadSender
from octavo.engine.process import serve_core
from octavo.hub import resolve
from tests.equality.faults import Fault


class CoreThread:
    """Stands in for `octavo.engine.core_process.CoreProcess`."""

    client = 0
    is_owned = True

    def __init__(self, config: EngineConfig, instrument: Instrument) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="octavo-test-"))
        self.pid = 0
        self._exit_code = -1
        self._thread = threading.Thread(target=self._run, args=(config, instrument), name="core")
        self._thread.start()

    def _run(self, config: EngineConfig, instrument: Instrument) -> None:
        ticks = iter(range(10**9))
        core, info = build_core(config, resolve(config.model.model), lambda: 1e-6 * next(ticks), instrument)
        sockets = wire.addresses(self.folder)
        with zmq.Context() as context:
            lines = client_lines.connect(context, [sockets])
            loads = LoadSender(context, [sockets.load], core.load)
            self._exit_code = serve_core(core, info, lines, loads)
            lines.close()

    async def wait(self) -> int:
        """See `CoreProcess.wait`."""
        await asyncio.to_thread(self._thread.join)
        return self._exit_code

    def note_connection(self) -> None:
        """See `CoreProcess.note_connection`. The folder is removed at the end."""

    def hang_up(self) -> None:
        """See `CoreProcess.hang_up`."""

    def close(self) -> None:
        """See `CoreProcess.close`."""
        self._thread.join(20)
        assert not self._thread.is_alive(), "the core does not end"
        for file in self.folder.iterdir():
            file.unlink()
        self.folder.rmdir()


async def start_disturbed(model: str, fields: dict[str, object], fault: Fault, instrument: Instrument) -> AsyncLLM:
    """An `AsyncLLM` in whose core a fault happens."""
    config = EngineConfig.from_fields({"model": model, **fields})
    client = CoreClient(CoreThread(config, instrument))
    info = await client.start()
    words = fault.words(config)
    return AsyncLLM(client, words, words.complete(info), default_seed=None)
