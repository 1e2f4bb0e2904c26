"""Composes the tiers behind the device pool: a store for each, what is decided about them, and the desk in between."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from octavo.config import CacheConfig
from octavo.engine.output import KVTierInfo
from octavo.engine.transfer_desk import TransferDesk
from octavo.engine.waker import Waker
from octavo.errors import ConfigError
from octavo.execution.kv_store import disk_store, host_store
from octavo.execution.protocols import KVMemory, KVStore
from octavo.kv.manager import KVManager
from octavo.kv.tier_book import TierSettings
from octavo.kv.tiers import Tiers


class OpenTiers(NamedTuple):
    """Tiers that can be used; None, both, if there are none."""

    tiers: Tiers | None = None
    desk: TransferDesk | None = None
    found: tuple[KVTierInfo, ...] = ()
    """What they were at start."""


def open_tiers(config: CacheConfig, memory: KVMemory, manager: KVManager, fingerprint: str) -> OpenTiers:
    """Opens the tiers that the configuration asks for, as far as they can be used.

    Raises:
        ConfigError: not even one block fits a tier.
        OutOfMemoryError: the system refuses so much memory.
    """
    waker = Waker()
    stores = _open_stores(config, memory, manager, fingerprint, waker.wake)
    if not stores:
        waker.close()
        return OpenTiers()
    settings = [TierSettings(store.tier, store.capacity_bytes, store.num_bytes, store.inventory()) for store in stores]
    found = tuple(
        KVTierInfo(tier=tier.tier.value, capacity_bytes=tier.capacity_bytes, num_found_blocks=len(tier.inventory))
        for tier in settings
    )
    return OpenTiers(Tiers(manager, settings, lease_s=config.kv_lease_s), TransferDesk(stores, waker), found)


def _open_stores(
    config: CacheConfig, memory: KVMemory, manager: KVManager, fingerprint: str, notify: Callable[[], None]
) -> list[KVStore]:
    stores: list[KVStore] = []
    layout = manager.layout
    if config.kv_host_memory_bytes is not None:
        if config.kv_host_memory_bytes < layout.bytes_per_block:
            problem = f"one block of this model takes {layout.bytes_per_block} bytes; give at least that"
            raise ConfigError("kv_host_memory_bytes", config.kv_host_memory_bytes, problem)
        stores.append(host_store(memory, layout, config.kv_host_memory_bytes, notify))
    if config.kv_disk_path is not None and config.kv_disk_size_bytes is not None:
        store = disk_store(
            memory, layout, Path(config.kv_disk_path).expanduser(), config.kv_disk_size_bytes, fingerprint, notify
        )
        stores += [] if store is None else [store]
    return stores
