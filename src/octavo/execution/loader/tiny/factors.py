"""Numbers that some architectures multiply by or cap with: their keys in either format, and a tiny model's values."""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """What the formats call a number."""

    gguf: str
    hf: str


FACTORS: dict[str, dict[Key, float]] = {
    "granite": {
        Key("embedding_scale", "embedding_multiplier"): 3.0,
        Key("attention.scale", "attention_multiplier"): 0.25,
        Key("residual_scale", "residual_multiplier"): 0.75,
        Key("logit_scale", "logits_scaling"): 1.25,
    },
    "gemma2": {
        Key("attn_logit_softcapping", "attn_logit_softcapping"): 6.0,
        Key("final_logit_softcapping", "final_logit_softcapping"): 9.0,
    },
}
"""Caps are low, so that scores and logits of a tiny model reach them."""
