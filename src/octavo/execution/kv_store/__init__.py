"""The bytes of tiers: stores that obey `TransferPlan`s, in threads of their own."""

from octavo.execution.kv_store.open import disk_store, host_store
from octavo.execution.kv_store.store import TierStore

__all__ = ["TierStore", "disk_store", "host_store"]
