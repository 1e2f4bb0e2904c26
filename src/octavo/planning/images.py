"""Images in a prompt: placeholder tokens, what the encoder hands over, and what they then cost in KV."""


def image_tokens(side_px: int, patch_px: int, merge: int = 1) -> int:
    """Of a square image: its patches, `merge` by `merge` of them in one token."""
    return (side_px // (patch_px * merge)) ** 2


def encoder_output_bytes(num_tokens: int, hidden_size: int, value_bytes: int = 2) -> int:
    """Rows of the width of the language model."""
    return num_tokens * hidden_size * value_bytes


def kv_per_encoder_byte(kv_bytes_per_token: float, encoder_bytes_per_token: float) -> float:
    """KV that an image takes for each byte that the encoder hands over."""
    return kv_bytes_per_token / encoder_bytes_per_token


def encoder_budget_tokens(step_budget_tokens: int, largest_item_tokens: int = 0) -> int:
    """Image tokens that a step may encode: as many as it runs, and never less than one item."""
    return max(step_budget_tokens, largest_item_tokens)
