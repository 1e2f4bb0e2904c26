"""Control tokens that end a generation, known by their spelling.

Files name one end-of-text id, at best three; chat models end their turns with others. Only tokens that the
file types as control count: `</s>` is an ordinary HTML tag in some vocabularies.
"""

from collections.abc import Callable, Iterable

END_SPELLINGS = frozenset(
    (
        "</s>",
        "<eos>",
        "<EOT>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|eot|>",
        "<|eom|>",
        "<|end|>",
        "<|im_end|>",
        "<|end_of_text|>",
        "<|endoftext|>",
        "<|return|>",
        "<|call|>",
        "<end_of_turn>",
        "<turn|>",
        "<end_of_utterance>",
        "<｜end▁of▁sentence｜>",
    )
)

_HARMONY_ENDS = frozenset(("<|return|>", "<|call|>"))
_HARMONY_MESSAGE_END = "<|end|>"


def end_ids(named: Iterable[int | None], control_ids: Iterable[int], spelling: Callable[[int], str]) -> tuple[int, ...]:
    """Every id that ends a generation: those the file names, in its order, then control tokens spelled like
    one.

    Where `<|return|>` and `<|call|>` exist (OpenAI's Harmony format), `<|end|>` only ends a message within a
    generation.
    """
    by_spelling = {spelling(i): i for i in control_ids if spelling(i) in END_SPELLINGS}
    if by_spelling.keys() >= _HARMONY_ENDS:
        by_spelling.pop(_HARMONY_MESSAGE_END, None)
    ordered = [i for i in named if i is not None] + sorted(by_spelling.values())
    return tuple(dict.fromkeys(ordered))
