"""How much of a context the rows of a step see: what attention costs, in whatever room it is counted."""


def visible_pairs(num_tokens: int, context: int, reach: int | None) -> int:
    """(query, key) pairs of the places `[context - num_tokens, context)`: place p sees min(p + 1, reach) keys.

    place      context - num_tokens ........ context - 1
    keys seen  context - num_tokens + 1 .... context        each cut off at `reach`
    """
    first, last = context - num_tokens + 1, context
    if reach is None or last <= reach:
        return (first + last) * num_tokens // 2
    num_growing = max(0, reach - first)
    return (first + first + num_growing - 1) * num_growing // 2 + (num_tokens - num_growing) * reach
