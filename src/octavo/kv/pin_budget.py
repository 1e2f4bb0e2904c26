"""How much of the KV memory sessions may hold between their requests, and what is said to who wants more."""

from collections import Counter
from typing import NamedTuple

from octavo.errors import InvalidRequestError
from octavo.kv.manager import KVManager


class Pinned(NamedTuple):
    """What one session holds, or wants to hold."""

    tenant: str
    num_tokens: int = 0
    block_ids: frozenset[int] = frozenset()
    """Over all groups."""


class PinBudget:
    """Counts pinned blocks for all sessions, and pinned tokens by tenant.

    Liveness: pins never hold so many blocks that no longest request fits beside them, so whoever runs alone still runs
    to its end.
    """

    def __init__(self, manager: KVManager, max_model_len: int, max_share: float, max_tokens_per_tenant: int) -> None:
        self._max_share = max_share
        self._max_tokens = max_tokens_per_tenant
        self._max_model_len = max_model_len
        self._block_size = manager.layout.block_size
        self._keeps_prefixes = manager.keeps_prefixes
        self._pool_size = manager.num_blocks
        self._longest = manager.blocks_per_request(max_model_len - 1)  # the last token is never run
        room = min(int(max_share * self._pool_size), self._pool_size - self._longest)
        self.max_blocks = max(0, room) if self._keeps_prefixes else 0
        """For all sessions together; a block that several hold counts once."""
        self._num_holders: Counter[int] = Counter()
        """Block id -> sessions that hold it."""
        self._num_tokens: Counter[str] = Counter()

    @property
    def num_blocks(self) -> int:
        """Blocks that are pinned."""
        return len(self._num_holders)

    def change(self, before: Pinned, after: Pinned) -> None:
        """A session holds other blocks now."""
        self._num_holders.update(after.block_ids)
        for block in before.block_ids:
            self._num_holders[block] -= 1
            if not self._num_holders[block]:
                del self._num_holders[block]
        self._num_tokens[after.tenant] += after.num_tokens - before.num_tokens
        if not self._num_tokens[after.tenant]:
            del self._num_tokens[after.tenant]

    def problem(self, before: Pinned, wanted: Pinned, num_absent: int = 0) -> str:
        """Why a session cannot hold something else than it does; empty if it can.

        Args:
            num_absent: wanted blocks that are not in the KV memory yet, beside those of `wanted`.
        """
        own = {block for block in before.block_ids if self._num_holders[block] == 1}
        num_new = num_absent + sum(block in own or block not in self._num_holders for block in wanted.block_ids)
        num_tokens_of_others = self._num_tokens[wanted.tenant] - before.num_tokens
        return self._too_many_blocks(wanted.num_tokens, num_new, self.num_blocks - len(own)) or self._too_many_tokens(
            wanted.num_tokens, num_tokens_of_others
        )

    def permanent_problem(self, num_tokens: int, num_blocks: int) -> str:
        """Why so much could not be held if nobody held anything; empty if it could."""
        return self._too_many_blocks(num_tokens, num_blocks, 0) or self._too_many_tokens(num_tokens, 0)

    def refuse_if_none(self, session_id: str) -> None:
        """
        Raises:
            InvalidRequestError: nothing can ever be held.
        """
        if not self._keeps_prefixes:
            raise InvalidRequestError("session_id", session_id, "prefix caching is off, so no prefix can be held")
        if not self.max_blocks:
            fix = "give the engine more KV memory, a smaller max_model_len or a larger max_pinned_share"
            raise InvalidRequestError("session_id", session_id, f"sessions may hold {self._arithmetic()}; {fix}")

    def check(self, pinned: list[Pinned]) -> None:
        """Verifies that what sessions hold is what is counted, and no more than may be.

        Raises:
            AssertionError: naming the law.
        """
        tokens: Counter[str] = Counter()
        for one in pinned:
            tokens[one.tenant] += one.num_tokens
        holders = Counter(block for one in pinned for block in one.block_ids)
        if holders != self._num_holders or len(holders) > self.max_blocks:
            raise AssertionError(f"pinned blocks are counted and within budget: {holders}, {self._num_holders}")
        most = max(tokens.values(), default=0)
        if +tokens != self._num_tokens or most > (self._max_tokens or most):
            raise AssertionError(f"pinned tokens are counted by tenant: {tokens}, {self._num_tokens}")

    def _too_many_blocks(self, num_tokens: int, wanted: int, used: int) -> str:
        free = self.max_blocks - used
        if wanted <= free:
            return ""
        takes = f"holding {num_tokens} tokens takes {wanted} KV blocks of {self._block_size} tokens"
        larger = "start with a larger max_pinned_share or more KV memory"
        if not used:
            return f"{takes}, and all sessions together may hold {self._arithmetic()}; {larger}"
        return (
            f"{takes} beside those that other sessions hold, and {free} are free of {self._arithmetic()}; "
            f"end a session, wait until a lease ends, or {larger}"
        )

    def _too_many_tokens(self, num_tokens: int, held: int) -> str:
        if not self._max_tokens or held + num_tokens <= self._max_tokens:
            return ""
        limit = f"{self._max_tokens} that one key may hold (max_pinned_tokens_per_key)"
        if not held:
            return f"holding {num_tokens} tokens takes more than the {limit}; start with a larger one"
        return (
            f"holding {num_tokens} tokens takes more than the {self._max_tokens - held} that are free of the {limit}; "
            "end a session, or wait until a lease ends"
        )

    def _arithmetic(self) -> str:
        return (
            f"{self.max_blocks} blocks (max_pinned_share={self._max_share:g} of {self._pool_size}, less if need be to "
            f"leave the {self._longest} that one request of max_model_len={self._max_model_len} tokens takes)"
        )
