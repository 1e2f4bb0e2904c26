"""Octavo itself, measured like its peers: `LLM.generate` on token ids, the whole engine in one process."""

import time
from typing import Any

from protocol import Prompts, Run, serve

from octavo import LLM, SamplingParams
from octavo.bench.machine import versions


class Octavo:
    """One `LLM`."""

    def __init__(self, setting: dict[str, Any]) -> None:
        self._llm = LLM(
            setting["model"],
            threads=setting["threads"],
            max_num_seqs=setting["max_seqs"],
            enable_prefix_caching=False,
            **{"speculation": "off", **setting.get("options", {})},  # as the peers, unless it is asked for
        )
        self.versions = versions()
        info = self._llm.info
        self.settings = {"isa": info.isa, "threads": info.threads, "max_num_seqs": info.max_num_seqs}
        self.settings |= {"max_num_batched_tokens": info.max_num_batched_tokens}

    def run(self, prompts: Prompts, output_len: int) -> Run:
        """One call for all prompts; the first tokens' times come from the requests' ledgers."""
        params = SamplingParams(temperature=0, max_tokens=output_len, ignore_eos=True, detokenize=False)
        begin = time.perf_counter()
        outputs = self._llm.generate([list(prompt) for prompt in prompts], params)
        elapsed_s = time.perf_counter() - begin
        choices = [output.outputs[0] for output in outputs]
        ledgers = [choice.stats for choice in choices if choice.stats is not None]
        last_first = max(ledger.first_token_s or 0.0 for ledger in ledgers)
        first_s = last_first - min(ledger.arrival_s for ledger in ledgers)
        drafts = sum(ledger.num_draft_tokens for ledger in ledgers)
        right = sum(ledger.num_accepted_draft_tokens for ledger in ledgers)
        return Run(elapsed_s, first_s, [list(choice.token_ids) for choice in choices], drafts, right)


if __name__ == "__main__":
    serve(Octavo)
