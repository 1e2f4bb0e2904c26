"""Follows what an engine holds, and says how sure that is. Start the engine with

octavo serve --kv-events-endpoint tcp://127.0.0.1:5557 --kv-events-replay-endpoint tcp://127.0.0.1:5558
python examples/follow_kv_events.py tcp://127.0.0.1:5557 tcp://127.0.0.1:5558

Without the second address (the first's alone) it waits until the engine's cache has been cleared.
"""

import contextlib
import sys
import time

from octavo.router.kv_client import KvEventsClient
from octavo.router.kv_directory import KvDirectory


def main(endpoint: str, replay_endpoint: str | None = None) -> None:
    """Prints a line for each change, until Ctrl-C."""
    directory = KvDirectory()
    shown = ""
    with KvEventsClient(directory) as client:
        client.follow("engine", endpoint, replay_endpoint)
        while True:
            client.poll(timeout_s=0.5)
            feed = directory.feeds["engine"]
            counts = {shelf.medium: len(shelf.blocks) for shelf in feed.holdings.residency.shelves}
            line = f"{feed.exactness(time.monotonic())}: {counts}"
            if line != shown:
                print(line, flush=True)
                shown = line


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(f"usage: {sys.argv[0]} ENDPOINT [REPLAY_ENDPOINT]")
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
