"""Hugging Face folders: the same tokenizers as from GGUF, with the special ids that the small files name."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.text.tokenizer import Tokenizer, from_gguf, from_hf
from tests.text.vocabularies import BYTE, CONTROL, USER_DEFINED, byte_level, sentencepiece

TEXTS = ["hello world", " hello  12\n\n", "é😀中\x00", "<|im_start|>hello<|im_end|>", "a<tool>b", ""]


def write(folder: Path, **files: dict[str, Any]) -> None:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


def ids_by_spelling(metadata: dict[str, Any]) -> dict[str, int]:
    return {spelling: i for i, spelling in enumerate(metadata["tokenizer.ggml.tokens"])}


def save_byte_level(folder: Path, post: Any = None) -> None:
    """A tokenizer.json of the vocabulary that `byte_level` writes as GGUF keys."""
    metadata = byte_level()
    vocabulary, kinds = ids_by_spelling(metadata), metadata["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split()) for merge in metadata["tokenizer.ggml.merges"]]
    library = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken(s, normalized=False) for s, i in vocabulary.items() if kinds[i] == CONTROL])
    library.add_tokens([AddedToken(s, normalized=False) for s, i in vocabulary.items() if kinds[i] == USER_DEFINED])
    if post is not None:
        library.post_processor = post
    library.save(str(folder / "tokenizer.json"))


def save_sentencepiece_like(folder: Path, *, strip: bool = True) -> None:
    """A tokenizer.json in the form that SentencePiece vocabularies take: byte fallback, spaces written as U+2581."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "h", "i", "hi", "▁hi", "▁▁"]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    merges = [("h", "i"), ("▁", "hi"), ("▁", "▁")]
    library = tokenizers.Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True))
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    stages = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    library.decoder = decoders.Sequence([*stages, decoders.Strip(" ", 1, 0)] if strip else stages)
    library.add_special_tokens(["<unk>", "<s>", "</s>"])
    library.add_tokens([AddedToken("▁▁", normalized=False)])
    bos = [("<s>", vocabulary["<s>"])]
    library.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=bos)
    library.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("parse_special", [False, True])
def test_a_byte_level_file_gives_the_ids_of_its_gguf_twin(tmp_path: Path, parse_special: bool) -> None:
    save_byte_level(tmp_path)
    hf, gguf = from_hf(tmp_path), from_gguf(byte_level())
    assert hf.vocab_size == gguf.vocab_size
    for text in TEXTS:
        ids = hf.encode(text, parse_special=parse_special)
        assert ids == gguf.encode(text, parse_special=parse_special)
        assert [hf.token_bytes(i) for i in ids] == [gguf.token_bytes(i) for i in ids]
        assert hf.decode(ids) == gguf.decode(ids)


def load(folder: Path, **files: dict[str, Any]) -> Tokenizer:
    save_byte_level(folder)
    write(folder, **files)
    return from_hf(folder)


def spellings(tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.token_bytes(i).decode() for i in tokenizer.eos_ids]


def test_end_ids_are_those_of_the_tokenizer_and_of_the_generation_config(tmp_path: Path) -> None:
    ids = ids_by_spelling(byte_level())
    generation = {"eos_token_id": [ids["<|endoftext|>"], ids["hello"]]}
    hf = load(tmp_path, tokenizer_config={"eos_token": "<|im_end|>"}, generation_config=generation)
    assert spellings(hf) == ["<|im_end|>", "<|endoftext|>", "hello"]
    assert hf.eos_token == "<|im_end|>"


def test_one_end_id_may_come_without_a_list(tmp_path: Path) -> None:
    ids = ids_by_spelling(byte_level())
    assert spellings(load(tmp_path, generation_config={"eos_token_id": ids["hello"]})) == ["hello"]


def test_without_a_generation_config_spellings_count(tmp_path: Path) -> None:
    hf = load(tmp_path, tokenizer_config={"eos_token": {"content": "<|endoftext|>"}}, config={"eos_token_id": 3})
    assert spellings(hf) == ["<|endoftext|>", "\x03", "<|im_end|>"]


def test_a_bos_is_added_where_the_config_says_so(tmp_path: Path) -> None:
    bos = {"bos_token": "<|im_start|>"}
    assert not load(tmp_path, tokenizer_config=bos).add_bos
    added = load(tmp_path, tokenizer_config={**bos, "add_bos_token": True})
    assert added.encode("a") == [added.bos_id, ord("a")]


def test_a_template_of_the_tokenizer_adds_its_ids_unless_the_config_says_no(tmp_path: Path) -> None:
    ids = ids_by_spelling(byte_level())
    special = [(s, ids[s]) for s in ("<|im_start|>", "<|im_end|>")]
    save_byte_level(tmp_path, processors.TemplateProcessing("<|im_start|> $A <|im_end|>", special_tokens=special))
    hf = from_hf(tmp_path)
    assert hf.encode("ab") == [ids["<|im_start|>"], ord("a"), ord("b"), ids["<|im_end|>"]]
    assert (hf.bos_token, hf.add_bos) == ("<|im_start|>", True)
    write(tmp_path, tokenizer_config={"bos_token": "<|im_start|>", "add_bos_token": False})
    assert from_hf(tmp_path).encode("ab") == [ord("a"), ord("b"), ids["<|im_end|>"]]


def test_truncation_and_padding_in_the_file_are_ignored(tmp_path: Path) -> None:
    save_byte_level(tmp_path)
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    library.enable_truncation(2)
    library.enable_padding(length=9)
    library.save(str(tmp_path / "tokenizer.json"))
    assert from_hf(tmp_path).encode("abc") == list(b"abc")


def test_a_file_with_byte_fallback(tmp_path: Path) -> None:
    save_sentencepiece_like(tmp_path)
    hf = from_hf(tmp_path)
    ids = hf.encode("hi é", add_special=False)
    assert hf.decode(ids) == "hi é"
    assert hf.decode(ids, continues=True) == " hi é"
    assert [hf.token_bytes(i) for i in ids] == [b" hi", b" ", b"\xc3", b"\xa9"]
    assert hf.encode("hi")[0] == hf.bos_id == 1
    assert hf.token_bytes(hf.vocab_size - 1) == b"  "


def test_a_file_that_strips_no_space(tmp_path: Path) -> None:
    save_sentencepiece_like(tmp_path, strip=False)
    hf = from_hf(tmp_path)
    assert hf.decode(hf.encode("hi", add_special=False)) == " hi"


def test_a_metaspace_decoder(tmp_path: Path) -> None:
    save_sentencepiece_like(tmp_path)
    for scheme, text in (("always", "hi"), ("never", " hi")):
        path = tmp_path / "tokenizer.json"
        content = json.loads(path.read_text())
        content["decoder"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
        path.write_text(json.dumps(content))
        hf = from_hf(tmp_path)
        assert hf.decode(hf.encode("hi", add_special=False)) == text


@pytest.mark.parametrize("decoder", [{"type": "WordPiece", "prefix": "##", "cleanup": True}, None])
def test_other_decoders_are_refused(tmp_path: Path, decoder: dict[str, Any] | None) -> None:
    save_byte_level(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["decoder"] = decoder
    write(tmp_path, tokenizer=content)
    with pytest.raises(UnsupportedModelError, match="Octavo knows byte-level and SentencePiece decoders"):
        from_hf(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"version": "1.0", "model": {"type": "BPE"}}', "\x00"])
def test_a_damaged_tokenizer_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelFileError, match=r"tokenizer\.json: the tokenizers library cannot read it"):
        from_hf(tmp_path)


def test_a_hostile_id_takes_no_memory(tmp_path: Path) -> None:
    save_byte_level(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["model"]["vocab"]["far"] = 2**32 - 1
    write(tmp_path, tokenizer=content)
    with pytest.raises(ModelFileError, match="the largest id is 4294967295"):
        from_hf(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer_config", "special_tokens_map", "generation_config", "config"])
@pytest.mark.parametrize("content", ["{", "[1]", "[" * 100_000])
def test_a_damaged_small_file_is_named(tmp_path: Path, name: str, content: str) -> None:
    save_byte_level(tmp_path)
    (tmp_path / f"{name}.json").write_text(content)
    with pytest.raises(ModelFileError, match=rf"{name}\.json: (not valid JSON|must hold a JSON object)"):
        from_hf(tmp_path)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"neither tokenizer\.json nor tokenizer\.model is there"):
        from_hf(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a real SentencePiece model, trained on a few sentences."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "corpus.txt").write_text("the quick brown fox jumps over the lazy dog\nhello world, hello there\n" * 50)
    SentencePieceTrainer.Train(
        input=str(folder / "corpus.txt"),
        model_prefix=str(folder / "tokenizer"),
        model_type="bpe",
        vocab_size=320,
        byte_fallback=True,
        user_defined_symbols=["<tool>", "▁▁"],
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return folder


def test_a_sentencepiece_model_file(trained: Path) -> None:
    hf = from_hf(trained)
    text = "hello  world <tool> é"
    assert hf.encode(text) == [1, *SentencePieceProcessor(str(trained / "tokenizer.model")).EncodeAsIds(text)]
    assert hf.decode(hf.encode(text)) == text
    assert hf.encode("a</s>", parse_special=True)[-1] == hf.eos_ids[0] == 2


def test_the_gguf_form_of_a_sentencepiece_model_gives_the_same_ids(trained: Path) -> None:
    """The model that is rebuilt from pieces, scores and kinds equals the one they were taken from."""
    processor = SentencePieceProcessor(str(trained / "tokenizer.model"))
    size = processor.GetPieceSize()
    pieces = [processor.IdToPiece(i) for i in range(size)]
    kinds = [
        CONTROL if processor.IsControl(i) else BYTE if processor.IsByte(i) else 2 if processor.IsUnknown(i) else 1
        for i in range(size)
    ]
    for i in (pieces.index("<tool>"), pieces.index("▁▁")):
        kinds[i], pieces[i] = USER_DEFINED, pieces[i].replace("▁", " ")
    scores = [processor.GetScore(i) for i in range(size)]
    rebuilt = from_gguf(sentencepiece(tokens=pieces, token_type=kinds, scores=scores))
    hf = from_hf(trained)
    for text in ["hello world", "  the  lazy dog", "<tool>x", "unseen: é中\x00", "a</s>b", "▁ ▁", ""]:
        for parse_special in (False, True):
            ids = rebuilt.encode(text, parse_special=parse_special)
            assert ids == hf.encode(text, parse_special=parse_special), text
            assert rebuilt.decode(ids) == hf.decode(ids)


def test_tokens_added_to_a_sentencepiece_model(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes((trained / "tokenizer.model").read_bytes())
    size = from_hf(trained).vocab_size
    added = {str(size): {"content": "<|im_end|>", "special": True}, str(size + 1): {"content": "<x>", "special": False}}
    write(tmp_path, tokenizer_config={"added_tokens_decoder": added, "eos_token": "<|im_end|>"})
    hf = from_hf(tmp_path)
    assert hf.vocab_size == size + 2
    assert hf.eos_ids[0] == size
    assert hf.encode("hello<|im_end|><x>", parse_special=True)[-2:] == [size, size + 1]
    assert hf.encode("hello<|im_end|><x>")[-1] == size + 1
    assert size not in hf.encode("hello<|im_end|><x>")
    write(tmp_path, tokenizer_config={}, added_tokens={"<|far|>": size + 9})
    with pytest.raises(ModelFileError, match=f"'<|far|>' has id {size + 9}, but the next one is {size}"):
        from_hf(tmp_path)


def test_a_damaged_sentencepiece_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"not a model")
    with pytest.raises(ModelFileError, match=r"tokenizer\.model: not a SentencePiece model"):
        from_hf(tmp_path)
