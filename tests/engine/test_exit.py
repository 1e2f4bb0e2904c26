"""Programs that end while threads of theirs still generate."""

import subprocess
import sys

import pytest

LEFT_BEHIND = """
import atexit, sys, threading
from octavo import LLM, SamplingParams
atexit.register(lambda: {last})  # called after whatever engines do at the end
params = SamplingParams(max_tokens=200, ignore_eos=True)
fields = {{"max_model_len": 256, "num_kv_blocks": 100, "threads": 2}}
llms = [LLM(sys.argv[1], **fields), LLM(sys.argv[1], **fields, async_scheduling=True)]
begun = threading.Semaphore(0)

def generate_for_ever(llm):
    while True:
        for _ in llm.stream([5, 6, 7], params):
            begun.release()

for llm in llms:
    threading.Thread(target=generate_for_ever, args=(llm,), daemon=True).start()
for _ in range(30):
    begun.acquire()
print("the end")
"""


@pytest.mark.parametrize("last", ["None", "[llm.load() for llm in llms]", "[llm.close() for llm in llms]"])
def test_a_program_may_end_while_daemon_threads_generate(tiny_model: str, last: str) -> None:
    """With its own exit code and without a word, even if it asks its engines something at the very end."""
    program = [sys.executable, "-c", LEFT_BEHIND.format(last=last), tiny_model]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "the end\n", "")
