"""Steps: the chunks of a prompt, what shares a step's token budget, and the sizes that graphs are captured for."""

from bisect import bisect_left

from octavo.errors import ConfigError

_CAPTURE_LIMIT_TOKENS = 512
"""Graphs of larger steps save little: their launches are hidden behind arithmetic."""


def chunk_sizes(prompt_tokens: int, most_tokens: int, num_decodes: int = 0) -> tuple[int, ...]:
    """Tokens of a prompt that each step runs beside requests that decode one token each; they come first.

        step 1            step 2            last step
        | d | chunk      || d | chunk      || d | rest |
        <- most_tokens -->

    Raises:
        ConfigError: the decodes leave nothing of the budget.
    """
    room = most_tokens - num_decodes
    if room < 1:
        raise ConfigError(
            "most_tokens", most_tokens, f"{num_decodes} decoding requests leave no room for a prompt; allow more"
        )
    full, rest = divmod(prompt_tokens, room)
    return (room,) * full + ((rest,) if rest else ())


def step_tokens(num_decodes: int, prompt_tokens: int) -> int:
    """Of a step that mixes decodes and a chunk."""
    return num_decodes + prompt_tokens


def budget_share(num_tokens: int, budget_tokens: int) -> float:
    """What of a step's budget is used."""
    return num_tokens / budget_tokens


def num_decodes_after(num_decodes: int, num_prompts: int = 1) -> int:
    """Requests that decode once prompts have been read."""
    return num_decodes + num_prompts


def capture_limit_tokens(max_num_seqs: int) -> int:
    """Largest step that a graph is captured for: two tokens of every request."""
    return min(2 * max_num_seqs, _CAPTURE_LIMIT_TOKENS)


def capture_sizes(limit_tokens: int) -> tuple[int, ...]:
    """Steps that graphs are captured for: 1, 2, 4, then by 8 up to 256, then by 16."""
    sizes = (1, 2, 4, *range(8, 256, 8), *range(256, limit_tokens + 1, 16))
    return tuple(size for size in sizes if size <= limit_tokens)


def capture_bucket(num_tokens: int, limit_tokens: int) -> int | None:
    """The captured size that a step is filled up to; None: it is larger than all of them and runs without graph."""
    sizes = capture_sizes(limit_tokens)
    place = bisect_left(sizes, num_tokens)
    return sizes[place] if place < len(sizes) else None


def num_graph_segments(num_layers: int) -> int:
    """Pieces between attentions, if these stay outside the graphs."""
    return num_layers + 1


def launch_share(num_launches: int, launch_s: float, step_s: float) -> float:
    """What graphs can save at most: the time that launching kernels one by one takes, of a step that waits for it."""
    return num_launches * launch_s / step_s
