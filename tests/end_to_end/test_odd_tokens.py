"""Tokens that are no text by themselves, or stand for more than their spelling: over HTTP, with a real engine."""

import json
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from octavo.engine.speculation import MOST_DRAFTS
from octavo.execution.loader import open_checkpoint
from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from octavo.text.tokenizer import from_gguf
from tests.end_to_end.conftest import Served, serving


def id_of(served: Served, spelling: bytes) -> int:
    tokenizer = from_gguf(open_checkpoint([Path(served.file)]).metadata)
    return next(i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i) == spelling)


@pytest.mark.parametrize("byte", [b"\xff", b"\x80", b"\xe4"])
def test_bytes_that_are_no_text_are_streamed_as_they_come(tiny: Served, byte: bytes) -> None:
    """One that can begin nothing, one that can only go on, one that begins a character which never goes on."""
    body = {"prompt": "x", "max_tokens": 300, "temperature": 0, "logit_bias": {str(id_of(tiny, byte)): 100}}
    lines = httpx.post(f"{tiny.server.url}/v1/completions", json=body | {"stream": True}, timeout=60).text
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines.split("\n\n")[:-2]]
    texts = [chunk["choices"][0]["text"] for chunk in chunks]
    whole = httpx.post(f"{tiny.server.url}/v1/completions", json=body, timeout=60).json()["choices"][0]["text"]
    assert "".join(texts) == whole == "\ufffd" * 300
    some_steps = 6 * (1 + MOST_DRAFTS)  # one brings up to so many tokens, and chunks of a few may come together
    assert max(map(len, texts)) <= some_steps and all(texts[:-1]), "nothing is held back for long"


def test_special_tokens_of_a_template_are_one_id_each(tmp_path: Path) -> None:
    """Of a GGUF file that types them as control tokens, and says whether there is a token of beginning."""
    for architecture, begins in (("qwen2", False), ("gemma3", True)):
        file = str(write_tiny_model(tmp_path / f"{architecture}.gguf", TinyModel(architecture=architecture)))  # type: ignore[arg-type]
        with serving(file) as server, httpx.Client(base_url=server.url, timeout=60) as http:
            messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "x"}] * 2
            ids = http.post("/tokenize", json={"messages": messages[:-1]}).json()["tokens"]
            pieces = [http.post("/detokenize", json={"tokens": [i]}).json()["prompt"] for i in ids]
            turns = [i for i, piece in zip(ids, pieces, strict=True) if piece in ("<|im_start|>", "<start_of_turn>")]
            ends = [i for i, piece in zip(ids, pieces, strict=True) if piece in ("<|im_end|>", "<end_of_turn>")]
            assert (len(turns), len(set(turns)), len(ends), len(set(ends))) == (4, 1, 3, 1), pieces
            assert not any(a + b == "<|" for a, b in pairwise(pieces)), "in no place letter by letter"
            own = (
                "<tool_call>" if architecture == "qwen2" else "\n\n"
            )  # typed as user-defined: found in plain text, too
            told = http.post("/tokenize", json={"prompt": f"a{own}b"}).json()["tokens"]
            assert own in [http.post("/detokenize", json={"tokens": [i]}).json()["prompt"] for i in told]
            bos = http.post("/tokenize", json={"prompt": ""}).json()["tokens"]
            assert len(bos) == begins
            assert [ids[0]] == bos or not begins
            assert sum(i in bos for i in ids) == begins
