"""OpenVINO GenAI: its continuous batching pipeline on the GGUF file, driven step by step.

Its defaults stand (precision, cache precision, tokens per step), except that prefix caching is off and the cache has a
fixed size.
"""

from importlib.metadata import version
from typing import Any

import numpy as np
import openvino
import openvino_genai
from protocol import Prompts, Run, Stopwatch, serve


class OpenVino:
    """One pipeline."""

    def __init__(self, setting: dict[str, Any]) -> None:
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        scheduler.cache_size = setting.get("cache_gib", 1)
        scheduler.max_num_seqs = 64
        properties = {"INFERENCE_NUM_THREADS": setting["threads"], **setting.get("properties", {})}
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(setting["model"], scheduler, "CPU", properties)
        self._next_id = 0
        self.versions = {name: version(name) for name in ("openvino", "openvino-genai")}
        self.settings = {
            "max_num_batched_tokens": scheduler.max_num_batched_tokens,
            "max_num_seqs": scheduler.max_num_seqs,
            "cache_size": scheduler.cache_size,
            "enable_prefix_caching": scheduler.enable_prefix_caching,
            **properties,
        }

    def run(self, prompts: Prompts, output_len: int) -> Run:
        """Adds all requests, then steps until all are done."""
        config = openvino_genai.GenerationConfig(max_new_tokens=output_len, ignore_eos=True, do_sample=False)
        tensors = [openvino.Tensor(np.array([prompt], np.int64)) for prompt in prompts]
        watch = Stopwatch(len(prompts))
        handles = [self._add(tensor, config) for tensor in tensors]
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            for index, handle in enumerate(handles):
                while handle.can_read():
                    for output in handle.read().values():
                        watch.add(index, output.generated_ids)
        return watch.stop()

    def _add(self, tensor: openvino.Tensor, config: openvino_genai.GenerationConfig) -> Any:
        self._next_id += 1
        return self._pipeline.add_request(self._next_id, tensor, config)


if __name__ == "__main__":
    serve(OpenVino)
