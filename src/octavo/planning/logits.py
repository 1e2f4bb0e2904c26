"""Behind the last layer: logits, grammar bitmasks, penalty counts."""

_MASK_WORD_BITS = 32
_COUNT_BYTES = 8


def logits_row_bytes(vocab_size: int, value_bytes: int = 4) -> int:
    """Of one row."""
    return vocab_size * value_bytes


def bitmask_words(vocab_size: int) -> int:
    """32-bit words of one row: a bit for each token."""
    return -(-vocab_size // _MASK_WORD_BITS)


def bitmask_row_bytes(vocab_size: int) -> int:
    """Of one row."""
    return bitmask_words(vocab_size) * _MASK_WORD_BITS // 8


def bitmask_rows(max_num_seqs: int, num_drafts: int) -> int:
    """Rows that verifying needs: one for each draft of each request, and one behind them."""
    return max_num_seqs * (1 + num_drafts)


def penalty_bytes(num_requests: int, vocab_size: int) -> int:
    """Of two dense histograms of 64-bit counts, of prompts and of answers, with one bin for padding: how penalties are
    kept where they are applied to whole batches."""
    return 2 * num_requests * (vocab_size + 1) * _COUNT_BYTES
