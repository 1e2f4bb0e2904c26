"""256 streams at one time, of real HTTP, real processes and the stock client, over the scripted executor: all arrive
whole."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.scripted_serve import next_token
from octavo.config import EngineConfig
from octavo.engine.words import load_words
from octavo.hub import resolve
from octavo.text.tokenizer import Tokenizer

ROOT = Path(__file__).parents[2]
STREAMS, TOKENS = 256, 12


@contextmanager
def scripted(file: str, *flags: str) -> Iterator[str]:
    """A server over the scripted executor; its URL."""
    command = [sys.executable, ROOT / "benchmarks" / "scripted_serve.py", file, "--port", "0"]
    command += ["--max-num-seqs", str(STREAMS), "--max-num-batched-tokens", "4096", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            line = server.stdout.readline() if server.stdout else ""
            assert line.startswith("ready: "), line
            yield line.split()[1]
        finally:
            server.terminate()
            assert server.wait(60) == 0


@pytest.fixture(scope="module")
def tokenizer(tiny_file: str) -> Tokenizer:
    made = load_words(EngineConfig.from_fields({"model": tiny_file}), resolve(tiny_file)).tokenizer
    assert made is not None
    return made


def open_streams(url: str) -> list[dict[str, Any]]:
    program = Path(__file__).with_name("many_streams.py")
    command = [sys.executable, program, url, str(STREAMS), str(TOKENS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    streams: list[dict[str, Any]] = json.loads(done.stdout)
    return streams


def ended(url: str) -> dict[str, int]:
    """Choices that have ended, by reason."""
    text = httpx.get(f"{url}/metrics").text
    found = re.findall(r'^vllm:request_success_total\{.*finished_reason="(\w+)".*\} (\S+)$', text, re.MULTILINE)
    return {reason: int(float(count)) for reason, count in found if float(count)}


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.long), 2])
def test_256_streams_arrive_whole(tiny_file: str, tokenizer: Tokenizer, processes: int) -> None:
    with scripted(tiny_file, "--api-server-count", str(processes)) as url:
        streams = open_streams(url)
        assert ended(url) == {"length": STREAMS}
    assert len(streams) == STREAMS
    for stream in streams:
        prompt = [16 + stream["number"]]
        expected = [next_token(prompt, position, tokenizer.vocab_size) for position in range(TOKENS)]
        assert stream["ids"] == expected
        assert stream["text"] == tokenizer.decode(expected)
        assert stream["reason"] == "length"
