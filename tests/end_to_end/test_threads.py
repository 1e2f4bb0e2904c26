"""Threads and instruction sets of the CPU, many or few: the same tokens, and a start that names what is used."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from octavo import LLM, SamplingParams
from octavo._native import available_isas

PROMPTS = ["hello world", "The cache of the other thread " * 4, "x"]
PARAMS = SamplingParams(temperature=1.0, seed=9, max_tokens=10, ignore_eos=True, logprobs=2)
SETTINGS: dict[str, object] = {"max_model_len": 128, "num_kv_blocks": 40}


def answers(model: str, **settings: object) -> list[object]:
    with LLM(model, **SETTINGS, **settings) as llm:
        outputs = [output.outputs[0] for output in llm.generate(PROMPTS, PARAMS)]
    return [
        (one.token_ids, [(row.token_ids, row.logprobs) for row in one.logprobs or ()], one.finish_reason)
        for one in outputs
    ]


@pytest.mark.parametrize("isa", available_isas())
def test_any_number_of_threads_on_every_instruction_set(tiny_file: str, isa: str) -> None:
    """Among them more than there are cores, than a step has rows, and than one cache line of flags holds."""
    expected = answers(tiny_file, threads=1, isa="portable")
    for threads in (1, 2, 3, 16, 17, 64):
        assert answers(tiny_file, threads=threads, isa=isa) == expected, f"{threads} threads, {isa}"


@pytest.mark.parametrize("threads", [None, 3])
def test_a_process_bound_to_one_core(tiny_file: str, threads: int | None, tmp_path: Path) -> None:
    """It takes one thread by itself, more where they are asked for, and says so; the tokens are the same."""
    given = {} if threads is None else {"threads": threads}
    program = (
        "import json, os\n"
        "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        "from octavo import LLM, SamplingParams\n"
        f"with LLM({tiny_file!r}, **{SETTINGS | given!r}) as llm:\n"
        "    params = SamplingParams(temperature=1.0, seed=9, max_tokens=10, ignore_eos=True)\n"
        f"    ids = [list(o.outputs[0].token_ids) for o in llm.generate({PROMPTS!r}, params)]\n"
        "    print(json.dumps([ids, llm.info.describe()]))\n"
    )
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=here, cwd=tmp_path)
    ids, told = json.loads(done.stdout.splitlines()[-1])
    assert ids == [list(answer[0]) for answer in answers(tiny_file, threads=1)]  # type: ignore[index]
    assert told.split(": ")[1].startswith(f"{threads or 1} thread")
    assert any(f"({name})" in told for name in available_isas()), told
