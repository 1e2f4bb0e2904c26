"""How much of each waiting request is in the prefix cache, kept up to date by what is published."""

from itertools import islice

from octavo.kv.hashing import BlockHash
from octavo.kv.manager import KVManager
from octavo.scheduling.request_state import SchedulerRequest

MAX_MOVES_PER_STEP = 500
"""Requests that a step files anew. Where one publication concerns more, those that came first are enough to go on with:
they all stand before the same name, and the others follow in the next steps."""


class PrefixHits:
    """Keeps `num_hit_tokens` of waiting requests.

        names    n0 n1 n2 | n3 n4 ...     a request with a hit of 3 blocks stands before n3: only the publication of
        cached    y  y  y |  n            that name can lengthen its hit

    So each request is filed under one name, and a publication touches those filed under it and nobody else. What is
    published is noted at once and looked at when somebody asks: a step that fills a whole prompt moves each request
    once. Evictions are not followed: a hit may be shorter than noted, but never longer, so it is enough that whoever
    takes the best request checks it (`refresh`).

    Exact for full attention. For groups with windows, which may accept a longer prefix without having a shorter one,
    a hit can be noted shorter than it is until the request is checked.
    """

    def __init__(self, manager: KVManager) -> None:
        """
        Args:
            manager: has this one listen to it from now on.
        """
        self._manager = manager
        self._block_size = manager.layout.block_size
        self._filed: dict[BlockHash, dict[SchedulerRequest, None]] = {}
        """Name -> requests whose hit ends before the block of that name."""
        self._name_of: dict[SchedulerRequest, BlockHash] = {}
        self._published: dict[BlockHash, None] = {}
        """Names in `_filed` that have become findable."""
        self._moves_left = MAX_MOVES_PER_STEP
        self.num_tokens = 0
        """Hit tokens of all that are followed."""
        manager.listen(self._note)

    def __len__(self) -> int:
        """Requests that are filed."""
        return len(self._name_of)

    def follow(self, request: SchedulerRequest) -> None:
        """Sets the hit of a request that begins to wait, and keeps it."""
        self._file(request, self._manager.num_hit_blocks(request.blocks))

    def forget(self, request: SchedulerRequest) -> None:
        """Lets go of a request that waits no longer."""
        self.num_tokens -= request.num_hit_tokens
        name = self._name_of.pop(request, None)
        if name is not None:
            group = self._filed[name]
            del group[request]
            if not group:
                del self._filed[name]

    def refresh(self, request: SchedulerRequest) -> bool:
        """Checks one request against the cache; True if its hit has changed."""
        before = request.num_hit_tokens
        count = before // self._block_size
        if count and self._manager.is_longest_hit(request.blocks, count):
            return False
        self.forget(request)
        self.follow(request)
        return request.num_hit_tokens != before

    def begin_step(self) -> None:
        """Lets `lengthened` file as many requests anew as one step may."""
        self._moves_left = MAX_MOVES_PER_STEP

    def lengthened(self) -> list[SchedulerRequest]:
        """Requests that were filed under what has been published since the last call; their hits are set."""
        moved: list[SchedulerRequest] = []
        while self._published and self._moves_left:
            name = next(iter(self._published))
            group = list(islice(self._filed.get(name, ()), self._moves_left))
            if len(group) == len(self._filed.get(name, ())):
                del self._published[name]
            self._move(group)
            self._moves_left -= len(group)
            moved += group
        return moved

    def _note(self, name: BlockHash) -> None:
        if name in self._filed:
            self._published[name] = None

    def _move(self, group: list[SchedulerRequest]) -> None:
        """Files requests of one name anew. They have all before that name in common, and mostly more."""
        count = 0
        for request in group:
            self.forget(request)
            if not (count and self._manager.is_longest_hit(request.blocks, count)):
                count = self._manager.num_hit_blocks(request.blocks)
            self._file(request, count)

    def _file(self, request: SchedulerRequest, num_hit_blocks: int) -> None:
        request.num_hit_tokens = num_hit_blocks * self._block_size
        self.num_tokens += request.num_hit_tokens
        name = self._manager.hit_name(request.blocks, num_hit_blocks)
        if name is not None:
            self._name_of[request] = name
            self._filed.setdefault(name, {})[request] = None
