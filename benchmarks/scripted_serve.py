"""`octavo serve` with the scripted executor in place of a model: real processes, sockets, tokenizer and HTTP, and
tokens that cost next to nothing, so that what is measured is the front end.

    python benchmarks/scripted_serve.py smollm2-135m --port 0 --api-server-count 2 ...

takes the flags of `octavo serve`. The model's tokenizer and template are its own; its weights are not read. Tokens
follow from the prompt and the position alone: `next_token`. A step takes OCTAVO_SCRIPTED_STEP_S seconds at least.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from octavo.config import EngineConfig
from octavo.engine.core import EngineCore
from octavo.engine.output import EngineInfo
from octavo.execution.loader import open_checkpoint
from octavo.execution.scripted import ScriptedExecutor
from octavo.hub.files import ModelFiles
from octavo.kv.manager import KVManager
from octavo.kv.spec import AttentionSpec, KVDtype, lay_out
from octavo.request.params import SamplingParams
from octavo.scheduling.plan import StepPlan, StepResult
from octavo.scheduling.scheduler import Scheduler

STEP_VARIABLE = "OCTAVO_SCRIPTED_STEP_S"
FIRST_TOKEN = 16
"""Ids below it are never said: they may be special."""
CORE_PROGRAM = f"""import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import scripted_serve
from octavo.engine import process
process.build_core = scripted_serve.build_core
sys.exit(process.main())
"""


def next_token(prompt_token_ids: Sequence[int], position: int, vocab_size: int) -> int:
    """Token of the answer at a position."""
    return FIRST_TOKEN + (sum(prompt_token_ids) + 7 * position) % (vocab_size - FIRST_TOKEN)


class PacedExecutor(ScriptedExecutor):
    """Takes as long for a step as a model might."""

    step_s = float(os.environ.get(STEP_VARIABLE, "0"))

    def execute(self, plan: StepPlan) -> StepResult:
        """See `ScriptedExecutor.execute`."""
        due = time.monotonic() + self.step_s
        result = super().execute(plan)
        time.sleep(max(0.0, due - time.monotonic()))
        return result


def build_core(config: EngineConfig, files: ModelFiles, clock: Callable[[], float]) -> tuple[EngineCore, EngineInfo]:
    """In place of `octavo.engine.build.build_core`."""
    vocab_size = len(open_checkpoint(files.files).metadata["tokenizer.ggml.tokens"])
    max_model_len = config.model.max_model_len or 8192
    max_num_seqs = config.scheduler.max_num_seqs or 256
    num_blocks = 1 + max_num_seqs * 64
    layout = lay_out(
        (AttentionSpec(num_kv_heads=1, head_dim=8),), num_blocks=num_blocks, block_size=16, dtype=KVDtype.FP16
    )
    planner = Scheduler(config.scheduler, KVManager(layout), max_model_len)

    def script(token_ids: Sequence[int], num_prompt: int, _: SamplingParams) -> int:
        return next_token(token_ids[:num_prompt], len(token_ids) - num_prompt, vocab_size)

    executor = PacedExecutor(layout, vocab_size=vocab_size, script=script, max_in_flight=planner.max_in_flight)
    return EngineCore(planner, executor, clock), EngineInfo(
        model=config.model.model,
        served_model_names=config.model.served_model_name or ("scripted",),
        architecture="none",
        max_model_len=max_model_len,
        vocab_size=vocab_size,
        eos_token_ids=(),
        block_size=16,
        num_blocks=num_blocks,
        kv_bytes_per_token=32,
        weight_bytes=0,
        max_logprobs=20,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=config.scheduler.max_num_batched_tokens or 8192,
        threads=1,
        isa="none",
    )


def main() -> None:
    """The command line."""
    from octavo.cli.main import main as octavo
    from octavo.engine import core_process

    core_process._PROGRAM = CORE_PROGRAM
    sys.argv.insert(1, "serve")
    octavo()


if __name__ == "__main__":
    main()
