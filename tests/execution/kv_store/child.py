"""A process of its own that stores blocks, to be killed or to run out of room.

Usage: python -m tests.execution.kv_store.child PATH SIZE_BYTES NUM_BLOCKS [FILE_LIMIT_BYTES]
Prints the number of each block that has been stored, or why it was not; then `done`, and waits for a line before it
closes its store; after the line `leave` it ends without closing it.
"""

import resource
import sys
from pathlib import Path

from octavo.kv.transfer import TransferState
from tests.execution.kv_store.rig import disk_rig


def main(path: str, size_bytes: str, num_blocks: str, file_limit: str = "") -> None:
    if file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(file_limit), int(file_limit)))
    with disk_rig(Path(path), size_bytes=int(size_bytes)) as rig:
        print("found", len(rig.store.inventory()), flush=True)
        for number in range(int(num_blocks)):
            event = rig.stored([number])
            print(number if event.state is TransferState.DONE else event.problem, flush=True)
        print("done", flush=True)
        if sys.stdin.readline() == "leave\n":
            sys.exit()


if __name__ == "__main__":
    main(*sys.argv[1:])
