"""CPU time of structured output: making a vocabulary known, compiling, filling masks; and what a step costs more.

Usage: python benchmarks/structured.py [MODEL ...]             models that `octavo pull` has fetched
       python benchmarks/structured.py --steps [MODEL ...]     steps with shapes against steps without, in turn, on one
                                                               thread: processor time of the whole process
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from octavo import LLM, SamplingParams
from octavo.decoding.structured.backend import mask_words
from octavo.decoding.structured.llguidance_backend import LLGuidanceBackend
from octavo.decoding.structured.vocabulary import grammar_vocabulary
from octavo.execution.loader.gguf import open_gguf
from octavo.hub import find_cached
from octavo.request.structured import StructuredKind, StructuredSpec
from octavo.text.tokenizer import Tokenizer, from_gguf

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
ANSWER = '{"name": "Alice is a very good friend of mine", "age": 31}'
MANY = {"enum": [f"value {i * 7919} {'x' * 30}" for i in range(18_000)]}


def cpu_s(call: Callable[[], object]) -> float:
    """Seconds of this thread. Compilations run in it alone."""
    start = time.thread_time()
    call()
    return time.thread_time() - start


def schema_spec(schema: object) -> StructuredSpec:
    return StructuredSpec(kind=StructuredKind.JSON_SCHEMA, source=json.dumps(schema))


def fill_times_us(backend: LLGuidanceBackend, tokenizer: Tokenizer) -> list[float]:
    """For each token of an answer, the time of the mask before it."""
    matcher = backend.compile(schema_spec(PERSON)).matcher(tokenizer.eos_ids)
    row, times = np.zeros(mask_words(tokenizer.vocab_size), np.int32), []
    for token_id in tokenizer.encode(ANSWER, add_special=False):
        times.append(cpu_s(lambda: matcher.fill_mask(row)) * 1e6)
        if not matcher.accept(token_id):
            raise SystemExit(f"token {token_id} of the answer is not allowed")
    return times


SHAPES = {
    "any text": StructuredSpec(kind=StructuredKind.REGEX, source="[ -~\\n]*"),
    "a JSON list of texts": schema_spec({"type": "array", "items": {"type": "string"}, "minItems": 500}),
}
NUM_TOKENS, REPEATS = 40, 5


def step_s(llm: LLM, num_requests: int, spec: StructuredSpec | None) -> float:
    """Seconds of processor time of a decoding step for so many requests that all have this shape, that of the thread
    which fills masks and of making text included."""
    params = SamplingParams(max_tokens=NUM_TOKENS, ignore_eos=True, seed=1, structured_outputs=spec)
    steps, start = llm.load().counters["steps"], time.process_time()
    llm.generate([[i + 1] for i in range(num_requests)], params)
    return (time.process_time() - start) / (llm.load().counters["steps"] - steps)


def report_steps(alias: str) -> None:
    """Ratios of a step with a shape to one without, runs in turn: median, least and most."""
    for num_requests in (1, 16):
        with LLM(alias, max_model_len=512, max_num_seqs=16, threads=1, speculation="off") as llm:
            for name, spec in SHAPES.items():
                step_s(llm, num_requests, spec)  # the grammar is compiled, and what it meets has been met
                runs = [(step_s(llm, num_requests, None), step_s(llm, num_requests, spec)) for _ in range(REPEATS)]
                ratios = sorted(shaped / free for free, shaped in runs)
                free_ms = 1e3 * float(np.median([free for free, _ in runs]))
                print(
                    f"{alias}, {num_requests} requests, {name}: {free_ms:.2f} ms without; with it "
                    f"x {ratios[REPEATS // 2]:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})",
                    flush=True,
                )


def report(alias: str) -> None:
    path = find_cached(alias)
    if path is None:
        raise SystemExit(f"{alias} is not here; fetch it with: octavo pull {alias}")
    tokenizer = from_gguf(dict(open_gguf([path]).metadata))
    vocabulary = grammar_vocabulary(tokenizer)
    backend = LLGuidanceBackend(vocabulary)
    known = cpu_s(backend.prepare)
    small, large = (cpu_s(partial(backend.compile, schema_spec(s))) for s in (PERSON, MANY))
    times = fill_times_us(backend, tokenizer)
    print(
        f"{alias}: {vocabulary.size} tokens; vocabulary {known:.2f} s; compile {1e3 * small:.1f} ms, "
        f"an enum of {len(MANY['enum'])} {large:.2f} s; "
        f"mask median {np.median(times):.0f} us, worst {max(times):.0f} us"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["smollm2-135m", "qwen2.5-coder-0.5b", "gemma3-270m"])
    parser.add_argument("--steps", action="store_true")
    arguments = parser.parse_args()
    for alias in arguments.models:
        (report_steps if arguments.steps else report)(alias)


if __name__ == "__main__":
    main()
