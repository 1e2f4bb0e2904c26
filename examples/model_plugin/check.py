"""Compares the plug-in with transformers: the same random model in both, logprobs of the same text side by side.
With --listing it prints the programs instead."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from octavo import LLM, SamplingParams
from octavo.execution.loader import open_checkpoint
from octavo.execution.weights import load_model
from octavo.model.describe import describe

TINY = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
CASES: dict[str, dict[str, object]] = {
    "plain": {},
    "parallel, biases on q, k and v": {"use_parallel_residual": True, "use_qkv_bias": True},
}
PROMPT = np.random.default_rng(0).integers(3, 320, 60).tolist()


# --- compare
def make(folder: Path, **config: object) -> Any:
    """A model of random weights, large enough that every part of it counts, and its checkpoint in the folder."""
    torch.manual_seed(0)
    made = transformers.AutoConfig.for_model("stablelm", **TINY, **config)
    auto: Any = transformers.AutoModelForCausalLM  # it has no types
    model = auto.from_config(made, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    return model


def expected(model: Any) -> Any:
    """[tokens, vocabulary] logprobs by transformers of what follows each token of the prompt."""
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT])).logits[0]
    return torch.log_softmax(logits, dim=-1).numpy()


def difference(folder: Path, wanted: np.ndarray) -> float:
    """The largest difference of a logprob, over all tokens of the prompt and the 20 most probable at each."""
    with LLM(str(folder), kv_cache_dtype="fp32", skip_tokenizer_init=True, threads=1) as llm:
        params = SamplingParams(max_tokens=1, prompt_logprobs=20, detokenize=False)
        (output,) = llm.generate([PROMPT], params)
    rows = enumerate(output.prompt_logprobs or ())
    errors = [np.abs(wanted[i - 1][row.token_ids] - row.logprobs).max() for i, row in rows if row is not None]
    assert len(errors) == len(PROMPT) - 1
    return float(max(errors))


def listing(folder: Path) -> str:
    """The program that the plug-in makes of a checkpoint, op by op."""
    program, _ = load_model(open_checkpoint([folder / "model.safetensors"]))
    return describe(program)


def main() -> None:
    for name, config in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            wanted = expected(make(Path(folder), **config))
            found = listing(Path(folder)) if "--listing" in sys.argv else f"{difference(Path(folder), wanted):.1e}"
            print(f"{name}: {found}")


if __name__ == "__main__":
    main()
