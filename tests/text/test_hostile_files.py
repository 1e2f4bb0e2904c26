"""Tokenizer files that somebody meant ill with: an error that names the file, in bounded time, or a tokenizer that
works. Never an end of the process."""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceTrainer

from octavo.errors import ModelError, ModelFileError
from octavo.text import hf_config, library_faults
from octavo.text.tokenizer import from_hf
from tests.text.test_hf import save_byte_level, save_sentencepiece_like

HOSTILE: list[Any] = [None, -1, 2**63, 2**32 - 1, "", [], {"type": "x"}, True]
SAVED = {"byte_level": save_byte_level, "sentencepiece": save_sentencepiece_like}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a JSON document; of long lists and objects the first few."""
    yield path
    if isinstance(value, dict):
        for key in list(value)[:8]:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(min(len(value), 2)):
            yield from places(value[index], (*path, index))


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    document = copy.deepcopy(document)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return document


@pytest.mark.parametrize("kind", SAVED)
def test_any_value_anywhere_in_tokenizer_json(tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    SAVED[kind](tmp_path)
    file = tmp_path / "tokenizer.json"
    document = json.loads(file.read_text())
    outcomes = {"refused": 0, "works": 0}
    for path in places(document):
        for value in HOSTILE:
            file.write_text(json.dumps(replaced(document, path, value)))
            try:
                tokenizer = from_hf(tmp_path)
                tokenizer.decode(tokenizer.encode("hello <s> wörld", add_special=True, parse_special=True))
                outcomes["works"] += 1
            except ModelError:
                outcomes["refused"] += 1
    assert outcomes["refused"] > 100
    assert outcomes["works"] > 10


def test_a_panic_of_the_library_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    save_sentencepiece_like(tmp_path)
    file = tmp_path / "tokenizer.json"
    document = json.loads(file.read_text())
    document["post_processor"]["single"][0]["SpecialToken"]["id"] = ""
    file.write_text(json.dumps(document))
    with pytest.raises(ModelFileError, match=r"tokenizer\.json: the tokenizers library cannot read it"):
        from_hf(tmp_path)


def test_ids_around_a_text_exist(tmp_path: Path) -> None:
    save_sentencepiece_like(tmp_path)
    file = tmp_path / "tokenizer.json"
    document = json.loads(file.read_text())
    document["post_processor"]["special_tokens"]["<s>"]["ids"][0] = 2**32 - 1
    file.write_text(json.dumps(document))
    with pytest.raises(ModelFileError, match="ids that are not in its vocabulary"):
        from_hf(tmp_path)


def test_files_have_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_byte_level(tmp_path)
    monkeypatch.setattr(library_faults, "MAX_TOKENIZER_BYTES", 100)
    with pytest.raises(ModelFileError, match=r"tokenizer\.json.*more than the 100 allowed"):
        from_hf(tmp_path)
    monkeypatch.undo()
    (tmp_path / "config.json").write_text("{}".ljust(200))
    monkeypatch.setattr(hf_config, "MAX_BYTES", 100)
    with pytest.raises(ModelFileError, match=r"config\.json.*more than the 100 allowed"):
        from_hf(tmp_path)


TRY_ALL = """
import sys
from pathlib import Path
from octavo.errors import ModelError
from octavo.text.tokenizer import from_hf
folder = Path(sys.argv[1])
file = folder / "tokenizer.model"
whole = file.read_bytes()
step = max(1, len(whole) // 60)
for place in range(0, len(whole), step):
    for changed in (whole[:place], whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]):
        file.write_bytes(changed)
        try:
            tokenizer = from_hf(folder)
            tokenizer.decode(tokenizer.encode("hi there", add_special=True))
        except ModelError:
            pass
print("survived")
"""


def test_a_sentencepiece_file_cut_or_changed_anywhere(tmp_path: Path) -> None:
    """In a process of its own: what fails in C++ would take this one along."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("hi there\nhello here\n" * 50)
    SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(tmp_path / "tokenizer"), vocab_size=30, model_type="bpe", minloglevel=9
    )
    done = subprocess.run(
        [sys.executable, "-c", TRY_ALL, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ,
    )
    assert done.stdout == "survived\n", done.stderr[-2000:]
