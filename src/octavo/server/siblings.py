"""What an API process needs of the other API processes of its server."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from octavo.server import metric_totals
from octavo.server.metric_totals import Figures
from octavo.server.peer_link import PeerLink, Word

PATIENCE_S = 1.0
"""How long one of them may take to say what it has counted; after that what it said last counts."""


class Siblings(Protocol):
    """The API processes of a server, this one included."""

    async def totals(self, own: Sequence[Figures]) -> list[Figures]:
        """What all have counted, given what this one has. Never less than before for want of an answer."""
        ...


class Alone:
    """A server of one process."""

    async def totals(self, own: Sequence[Figures]) -> list[Figures]:
        """See `Siblings.totals`."""
        return list(own)


class Elders:
    """Seen from a process that another one has started: that one knows all others."""

    def __init__(self, parent: PeerLink) -> None:
        self._parent = parent
        self._others: list[Figures] = []
        """What the others had counted at the last time, for when the parent does not answer."""

    async def totals(self, own: Sequence[Figures]) -> list[Figures]:
        """See `Siblings.totals`."""
        try:
            asked = self._parent.ask(Word.TOTALS, metric_totals.encode(own))
            async with asyncio.timeout(2 * PATIENCE_S):
                self._others = metric_totals.decode(await asked)
        except TimeoutError:
            pass  # it is busy
        return metric_totals.added_up([own, self._others])
