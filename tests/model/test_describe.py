"""The listing of a program."""

from octavo.model.cost import num_parameters
from octavo.model.describe import describe
from octavo.model.registry import define_model
from tests.model.headers import LAYERS, gguf, hf


def test_the_listing_holds_sizes_state_and_every_op() -> None:
    program = define_model(gguf("gemma3", final_logit_softcapping=30.0)).program
    lines = describe(program).splitlines()
    text = "\n".join(lines)
    assert f"parameters         {num_parameters(program):,}" in text
    assert f"KV per token       {LAYERS * 64:,} values, {LAYERS * 128:,} bytes at 2 bytes each" in text
    assert "cache layers       6 of 2 x 16 window 32, 1 of 2 x 16 full" in text
    numbered = [line for line in lines if line.strip().split(" ")[0].isdigit()]
    assert len(numbered) == len(program.ops)


def test_ops_read_like_arithmetic() -> None:
    text = describe(define_model(hf("qwen2", tie_word_embeddings=False)).program)
    for line in (
        "x = embed[50, 64][token ids]\n",
        "q = h @ layers.0.attn.q[64, 64].T + layers.0.attn.q.bias[64]  (column)",
        "h = rms_norm(x, eps 1e-05) * layers.0.attn.norm[64]",
        "k = rotate(k: 2 heads of 16, rope 0)",
        "cache 6 <- k, v",
        "mixed = attention(q, cache 6: 4 heads over 2, scale 0.25)",
        "gate = silu(gate) * up",
        "rows = x[wanted rows]",
        "logits = hidden @ output[50, 64].T",
    ):
        assert line in text
    gemma3 = describe(define_model(gguf("gemma3", final_logit_softcapping=30.0)).program)
    for part in ("[token ids] * 8", "q in 4 groups", "scale 0.25, window 32)", "embed[50, 64].T, softcap 30"):
        assert part in gemma3
