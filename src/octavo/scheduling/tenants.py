"""Fairness across tenants: how many of each may run, and who has had how much."""

from collections import Counter
from collections.abc import Iterable, Mapping

from octavo.config import SchedulerConfig
from octavo.errors import ConfigError
from octavo.request.request import GenerateRequest

ONE_LANE = ""
_MIN_RECORDS_TO_PRUNE = 64
_MAX_REMEMBERED = 1000
"""Tenants without requests whose lead is remembered: those with the largest."""


class Tenants:
    """Running requests and service per tenant; no difference is made between tenants unless the configuration asks.

    Service is what start-time fair queueing (Goyal et al. 1996) calls a tag: tokens scheduled for a tenant over its
    weight, much like the virtual token counter for language models (Sheng et al. 2024). Whoever has had least goes
    first. Virtual time is the service of the tenant that started last; a tenant that comes back from a pause starts
    there, so that nobody saves up. Work is what counts: prompt tokens found in the cache are free.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        """
        Raises:
            ConfigError: a weight is not `tenant=number`.
        """
        self.weighs = config.fair_share
        """Whether service is counted; without it `rank` is the same for all."""
        self._max_running = config.max_running_per_key
        self._weights = parse_weights(config.fair_weights)
        self._num_running: Counter[str] = Counter()
        self._turned: dict[str, None] = {}
        self._num_live: Counter[str] = Counter()
        self._service: dict[str, float] = {}
        self._virtual_time = 0.0
        self._prune_at = _MIN_RECORDS_TO_PRUNE

    def lane_of(self, request: GenerateRequest) -> str:
        """Requests of one lane wait in the policy's order; between lanes `rank` decides first."""
        return request.tenant if self.weighs or self._max_running else ONE_LANE

    def may_start(self, tenant: str) -> bool:
        """Whether one more request of this tenant may run."""
        return not self._max_running or self._num_running[tenant] < self._max_running

    @property
    def bounds_running(self) -> bool:
        """Whether the number of running requests of a tenant is bounded."""
        return self._max_running > 0

    def take_turned(self) -> list[str]:
        """Tenants who since the last call may have come to their bound, or got away from it."""
        turned, self._turned = list(self._turned), {}
        return turned

    def may_take_from(self, tenant: str, other: str) -> bool:
        """Whether requests of one tenant may evict those of another: shares come before urgency."""
        return tenant == other or not self.weighs

    def rank(self, tenant: str) -> float:
        """Who has had least goes first."""
        return self._service.get(tenant, 0.0)

    def num_running(self) -> Mapping[str, int]:
        """Tenant -> running requests, of those with any."""
        return +self._num_running

    def arrived(self, tenant: str) -> None:
        """A request of this tenant has been taken in."""
        if self.weighs:
            if tenant not in self._num_live:
                self._service[tenant] = max(self.rank(tenant), self._virtual_time)
            self._num_live[tenant] += 1

    def ended(self, tenant: str) -> None:
        """It is gone."""
        if not self.weighs:
            return
        self._num_live[tenant] -= 1
        if self._num_live[tenant] == 0:
            del self._num_live[tenant]
            self._prune()

    def started(self, tenant: str) -> None:
        """One of this tenant's requests begins to run."""
        self._num_running[tenant] += 1
        self._note_turn(tenant)
        self._virtual_time = max(self._virtual_time, self.rank(tenant))

    def stopped(self, tenant: str) -> None:
        """One of them runs no longer."""
        self._num_running[tenant] -= 1
        self._note_turn(tenant)
        if self._num_running[tenant] == 0:
            del self._num_running[tenant]

    def _note_turn(self, tenant: str) -> None:
        if self._max_running:
            self._turned[tenant] = None

    def charge(self, tenant: str, num_tokens: int) -> None:
        """Books work done for a tenant."""
        self._service[tenant] = self.rank(tenant) + num_tokens / self._weights.get(tenant, 1.0)

    def _prune(self) -> None:
        """Forgets tenants without requests that virtual time has passed, and beyond a number those with the smallest
        lead; everybody when the engine is idle."""
        if not self._num_live:
            self._service.clear()
            self._virtual_time = 0.0
        elif len(self._service) > self._prune_at:
            ahead = [t for t, s in self._service.items() if s > self._virtual_time and t not in self._num_live]
            remembered = sorted(ahead, key=self.rank)[-_MAX_REMEMBERED:]
            self._service = {t: self.rank(t) for t in [*self._num_live, *remembered]}
            self._prune_at = 2 * len(self._service) + _MIN_RECORDS_TO_PRUNE


_LEAST_WEIGHT = 1e-6
"""Work is divided by it: far smaller ones would lose others' work in rounding."""


def parse_weights(texts: Iterable[str]) -> dict[str, float]:
    """Tenant -> weight, of texts `tenant=weight`.

    Raises:
        ConfigError: one is not of that form, its weight is not sensible, or its tenant has one already.
    """
    weights: dict[str, float] = {}
    for text in texts:
        tenant, _, number = text.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = 0.0
        if not tenant or not _LEAST_WEIGHT <= weight <= 1 / _LEAST_WEIGHT:
            form = f"must be TENANT=WEIGHT with a weight in [{_LEAST_WEIGHT}, {1 / _LEAST_WEIGHT:.0f}]"
            raise ConfigError("fair_weights", text, f"{form}, such as 9f86d081=2")
        if tenant in weights:
            raise ConfigError("fair_weights", text, "gives this tenant a second weight")
        weights[tenant] = weight
    return weights
