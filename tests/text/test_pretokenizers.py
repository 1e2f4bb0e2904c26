"""How each vocabulary cuts text before merging."""

import pytest

from octavo.errors import UnsupportedModelError
from octavo.text.pretokenizers import BPE_RULES, rule_for
from octavo.text.tokenizer import from_gguf
from tests.text.vocabularies import byte_level

TEXT = "Hello wORld's 12345  x\n\nFooBar中文 don'T (end). "
# Spaces are written Ġ, newlines Ċ, other bytes in GPT-2's alphabet.
WORDS = {
    "gpt-2": "Hello|ĠwORld|'s|Ġ12345|Ġ|Ġx|Ċ|Ċ|FooBarä¸Ńæĸĩ|Ġdon|'|T|Ġ(|end|).|Ġ",
    "smollm": "Hello|ĠwORld|'s|Ġ|1|2|3|4|5|Ġ|Ġx|Ċ|Ċ|FooBarä¸Ńæĸĩ|Ġdon|'|T|Ġ(|end|).|Ġ",
    "qwen2": "Hello|ĠwORld|'s|Ġ|1|2|3|4|5|Ġ|Ġx|ĊĊ|FooBarä¸Ńæĸĩ|Ġdon|'T|Ġ(|end|).|Ġ",
    "llama-bpe": "Hello|ĠwORld|'s|Ġ|123|45|Ġ|Ġx|ĊĊ|FooBarä¸Ńæĸĩ|Ġdon|'T|Ġ(|end|).|Ġ",
    "tekken": "Hello|Ġw|ORld|'s|Ġ|1|2|3|4|5|Ġ|Ġx|ĊĊ|Foo|Barä¸Ńæĸĩ|Ġdon|'T|Ġ(|end|).|Ġ",
    "gpt-4o": "Hello|Ġw|ORld's|Ġ|123|45|Ġ|Ġx|ĊĊ|Foo|Barä¸Ńæĸĩ|Ġdon'T|Ġ(|end|).|Ġ",
    "falcon": "Hello|ĠwORld|'|s|Ġ|123|45|Ġ|Ġx|Ċ|Ċ|FooBarä¸Ńæĸĩ|Ġdon|'|T|Ġ|(|end|).|Ġ",
    "default": "Hello|ĠwORld|'|s|Ġ|123|45|Ġ|Ġx|Ċ|Ċ|FooBarä¸Ńæĸĩ|Ġdon|'|T|Ġ|(|end|).|Ġ",
    "deepseek-llm": "Hello|ĠwORld|'|s|Ġ|1|2|3|4|5|Ġ|Ġx|Ċ|Ċ|FooBar|ä¸Ńæĸĩ|Ġdon|'|T|Ġ(|end|).|Ġ",
    "deepseek-coder": "Hello|ĠwORld|'|s|Ġ|1|2|3|4|5|Ġ|Ġx|Ċ|Ċ|FooBar|ä¸Ńæĸĩ|Ġdon|'|T|Ġ(|end|).|Ġ",
    "deepseek-v3": "Hello|ĠwORld|'s|Ġ|123|45|Ġ|Ġx|ĊĊ|FooBar|ä¸Ńæĸĩ|Ġdon|'T|Ġ(|end|).|Ġ",
}


@pytest.mark.parametrize("pre", WORDS)
def test_words(pre: str) -> None:
    words = [word for word, _ in rule_for(pre).pre_tokenizer().pre_tokenize_str(TEXT)]
    assert "|".join(words) == WORDS[pre]


@pytest.mark.parametrize("pre", BPE_RULES)
def test_every_rule_builds_a_tokenizer_that_gives_text_back(pre: str) -> None:
    tokenizer = from_gguf(byte_level(pre=pre))
    text = "Hello  wörld's 12345\r\n\t中文 \U0001f600 (end)."
    ids = tokenizer.encode(text, add_special=False)
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize(("pre", "add_bos"), [("llama-bpe", True), ("tekken", True), ("qwen2", False)])
def test_whether_a_bos_is_added_where_the_file_does_not_say(pre: str, add_bos: bool) -> None:
    assert from_gguf(byte_level(pre=pre)).add_bos == add_bos
    assert not from_gguf(byte_level(pre=pre, add_bos_token=False)).add_bos


def test_a_whole_word_in_the_vocabulary_ignores_merges() -> None:
    # Of these, "hello" is reachable by merges only as "hell" + "o" once that merge is taken away.
    merges = [merge for merge in byte_level()["tokenizer.ggml.merges"] if merge != "hell o"]
    with_merges = from_gguf(byte_level(pre="qwen2", merges=merges)).encode("hello", add_special=False)
    ignoring = from_gguf(byte_level(pre="llama-bpe", merges=merges)).encode("hello", add_special=False)
    assert (len(with_merges), len(ignoring)) == (2, 1)


def test_text_is_normalised_where_the_model_was_trained_so() -> None:
    for pre, text in (("qwen2", "\u00e9"), ("llama-bpe", "e\u0301")):
        tokenizer = from_gguf(byte_level(pre=pre))
        assert tokenizer.decode(tokenizer.encode("e\u0301", add_special=False)) == text


def test_an_unknown_rule_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.ggml\.pre='new-one'.*known: .*llama-bpe.*qwen2"):
        from_gguf(byte_level(pre="new-one"))


def test_a_file_without_a_rule_gets_the_default() -> None:
    without, default = from_gguf(byte_level(pre=None)), from_gguf(byte_level(pre="default"))
    assert without.encode("a'b 1234") == default.encode("a'b 1234")
