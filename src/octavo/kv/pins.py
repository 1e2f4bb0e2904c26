"""Pinned prefixes: what sessions hold of the KV memory between their requests, until their leases end."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

from octavo.errors import InvalidRequestError, PinBudgetError
from octavo.kv.blocks import NULL_BLOCK_ID
from octavo.kv.manager import KVManager
from octavo.kv.pin_budget import PinBudget, Pinned
from octavo.kv.request_blocks import RequestBlocks
from octavo.request.pin import DEFAULT_LEASE_S, MAX_SESSIONS_PER_TENANT, PinRequest, SessionState
from octavo.request.request import GenerateRequest

_LEAST_RETRY_S = 1.0
_MIN_HEAP_TO_SWEEP = 64

PinKey = tuple[str, str]
"""(tenant, session id)"""


class Pin:
    """One session. Mutated by `Pins` only."""

    __slots__ = ("deadline_s", "held", "is_open", "key", "lease_s", "num_users", "pinned", "ticket")

    def __init__(self, key: PinKey) -> None:
        self.key = key
        self.lease_s = DEFAULT_LEASE_S
        self.deadline_s = 0.0
        self.held: RequestBlocks | None = None
        """Holds references like a request; None: nothing is pinned."""
        self.pinned = Pinned(key[0])
        """What that is."""
        self.num_users = 0
        """Live requests of the session."""
        self.is_open = True
        self.ticket = 0
        """Number of its entry among the deadlines that counts."""


class Pins:
    """All sessions of an engine and their leases. Pure: the clock is an argument.

    A pin is a handle of the manager like that of a request, so whatever is true of blocks that requests hold is true of
    pinned ones: they are found by everybody who may find them, and nobody evicts them. It is taken on blocks that are
    computed, never on those of a step in flight.
    """

    def __init__(
        self, manager: KVManager, max_model_len: int, *, max_share: float = 0.5, max_tokens_per_tenant: int = 0
    ) -> None:
        """
        Args:
            max_model_len: longest prompt + output, in tokens.
            max_share: most of the pool that all pins hold, 0 to 1.
            max_tokens_per_tenant: most tokens pinned for one tenant, shared ones counted for each session; 0: no limit.
        """
        self.on_change: Callable[[], None] = lambda: None
        """Called whenever other blocks are pinned than before."""
        self._manager = manager
        self._budget = PinBudget(manager, max_model_len, max_share, max_tokens_per_tenant)
        self._pins: dict[PinKey, Pin] = {}
        self._num_sessions: Counter[str] = Counter()
        self._deadlines: list[tuple[float, int, Pin]] = []
        """A heap, with one entry per session that counts, never later than its deadline."""
        self._tickets = itertools.count(1)

    def __len__(self) -> int:
        return len(self._pins)

    @property
    def num_blocks(self) -> int:
        """Blocks that are pinned, shared ones counted once."""
        return self._budget.num_blocks

    @property
    def max_blocks(self) -> int:
        """Most of them."""
        return self._budget.max_blocks

    # ---- sessions

    def open(
        self,
        tenant: str,
        wish: PinRequest,
        now_s: float,
        token_ids: Sequence[int] = (),
        cache_salt: str | None = None,
    ) -> SessionState:
        """Makes a session, or counts as a use of the one that exists.

        Args:
            token_ids: of a prompt that is to run for the sake of being pinned. Nothing is pinned yet; but nothing is
                done at all if it could not be, as far as can be foreseen.

        Raises:
            InvalidRequestError: nothing can be pinned here, or never this prompt.
            PinBudgetError: the prompt cannot be pinned now, or the tenant has too many sessions.
        """
        self._budget.refuse_if_none(wish.session_id)
        self.expire(now_s)
        key = tenant, wish.session_id
        prompt = self._manager.open(list(token_ids), tenant=tenant, cache_salt=cache_salt)
        self._refuse_without_room(key, prompt, now_s)
        return _state(self._use(key, wish.lease_s, now_s), now_s)

    def extend(self, tenant: str, session_id: str, lease_s: float | None, now_s: float) -> SessionState | None:
        """Counts as a use of a session, and sets its lease if one is given; None if there is no such session."""
        self.expire(now_s)
        if (tenant, session_id) not in self._pins:
            return None
        return _state(self._use((tenant, session_id), lease_s, now_s), now_s)

    def release(self, tenant: str, session_id: str) -> bool:
        """Ends a session: what it held can be evicted. Its live requests go on without it. False if there is none."""
        pin = self._pins.get((tenant, session_id))
        if pin is not None:
            self._close(pin)
        return pin is not None

    def states(self, tenant: str, now_s: float) -> list[SessionState]:
        """The sessions of a tenant, oldest first."""
        self.expire(now_s)
        return [_state(pin, now_s) for pin in self._pins.values() if pin.key[0] == tenant]

    def expire(self, now_s: float) -> None:
        """Ends the sessions whose leases have ended and that no request uses. Costs nothing while there are none."""
        heap = self._deadlines
        while heap and heap[0][0] <= now_s:
            _, ticket, pin = heappop(heap)
            if pin.is_open and pin.ticket == ticket:
                self._come_due(pin, now_s)

    def deadline_s(self) -> float | None:
        """When `expire` has something to look at next; None: never."""
        return self._deadlines[0][0] if self._deadlines else None

    def let_go(self) -> None:
        """Lets go of all blocks. Sessions stay, and hold nothing until they are used."""
        for pin in self._pins.values():
            self._replace(pin, None)

    # ---- requests of sessions

    def arrive(self, request: GenerateRequest, now_s: float) -> Pin | None:
        """A request comes; None if it belongs to no session.

        Raises:
            InvalidRequestError: nothing can be pinned here.
            PinBudgetError: the tenant has too many sessions.
        """
        wish = request.pin
        if wish is None:
            return None
        self._budget.refuse_if_none(wish.session_id)
        pin = self._use((request.tenant, wish.session_id), wish.lease_s, now_s)
        pin.num_users += 1
        return pin

    def keep(self, pin: Pin, blocks: RequestBlocks, now_s: float) -> str:
        """A request of a session has ended well: pins what is computed of its tokens in place of what the session held,
        unless that begins with it. To be called before the request's blocks are freed.

        Returns:
            Why the session still holds what it held before, with the numbers; empty where it does not.
        """
        if not pin.is_open:
            return "the session was ended before the request was"
        pin.deadline_s = max(pin.deadline_s, now_s + pin.lease_s)
        candidate = self._manager.hold_computed(blocks)
        problem = self._budget.problem(pin.pinned, _pinned(pin.key[0], candidate))
        if problem or _covers(pin.held, candidate):
            self._manager.free(candidate)
        else:
            self._replace(pin, candidate)
        return problem

    @staticmethod
    def leave(pin: Pin) -> None:
        """A request of the session is gone, however it ended."""
        pin.num_users -= 1

    def check(self) -> None:
        """Verifies the budget's counts and the leases. O(pinned blocks); for tests and idle moments.

        Raises:
            AssertionError: naming the law.
        """
        pins = self._pins.values()
        self._budget.check([pin.pinned for pin in pins])
        due = sorted(ticket for when, ticket, pin in self._deadlines if ticket == pin.ticket and pin.is_open)
        laws = {
            "what is held is what is counted": all(pin.pinned == _pinned(pin.key[0], pin.held) for pin in pins),
            "sessions are counted by tenant": Counter(tenant for tenant, _ in self._pins) == self._num_sessions,
            "each session has one entry among the deadlines": due == sorted(pin.ticket for pin in pins),
            "users are counted": all(pin.num_users >= 0 for pin in pins),
        }
        for law, holds in laws.items():
            if not holds:
                raise AssertionError(law)

    # ---- leases

    def _use(self, key: PinKey, lease_s: float | None, now_s: float) -> Pin:
        self.expire(now_s)
        pin = self._pins.get(key) or self._create(key, now_s)
        if lease_s is not None:
            pin.lease_s = lease_s
        pin.deadline_s = now_s + pin.lease_s
        self._file(pin)
        return pin

    def _create(self, key: PinKey, now_s: float) -> Pin:
        tenant = key[0]
        if self._num_sessions[tenant] >= MAX_SESSIONS_PER_TENANT:
            message = f"this key has {MAX_SESSIONS_PER_TENANT} sessions already, the most that one may have; end one"
            raise PinBudgetError(message, self._next_end(now_s, tenant))
        pin = self._pins[key] = Pin(key)
        self._num_sessions[tenant] += 1
        return pin

    def _file(self, pin: Pin) -> None:
        """Puts down the deadline of a pin; an older entry of it counts no more."""
        pin.ticket = next(self._tickets)
        heappush(self._deadlines, (pin.deadline_s, pin.ticket, pin))
        if len(self._deadlines) > 2 * len(self._pins) + _MIN_HEAP_TO_SWEEP:
            self._deadlines = [(p.deadline_s, p.ticket, p) for p in self._pins.values()]
            heapify(self._deadlines)

    def _come_due(self, pin: Pin, now_s: float) -> None:
        """Its entry has come to the top: it has been used since, is in use, or has to go."""
        if pin.num_users:
            pin.deadline_s = max(pin.deadline_s, now_s + pin.lease_s)
        if pin.deadline_s > now_s:
            self._file(pin)
        else:
            self._close(pin)

    def _close(self, pin: Pin) -> None:
        self._replace(pin, None)
        pin.is_open = False
        del self._pins[pin.key]
        self._num_sessions[pin.key[0]] -= 1
        if not self._num_sessions[pin.key[0]]:
            del self._num_sessions[pin.key[0]]

    def _next_end(self, now_s: float, tenant: str | None = None) -> float:
        """Seconds until the first lease ends, of all sessions or of a tenant's."""
        ends = [pin.deadline_s for pin in self._pins.values() if tenant in (None, pin.key[0])]
        return max(_LEAST_RETRY_S, min(ends, default=now_s) - now_s)

    # ---- blocks

    def _replace(self, pin: Pin, held: RequestBlocks | None) -> None:
        """Has a pin hold this and nothing else."""
        before, pin.held = pin.held, held
        if before is held:
            return
        pinned = _pinned(pin.key[0], held)
        self._budget.change(pin.pinned, pinned)
        pin.pinned = pinned
        if before is not None:
            self._manager.free(before)
        self.on_change()

    def _refuse_without_room(self, key: PinKey, prompt: RequestBlocks, now_s: float) -> None:
        """Foresees what `keep` will say when the prompt has been computed, if nothing else changes until then."""
        num_tokens = len(prompt.token_ids)
        num_tokens -= num_tokens % self._manager.layout.block_size
        num_blocks = self._manager.num_blocks_to_go_on(num_tokens)
        problem = self._budget.permanent_problem(num_tokens, num_blocks)
        if problem:
            raise InvalidRequestError("session_id", key[1], problem)
        there = self._manager.hold_computed(prompt)
        wanted = _pinned(key[0], there)._replace(num_tokens=num_tokens)
        self._manager.free(there)
        pin = self._pins.get(key)
        before = Pinned(key[0]) if pin is None else pin.pinned
        problem = self._budget.problem(before, wanted, max(0, num_blocks - len(wanted.block_ids)))
        if problem:
            raise PinBudgetError(problem, self._next_end(now_s))


def _state(pin: Pin, now_s: float) -> SessionState:
    return SessionState(
        session_id=pin.key[1],
        lease_s=pin.lease_s,
        expires_in_s=max(0.0, pin.deadline_s - now_s),
        num_pinned_tokens=pin.pinned.num_tokens,
        num_pinned_blocks=len(pin.pinned.block_ids),
        num_live_requests=pin.num_users,
    )


def _pinned(tenant: str, held: RequestBlocks | None) -> Pinned:
    if held is None:
        return Pinned(tenant)
    ids = frozenset(itertools.chain.from_iterable(held.block_ids())) - {NULL_BLOCK_ID}
    return Pinned(tenant, len(held.token_ids), ids)


def _covers(held: RequestBlocks | None, other: RequestBlocks) -> bool:
    """Whether what is held begins with the other prefix. A name says all about the tokens up to it."""
    count = len(other.hashes)
    if held is None or count == 0:
        return count == 0
    return len(held.hashes) >= count and held.hashes[count - 1] == other.hashes[count - 1]
