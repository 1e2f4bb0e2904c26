"""Stores as an engine wants them."""

import logging
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from octavo.errors import ConfigError
from octavo.execution.kv_store.disk import DiskMedium
from octavo.execution.kv_store.entry import HEAD_BYTES, EntryFormat
from octavo.execution.kv_store.folder import claim
from octavo.execution.kv_store.host import HostMedium
from octavo.execution.kv_store.medium import NoRoomError
from octavo.execution.kv_store.slot_file import DiskFile, OpenFile
from octavo.execution.kv_store.store import TierStore
from octavo.execution.protocols import KVMemory
from octavo.kv.record import Tier
from octavo.kv.spec import KVLayout

log = logging.getLogger(__name__)


def host_store(memory: KVMemory, layout: KVLayout, capacity_bytes: int, notify: Callable[[], None]) -> TierStore:
    """A store in main memory.

    Raises:
        OutOfMemoryError: the system refuses so much.
    """
    return TierStore(Tier.HOST, HostMedium(_block_bytes(memory, layout), capacity_bytes), memory, notify)


def disk_store(
    memory: KVMemory,
    layout: KVLayout,
    path: Path,
    size_bytes: int,
    fingerprint: str,
    notify: Callable[[], None],
    open_file: OpenFile = DiskFile,
) -> TierStore | None:
    """A store in files under a path, where it finds what was stored under the same fingerprint before.

    Args:
        size_bytes: most bytes that all under the path may take, other models' and other processes' included.
        fingerprint: all that decides the bits of a block beside its tokens.

    Returns:
        The store; None, with a warning, if the disk fails or others use all of it: an engine works without.

    Raises:
        ConfigError: the path is no folder and none can be made there, or not even one block fits the size.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError("kv_disk_path", str(path), f"must be a folder, or one that can be made ({error})") from None
    block_bytes = _block_bytes(memory, layout)
    name = sha256(fingerprint.encode()).digest()
    entry_format = EntryFormat(name, layout.block_size, max(block_bytes))
    least = HEAD_BYTES + entry_format.num_bytes + entry_format.slot_bytes
    if size_bytes < least:
        raise ConfigError("kv_disk_size_bytes", size_bytes, f"one block of this model takes {least} bytes")
    try:
        folder = claim(path, name, size_bytes, least)
        try:
            medium = DiskMedium(folder, entry_format, block_bytes, open_file)
        except BaseException:
            folder.release()
            raise
    except (OSError, NoRoomError) as error:
        log.warning("KV blocks are not kept on disk, in %s: %s", path, error)
        return None
    return TierStore(Tier.DISK, medium, memory, notify)


def _block_bytes(memory: KVMemory, layout: KVLayout) -> list[int]:
    return [memory.block_bytes(group) for group in range(len(layout.groups))]
