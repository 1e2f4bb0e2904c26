"""Loading a model takes the memory of its weights, not of its file as well."""

import subprocess
import sys

import pytest

from tests.real_models import model_path

LOAD = """
import re, sys
from octavo import LLM
def kib(name):
    return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1])
import octavo._native
before = kib("VmRSS")
with LLM(sys.argv[1], threads=2, max_model_len=64, max_num_seqs=1) as llm:
    print(kib("VmHWM") - before, llm.info.weight_bytes // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_file_is_not_held_beside_its_weights() -> None:
    path = model_path("qwen2.5-coder-0.5b")
    told = subprocess.run([sys.executable, "-c", LOAD, str(path)], capture_output=True, text=True, check=True).stdout
    peak, weights = map(int, told.split())
    assert peak < 1.6 * weights  # twice, with the file's pages; the rest is tokenizer and interpreter
