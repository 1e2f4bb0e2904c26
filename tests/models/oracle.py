"""Small random models by Hugging Face transformers, and what that computes of them: the other side of the matrix."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from octavo.execution.protocols import Float32
from tests.models.cases import Case

_GAINS = {
    "q_proj": 4.0,
    "q_norm": 4.0,
    "qkv_proj": 2.0,
    "c_attn": 3.0,
    "o_proj": 2.0,
    "embed_tokens": 0.1,
    "wte": 0.1,
    "wpe": 0.1,
}
"""Factors that make attention choose, and outweigh the token itself: with plain noise it averages, a mask that is off
by one changes little, and greedy text repeats one token."""
_FINAL_NORMS = ("model.norm.weight", "transformer.ln_f.weight")
_LOGIT_SPREAD = 3.0
"""Standard deviation of the logits: distributions then have a head and a tail."""


class Oracle(Protocol):
    """A model of a case."""

    folder: Path
    """Its checkpoint."""

    def logprobs(self, token_ids: Sequence[int]) -> Float32:
        """`[tokens, vocabulary]`: what follows each token, in float32."""
        ...


class Transformers:
    """See `Oracle`. torch and transformers are imported here, by those who have them."""

    def __init__(self, case: Case, folder: Path) -> None:
        import torch
        import transformers

        torch.set_num_threads(1)
        transformers.utils.logging.disable_progress_bar()
        config = transformers.AutoConfig.for_model(case.model_type, **case.arguments)
        self._model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        last = _LOGIT_SPREAD / (_GAINS["wte"] if config.tie_word_embeddings else 1.0)
        gains = {**_GAINS, **dict.fromkeys(_FINAL_NORMS, last)}
        for name, parameter in self._model.named_parameters():
            _randomise(name, parameter, next((gain for part, gain in gains.items() if part in name), 1.0))
        self._model.save_pretrained(folder)
        self.folder = folder

    def logprobs(self, token_ids: Sequence[int]) -> Float32:
        """See `Oracle.logprobs`."""
        import torch

        with torch.no_grad():
            logits = self._model(torch.tensor([list(token_ids)])).logits[0]
            found: Float32 = torch.log_softmax(logits.double(), dim=-1).float().numpy()
        return found


def _randomise(name: str, parameter: Any, gain: float) -> None:
    """Noise that depends on the name alone. Norms vary around what lets them multiply by one: 1, or 0 where they add
    one."""
    import torch

    noise = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(parameter.shape, dtype=np.float32)
    with torch.no_grad():
        if parameter.ndim > 1:
            values = noise * (gain / np.sqrt(parameter.shape[-1]))
        else:
            one = 1.0 - parameter[0].item() if name.endswith("weight") else 0.0
            values = gain * (parameter.numpy() + one + 0.2 * noise) - one
        parameter.copy_(torch.from_numpy(values.astype(np.float32)))
