"""Fill in the middle: a prompt of what stands before and behind the text to be written.

Models that were trained for it have tokens of their own around both parts, and those tell which spelling a model knows:

    <|fim_prefix|>def add(<|fim_suffix|>): return a + b<|fim_middle|>

Sources: Qwen2.5-Coder (README), StarCoder (arXiv 2305.06161), Code Llama (arXiv 2308.12950), DeepSeek-Coder (README),
Codestral (mistral-common), CodeGemma (model card).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.server.prompts import check_ids, encode_text
from octavo.server.serving_engine import TextCodec


@dataclass(frozen=True, kw_only=True)
class FillInSpelling:
    """Spellings of one family's tokens."""

    prefix: str
    suffix: str
    middle: str = ""
    """Empty: the second part is followed by the answer at once."""
    suffix_first: bool = False
    """The suffix, with its token, stands before the prefix."""
    ends: tuple[str, ...] = ()
    """Tokens that end what is filled in, where the vocabulary has them, beside those above."""


SPELLINGS = (
    FillInSpelling(
        prefix="<|fim_prefix|>",
        suffix="<|fim_suffix|>",
        middle="<|fim_middle|>",
        ends=("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|file_separator|>", "<|endoftext|>"),
    ),
    FillInSpelling(
        prefix="<fim_prefix>",
        suffix="<fim_suffix>",
        middle="<fim_middle>",
        ends=("<fim_pad>", "<reponame>", "<repo_name>", "<file_sep>", "<filename>", "<|endoftext|>"),
    ),
    FillInSpelling(prefix="▁<PRE>", suffix="▁<SUF>", middle="▁<MID>", ends=("▁<EOT>",)),
    FillInSpelling(prefix="<｜fim▁begin｜>", suffix="<｜fim▁hole｜>", middle="<｜fim▁end｜>"),
    FillInSpelling(prefix="[PREFIX]", suffix="[SUFFIX]", suffix_first=True),
)


@dataclass(frozen=True, kw_only=True)
class FillInTokens:
    """How one model is asked to fill in."""

    prefix: int
    suffix: int
    middle: int | None
    suffix_first: bool
    end_ids: tuple[int, ...]
    """Where one of these comes, what is filled in is whole."""

    def around(self, prefix: Sequence[int], suffix: Sequence[int]) -> list[int]:
        """Both parts with the tokens around them."""
        before, behind = [self.prefix, *prefix], [self.suffix, *suffix]
        parts = behind + before if self.suffix_first else before + behind
        return parts if self.middle is None else [*parts, self.middle]


async def fill_in_prompt(
    tokenizer: TextCodec, tokens: FillInTokens, prefix: str | list[int], suffix: str, vocab_size: int
) -> list[int]:
    """Prompt ids for the text between prefix and suffix.

    Raises:
        InvalidRequestError: an id of the prefix outside the vocabulary.
    """
    if isinstance(prefix, str):
        prefix = await encode_text(tokenizer, prefix, add_special=False)
    check_ids(prefix, vocab_size, "prompt")
    start = tokenizer.encode("", add_special=True)
    return start + tokens.around(prefix, await encode_text(tokenizer, suffix, add_special=False))


def fill_in_tokens(tokenizer: TextCodec) -> FillInTokens | None:
    """The tokens of a model; None if it knows none."""
    return next((tokens for spelling in SPELLINGS if (tokens := _tokens(tokenizer, spelling)) is not None), None)


def _tokens(tokenizer: TextCodec, spelling: FillInSpelling) -> FillInTokens | None:
    prefix, suffix = _token(tokenizer, spelling.prefix), _token(tokenizer, spelling.suffix)
    middle = _token(tokenizer, spelling.middle) if spelling.middle else None
    if prefix is None or suffix is None or (spelling.middle and middle is None):
        return None
    ends = [prefix, suffix, middle, *(_token(tokenizer, end) for end in spelling.ends)]
    return FillInTokens(
        prefix=prefix,
        suffix=suffix,
        middle=middle,
        suffix_first=spelling.suffix_first,
        end_ids=tuple(end for end in ends if end is not None),
    )


def _token(tokenizer: TextCodec, spelling: str) -> int | None:
    """The id of a token that is spelled so; None if there is none."""
    ids = tokenizer.encode(spelling, add_special=False, parse_special=True)
    return ids[0] if len(ids) == 1 and tokenizer.token_bytes(ids[0]) == spelling.encode() else None
