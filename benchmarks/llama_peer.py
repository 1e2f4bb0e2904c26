"""Runs token ids through llama.cpp's low-level batch API; started by first_light.py in llama-cpp-python's environment.

Reads one JSON order from stdin: {"model": path, "prompts": [[ids]], "output_len": n, "concurrency": c, "threads": t,
"extra_buffers": bool}. Extra buffers hold repacked weights, which is faster; a build whose AMX the machine's hypervisor
does not allow crashes with them.
Writes one JSON object to stdout: elapsed_s, prefill_s, decode_step_s (means over the waves), versions.
All requests of a wave are prefilled together, then decoded together, one token each per call: the best batching that
equal lengths allow. Greedy sampling by llama.cpp's own sampler; exactly n tokens each.
"""

import ctypes
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import llama_cpp as lib

UBATCH = 512
MAX_BATCH = 2048


class Llama:
    """One model with a context for `concurrency` sequences of `length` tokens."""

    def __init__(self, path: str, concurrency: int, length: int, threads: int, extra_buffers: bool) -> None:
        lib.llama_backend_init()
        self._log = lib.llama_log_callback(lambda level, text, data: None)
        lib.llama_log_set(self._log, ctypes.c_void_p(0))
        model_params = lib.llama_model_default_params()
        model_params.use_extra_bufts = extra_buffers
        self._model = lib.llama_model_load_from_file(path.encode(), model_params)
        params = lib.llama_context_default_params()
        params.n_ctx = concurrency * (length + 32)
        params.n_batch, params.n_ubatch, params.n_seq_max = MAX_BATCH, UBATCH, concurrency
        params.n_threads = params.n_threads_batch = threads
        self._context = lib.llama_init_from_model(self._model, params)
        if not self._model or not self._context:
            raise SystemExit(f"llama.cpp cannot load {path} for {concurrency} sequences of {length} tokens")
        self._sampler = lib.llama_sampler_init_greedy()
        self._batch = lib.llama_batch_init(MAX_BATCH, 0, 1)

    def clear(self) -> None:
        """Forgets all sequences."""
        lib.llama_memory_clear(lib.llama_get_memory(self._context), True)

    def prefill(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """Runs whole prompts; returns the first token of each."""
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

    def step(self, tokens: Sequence[int], position: int) -> list[int]:
        """Runs one token per sequence at `position`; returns the next ones."""
        self._decode([(token, position, sequence, True) for sequence, token in enumerate(tokens)])
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
            raise SystemExit(f"llama_decode failed with {status}")

    def _sample(self, row: int) -> int:
        return int(lib.llama_sampler_sample(self._sampler, self._context, row))


def run_wave(llama: Llama, prompts: Sequence[Sequence[int]], output_len: int) -> tuple[float, float]:
    """Seconds of prefill and seconds per decoding step of one wave of equally long prompts."""
    llama.clear()
    begin = time.perf_counter()
    tokens = llama.prefill(prompts)
    prefilled = time.perf_counter()
    for step in range(output_len - 1):
        tokens = llama.step(tokens, len(prompts[0]) + step)
    return prefilled - begin, (time.perf_counter() - prefilled) / max(1, output_len - 1)


def main(order: dict[str, Any]) -> dict[str, Any]:
    """Runs an order after a short warm-up."""
    prompts, output_len, concurrency = order["prompts"], order["output_len"], order["concurrency"]
    length = len(prompts[0]) + output_len
    llama = Llama(order["model"], concurrency, length, order["threads"], order["extra_buffers"])
    run_wave(llama, prompts[:concurrency], min(4, output_len))
    waves = [prompts[start : start + concurrency] for start in range(0, len(prompts), concurrency)]
    begin = time.perf_counter()
    times = [run_wave(llama, wave, output_len) for wave in waves]
    elapsed = time.perf_counter() - begin
    return {
        "elapsed_s": elapsed,
        "prefill_s": sum(prefill for prefill, _ in times) / len(times),
        "decode_step_s": sum(step for _, step in times) / len(times),
        "versions": {"llama-cpp-python": lib.__version__, "system": lib.llama_print_system_info().decode()},
    }


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))
