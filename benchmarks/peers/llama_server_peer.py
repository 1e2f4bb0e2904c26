"""llama.cpp's own server, whose speculation needs no draft model (`--spec-type`): one request at a time.

The setting names the binary (`server`) and its further arguments (`arguments`). Times are the server's own, so HTTP
costs it nothing here: from the prompt's begin to its end, and from there to the last token.
"""

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from typing import Any

from protocol import Prompts, Run, end_with_parent, serve

START_S = 60.0


class LlamaServer:
    """One server process, which ends with this one's session."""

    def __init__(self, setting: dict[str, Any]) -> None:
        self._url = f"http://127.0.0.1:{_free_port()}"
        fixed = {
            "--model": setting["model"],
            "--threads": str(setting["threads"]),
            "--threads-batch": str(setting["threads"]),
            "--ctx-size": str(setting["max_len"]),
            "--parallel": "1",
            "--host": "127.0.0.1",
            "--port": self._url.rpartition(":")[2],
        }
        words = [setting["server"], *(word for pair in fixed.items() for word in pair), *setting["arguments"]]
        self._process = subprocess.Popen(  # this program has one thread, so code may run between fork and exec
            words,
            stdin=subprocess.DEVNULL,
            preexec_fn=end_with_parent,  # noqa: PLW1509
        )
        self._wait()
        self.versions = {"llama.cpp": str(self._ask("/props").get("build_info", "?"))}
        self.settings = {"arguments": " ".join(setting["arguments"]) or "none"}

    def _wait(self) -> None:
        deadline = time.monotonic() + START_S
        while True:
            try:
                self._ask("/health")
                return
            except (urllib.error.URLError, ConnectionError):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"llama-server did not start: status {self._process.poll()}") from None
                time.sleep(0.1)

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            said: dict[str, Any] = json.loads(answer.read())
            return said

    def run(self, prompts: Prompts, output_len: int) -> Run:
        """One prompt after the other."""
        tokens, first_s, elapsed_s, drafts, right = [], 0.0, 0.0, 0, 0
        for prompt in prompts:
            body = {
                "prompt": list(prompt),
                "n_predict": output_len,
                "temperature": 0,
                "ignore_eos": True,
                "cache_prompt": False,
                "return_tokens": True,
            }
            answer = self._ask("/completion", body)
            times = answer["timings"]
            first_s += times["prompt_ms"] / 1e3
            elapsed_s += (times["prompt_ms"] + times["predicted_ms"]) / 1e3
            drafts, right = drafts + times.get("draft_n", 0), right + times.get("draft_n_accepted", 0)
            tokens.append(answer["tokens"])
        return Run(elapsed_s, first_s, tokens, drafts, right)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    serve(LlamaServer)
