"""Several proposers as one."""

from collections.abc import Sequence

from octavo.decoding.speculation.proposer import NO_DRAFT, Draft, DraftedRequest, Proposer


class _Members:
    """Tells all members what happens."""

    def __init__(self, members: Sequence[Proposer]) -> None:
        """Raises ValueError if there is none."""
        if not members:
            raise ValueError("a chain needs at least one proposer")
        self._members = tuple(members)

    def add(self, slot: int, request: DraftedRequest) -> None:
        """See `Proposer`."""
        for member in self._members:
            member.add(slot, request)

    def extend(self, slot: int, token_ids: Sequence[int]) -> None:
        """See `Proposer`."""
        for member in self._members:
            member.extend(slot, token_ids)

    def remove(self, slot: int) -> None:
        """See `Proposer`."""
        for member in self._members:
            member.remove(slot)


class FirstDraft(_Members):
    """A `Proposer`: for each slot the first member that has something. The others are not asked about it."""

    def propose(self, slots: Sequence[int], max_tokens: Sequence[int]) -> list[Draft]:
        """See `Proposer`."""
        drafts = [NO_DRAFT] * len(slots)
        open_places = list(range(len(slots)))
        for member in self._members:
            asked = member.propose([slots[i] for i in open_places], [max_tokens[i] for i in open_places])
            for place, draft in zip(open_places, asked, strict=True):
                drafts[place] = draft
            open_places = [place for place in open_places if not drafts[place].token_ids]
            if not open_places:
                break
        return drafts


class BestDraft(_Members):
    """A `Proposer`: for each slot the draft of which most is expected; of equals the earlier member's."""

    def propose(self, slots: Sequence[int], max_tokens: Sequence[int]) -> list[Draft]:
        """See `Proposer`."""
        by_member = [member.propose(slots, max_tokens) for member in self._members]
        return [max(drafts, key=lambda draft: draft.expected) for drafts in zip(*by_member, strict=True)]
