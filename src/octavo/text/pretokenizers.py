"""How byte-level BPE vocabularies cut text before merging: one entry per value of `tokenizer.ggml.pre`.

A GGUF file holds only the name of the rule. Each entry repeats what the original model's `tokenizer.json`
declares (`default`: what llama.cpp does, for there is no such file), as stages of the `tokenizers` library,
so the same engine runs the same rule. Where llama.cpp and the original differ (it applies no NFC), the
original wins. A name that is not listed is
refused: another rule would still produce ids, wrong ones, and nothing would tell.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tokenizers import Regex
from tokenizers.normalizers import NFC, Normalizer
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Punctuation, Split
from tokenizers.pre_tokenizers import Sequence as StageSequence

from octavo.errors import UnsupportedModelError

Stage = Callable[[], PreTokenizer]
"""Builds one stage. Stages are built when a tokenizer is: compiling every pattern at import would cost each
start."""


@dataclass(frozen=True, slots=True)
class BpeRule:
    """What a byte-level BPE model does around its merges."""

    stages: tuple[Stage, ...]
    normalizer: Callable[[], Normalizer] | None = None
    ignore_merges: bool = False
    """A word that is a vocabulary entry as a whole is that token, whatever the merges say."""
    add_bos: bool = False
    """Whether a beginning-of-text id is added where the file does not say."""

    def pre_tokenizer(self) -> PreTokenizer:
        """The stages as one pre-tokeniser of the library."""
        return StageSequence([stage() for stage in self.stages])


def _split(pattern: str) -> Stage:
    return lambda: Split(Regex(pattern), "isolated")


def rule_for(pre: str) -> BpeRule:
    """The rule of one `tokenizer.ggml.pre` value.

    Raises:
        UnsupportedModelError: nobody taught Octavo this one; the message lists those it knows.
    """
    if pre not in BPE_RULES:
        known = ", ".join(sorted(BPE_RULES))
        raise UnsupportedModelError(
            f"tokenizer.ggml.pre={pre!r}: Octavo does not know how this vocabulary cuts text "
            f"(known: {known}); "
            "use the model's Hugging Face folder with its tokenizer.json instead."
        )
    return BPE_RULES[pre]


_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _gpt4_words(digits: str) -> str:
    return rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"


def _cased_words(contraction: str, digits: str) -> str:
    """Words cut where the case changes (the o200k and Tekken families)."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    lead = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{lead}{upper}*{lower}+{contraction}|{lead}{upper}+{lower}*{contraction}|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


_BYTES = partial(ByteLevel, add_prefix_space=False, use_regex=False)
_GPT2_BYTES = partial(ByteLevel, add_prefix_space=False, use_regex=True)
_EACH_DIGIT = partial(Digits, individual_digits=True)

_GPT2 = BpeRule((_GPT2_BYTES,))
_DIGITS_GPT2 = BpeRule((_EACH_DIGIT, _GPT2_BYTES))
_QWEN2 = BpeRule((_split(_gpt4_words(r"\p{N}")), _BYTES), normalizer=NFC)
_GPT4_STAGES = (_split(_gpt4_words(r"\p{N}{1,3}")), _BYTES)
_LLAMA3 = BpeRule(_GPT4_STAGES, ignore_merges=True, add_bos=True)
_GPT4 = BpeRule(_GPT4_STAGES)
_TEKKEN = BpeRule((_split(_cased_words("", r"\p{N}")), _BYTES), ignore_merges=True, add_bos=True)
_O200K = BpeRule((_split(_cased_words(rf"{_CONTRACTION}?", r"\p{N}{1,3}")), _BYTES))

_DEFAULT = BpeRule(
    (
        _split(r"[\p{P}\$\+<=>\^~\|]+"),
        _split(_GPT2_WORDS),
        _split(r"\p{N}+"),
        _split(r"[0-9][0-9][0-9]"),
        _BYTES,
    )
)
_FALCON = BpeRule(
    (
        partial(Punctuation, behavior="contiguous"),
        _GPT2_BYTES,
        partial(Digits, individual_digits=False),
        _split(r"[0-9][0-9][0-9]"),
    )
)

# Ranges of the DeepSeek rules, by code point: some of their ends are look-alikes that an editor might
# normalise.
_HAN_TO_HANGUL = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_HAN_AND_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_FULL_WIDTH_MARKS = "\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"
_DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"
    "\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf"
    "\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57"
    "\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3"
    "\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126"
    "\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_LLM = BpeRule(
    (
        _split(r"[\r\n]"),
        _split(rf"\s?[{_DEEPSEEK_LETTERS}]+"),
        _split(rf"\s?[!-/:-~{_FULL_WIDTH_MARKS}]+"),
        _split(r"\s+$"),
        _split(_HAN_TO_HANGUL),
        _EACH_DIGIT,
        _BYTES,
    )
)
_DEEPSEEK_CODER = BpeRule(
    (
        _split(r"[\r\n]"),
        _split(r"\s?\p{L}+"),
        _split(r"\s?\p{P}+"),
        _split(_HAN_TO_HANGUL),
        _EACH_DIGIT,
        _BYTES,
    )
)
_DEEPSEEK_V3 = BpeRule(
    (
        _split(r"\p{N}{1,3}"),
        _split(_HAN_AND_KANA),
        _split(
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
            rf"""| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"""
        ),
        _BYTES,
    )
)

BPE_RULES: dict[str, BpeRule] = {
    "default": _DEFAULT,
    "gpt-2": _GPT2,
    "phi-2": _GPT2,
    "smollm": _DIGITS_GPT2,
    "starcoder": _DIGITS_GPT2,
    "refact": _DIGITS_GPT2,
    "falcon": _FALCON,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "smaug-bpe": _GPT4,
    "dbrx": _GPT4,
    "tekken": _TEKKEN,
    "gpt-4o": _O200K,
    "llama4": _O200K,
    "deepseek-llm": _DEEPSEEK_LLM,
    "deepseek-coder": _DEEPSEEK_CODER,
    "deepseek-v3": _DEEPSEEK_V3,
}
"""Value of `tokenizer.ggml.pre` -> rule."""
