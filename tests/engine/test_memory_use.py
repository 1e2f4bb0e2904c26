"""The ledger against the system's own count: an engine whose blocks and buffers have all been used."""

import json
import subprocess
import sys

import pytest

from tests.real_models import model_path

USE = """
import json, re, sys
from octavo import LLM, SamplingParams
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
settings = {"threads": 1, "num_kv_blocks": 129, "max_num_seqs": 8, "max_num_batched_tokens": 1024, "max_memory": "1GiB"}
settings["speculation"] = "off"  # what look-ups keep grows with thousands of answers
with LLM(sys.argv[1], **settings) as llm:
    prompt = [50 + i % 1000 for i in range(llm.info.max_model_len - 8)]
    llm.generate([prompt], SamplingParams(temperature=0, max_tokens=4, ignore_eos=True))
    print(json.dumps([peak(), llm.info.memory.total_bytes, llm.info.memory.kv_bytes]))
"""
TOLERANCE = 0.3
"""Of the total: the process is foretold with room for what it has not needed here, and with pages of the model's file
that the system has mapped around those that were read, which are given back before the peak."""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_is_foretold_is_what_is_used() -> None:
    command = [sys.executable, "-c", USE, str(model_path("smollm2-135m"))]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    peak, foretold, kv = json.loads(told)
    assert kv > 40e6
    assert (1 - TOLERANCE) * foretold < peak <= foretold
