"""What the API's processes keep for their clients, so that each finds it: bytes by tenant and name, for a while."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from octavo.request.orders import RecordLimits


@dataclass(frozen=True)
class _Record:
    content: bytes
    stored_s: float


@dataclass
class _Tenant:
    records: "OrderedDict[str, _Record]" = field(default_factory=OrderedDict)
    """The oldest first."""
    num_bytes: int = 0


class Records:
    """Records by tenant and name. Names of other tenants do not exist for a tenant. Where room is short the oldest
    record goes, of the tenant who has most: nobody's records drive out those of others who have fewer."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """
        Args:
            clock: monotonic seconds.
        """
        self._clock = clock
        self._max_age_s = float("inf")
        self._tenants: dict[str, _Tenant] = {}
        self.num_records = 0
        self.num_bytes = 0

    def put(self, tenant: str, name: str, content: bytes, limits: RecordLimits) -> bool:
        """Keeps a record, in place of one of the same name; False if it alone is more than may be kept. The limits hold
        for all from now on."""
        self._max_age_s = limits.max_age_s
        self.remove(tenant, name)
        if not limits.max_records or len(content) > limits.max_bytes:
            return False
        owner = self._tenants.setdefault(tenant, _Tenant())
        owner.records[name] = _Record(content, self._clock())
        self._count(owner, 1, len(content))
        self._make_room(limits)
        return True

    def get(self, tenant: str, name: str) -> bytes | None:
        """A record; None if it was never there, or is no more."""
        self._forget_old()
        owner = self._tenants.get(tenant)
        record = None if owner is None else owner.records.get(name)
        return None if record is None else record.content

    def remove(self, tenant: str, name: str) -> bool:
        """Lets go of a record; False if there is none."""
        self._forget_old()
        owner = self._tenants.get(tenant)
        if owner is None or name not in owner.records:
            return False
        self._drop(tenant, name)
        return True

    def _make_room(self, limits: RecordLimits) -> None:
        while self.num_records > limits.max_records:
            self._drop_oldest(max(self._tenants, key=lambda tenant: len(self._tenants[tenant].records)))
        while self.num_bytes > limits.max_bytes:
            self._drop_oldest(max(self._tenants, key=lambda tenant: self._tenants[tenant].num_bytes))

    def _forget_old(self) -> None:
        oldest_kept = self._clock() - self._max_age_s
        for tenant in list(self._tenants):
            while tenant in self._tenants and self._oldest(tenant).stored_s <= oldest_kept:
                self._drop_oldest(tenant)

    def _oldest(self, tenant: str) -> _Record:
        return next(iter(self._tenants[tenant].records.values()))

    def _drop_oldest(self, tenant: str) -> None:
        self._drop(tenant, next(iter(self._tenants[tenant].records)))

    def _drop(self, tenant: str, name: str) -> None:
        owner = self._tenants[tenant]
        self._count(owner, -1, -len(owner.records.pop(name).content))
        if not owner.records:
            del self._tenants[tenant]

    def _count(self, owner: _Tenant, records: int, num_bytes: int) -> None:
        self.num_records += records
        self.num_bytes += num_bytes
        owner.num_bytes += num_bytes
