"""llama.cpp through llama-cpp-python's low-level batch API, so that it batches too.

All prompts of an order are prefilled together, then decoded together, one token each per call: the best batching that
equal lengths allow. Greedy sampling by llama.cpp's own sampler. The setting's `extra_buffers` says whether weights may
be repacked, which is faster; a build whose AMX the machine's hypervisor does not allow crashes with them.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp as lib
from protocol import Prompts, Run, Stopwatch, serve

UBATCH = 512
MAX_BATCH = 2048


class Llama:
    """One model with a context for all sequences."""

    def __init__(self, setting: dict[str, Any]) -> None:
        lib.llama_backend_init()
        self._log = lib.llama_log_callback(lambda level, text, data: None)
        lib.llama_log_set(self._log, ctypes.c_void_p(0))
        model_params = lib.llama_model_default_params()
        model_params.use_extra_bufts = setting["extra_buffers"]
        self._model = lib.llama_model_load_from_file(setting["model"].encode(), model_params)
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_seq_max = setting["max_seqs"] * setting["max_len"], setting["max_seqs"]
        params.n_batch, params.n_ubatch = MAX_BATCH, UBATCH
        params.n_threads = params.n_threads_batch = setting["threads"]
        self._context = lib.llama_init_from_model(self._model, params)
        if not self._model or not self._context:
            raise RuntimeError(f"llama.cpp cannot load {setting['model']}")
        self._sampler = lib.llama_sampler_init_greedy()
        self._batch = lib.llama_batch_init(MAX_BATCH, 0, 1)
        self.versions = {"llama-cpp-python": lib.__version__}
        system = lib.llama_print_system_info().decode().replace(" | ", ", ").strip(" ,")
        self.settings = {"extra_buffers": setting["extra_buffers"], "system": system}

    def run(self, prompts: Prompts, output_len: int) -> Run:
        """One prefill, then steps."""
        watch = Stopwatch(len(prompts))
        lib.llama_memory_clear(lib.llama_get_memory(self._context), True)
        tokens = self._prefill(prompts)
        for step in range(output_len):
            for index, token in enumerate(tokens):
                watch.add(index, [token])
            if step < output_len - 1:
                tokens = self._step(tokens, [len(prompt) + step for prompt in prompts])
        return watch.stop()

    def _prefill(self, prompts: Prompts) -> list[int]:
        rows = [
            (token, position, sequence, position == len(prompt) - 1)
            for sequence, prompt in enumerate(prompts)
            for position, token in enumerate(prompt)
        ]
        first: dict[int, int] = {}
        for start in range(0, len(rows), MAX_BATCH):
            part = rows[start : start + MAX_BATCH]
            self._decode(part)
            first |= {row[2]: self._sample(index) for index, row in enumerate(part) if row[3]}
        return [first[sequence] for sequence in range(len(prompts))]

    def _step(self, tokens: Sequence[int], positions: Sequence[int]) -> list[int]:
        rows = zip(tokens, positions, range(len(tokens)), strict=True)
        self._decode([(*row, True) for row in rows])
        return [self._sample(index) for index in range(len(tokens))]

    def _decode(self, rows: Sequence[tuple[int, int, int, bool]]) -> None:
        batch = self._batch
        batch.n_tokens = len(rows)
        for index, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[index] = token
            batch.pos[index] = position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = sequence
            batch.logits[index] = wanted
        status = lib.llama_decode(self._context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode failed with {status}")

    def _sample(self, row: int) -> int:
        return int(lib.llama_sampler_sample(self._sampler, self._context, row))


if __name__ == "__main__":
    serve(Llama)
