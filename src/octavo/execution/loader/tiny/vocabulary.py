"""Small vocabularies with real merges, so that text works: trained here on a few sentences, in milliseconds.

Byte-level BPE: bytes are spelled as printable characters (GPT-2's table), tokens join by ranked merges (Sennrich et al.
2016). SentencePiece-style BPE: pieces with scores, spaces as "▁", bytes as `<0xAB>` for what no piece covers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from octavo.errors import ConfigError
from octavo.execution.loader.tiny.spec import Kin, TinyModel, VocabularyKind

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Token types as GGUF numbers them."""

_CORPUS = """The paged cache holds sixteen tokens in a block, and the blocks of a request need not lie side by side.
The scheduler gives each request some tokens in each step; the step runs, and the answers go back to those who asked.
What is the capital of France? The capital of France is Paris. The capital of Italy is Rome. The answer is the city.
There were three ships on the water that day, and the people in the town watched them come in from the other side.
def main(): return the number of tokens in the list; if it is not there then it is in the cache of the other thread.
One printed sheet, folded three times, gives eight leaves: sixteen pages. Thank you. You are welcome. I am here.
Die Stadt und das Wasser. Où est la gare? El tren está aquí. naïve café. Привет мир, это мир. 你好世界。こんにちは。
In 1984 and 2025 there were 365 days; 12 + 30 = 42, 7 * 6 = 42.
"""
_WORDS = re.compile(r" ?[^\W\d_]+|\d| ?[^\s\w]+|\s+")


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id, with what both formats need to know of them."""

    kind: VocabularyKind
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    scores: tuple[float, ...]
    """Of SentencePiece pieces; all 0 for byte-level BPE."""
    merges: tuple[tuple[str, str], ...]
    bos: int
    eos: int
    pad: int
    unknown: int | None
    end_of_turn: int
    add_bos: bool
    add_space_prefix: bool
    chat_template: str | None
    num_real: int
    """Tokens before the padding that fills the embedding's rows."""


@dataclass(frozen=True)
class _Conventions:
    """How one architecture's vocabulary begins and what its special tokens mean."""

    first: tuple[str, ...]
    last: tuple[str, ...]
    bos: str
    eos: str
    pad: str
    unknown: str | None
    end_of_turn: str
    add_bos: bool
    add_space_prefix: bool
    padding: str
    """Format of the names of padding tokens."""
    template: str
    user_defined: tuple[str, ...] = ()
    """Tokens that are found in text before anything else, but are text: they print, and no request need allow them."""


_CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_TURNS = (
    "{{ bos_token }}{% for m in messages %}{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
    "{{ '<start_of_turn>' + role + '\\n' + m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)
_ROLES = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)
"""The real gpt2 has no chat template."""
_CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CONVENTIONS: dict[tuple[Kin, VocabularyKind], _Conventions] = {
    ("llama", "bpe"): _Conventions(
        _CHATML_TOKENS, (), "<|im_start|>", "<|im_end|>", "<|im_end|>", "<|endoftext|>", "<|im_end|>",
        add_bos=False, add_space_prefix=False, padding="[PAD{}]", template=_CHATML,
    ),
    ("qwen2", "bpe"): _Conventions(
        (), _CHATML_TOKENS, "<|endoftext|>", "<|im_end|>", "<|endoftext|>", None, "<|im_end|>",
        add_bos=False, add_space_prefix=False, padding="[PAD{}]", template=_CHATML,
        user_defined=("<tool_call>", "</tool_call>"),
    ),
    ("llama", "spm"): _Conventions(
        ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"), (), "<s>", "</s>", "</s>", "<unk>", "<|im_end|>",
        add_bos=True, add_space_prefix=True, padding="[PAD{}]", template=_CHATML,
    ),
    ("gpt2", "bpe"): _Conventions(
        (), ("<|endoftext|>",), "<|endoftext|>", "<|endoftext|>", "<|endoftext|>", None, "<|endoftext|>",
        add_bos=False, add_space_prefix=False, padding="[PAD{}]", template=_ROLES,
    ),
    ("gemma3", "spm"): _Conventions(
        ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"), (),
        "<bos>", "<eos>", "<pad>", "<unk>", "<end_of_turn>",
        add_bos=True, add_space_prefix=False, padding="<unused{}>", template=_TURNS,
        user_defined=("\n\n", "\t\t"),
    ),
}  # fmt: skip


def build_vocabulary(model: TinyModel) -> Vocabulary:
    """The vocabulary of a model, filled up to its `vocab_size`. Raises ConfigError where that is too small."""
    kind = model.vocabulary_kind
    conventions = _CONVENTIONS.get((model.kin, kind))
    if conventions is None:
        raise ConfigError("vocabulary", kind, f"no {model.architecture} model has such a vocabulary")
    build = _byte_level if kind == "bpe" else _sentence_piece
    tokens, types, scores, merges = build(conventions, model.vocab_size)
    ids = {token: i for i, token in enumerate(tokens)}
    spare = model.vocab_size - len(tokens)
    return Vocabulary(
        kind=kind,
        tokens=(*tokens, *(conventions.padding.format(len(tokens) + i) for i in range(spare))),
        types=(*types, *[UNUSED] * spare),
        scores=(*scores, *[-1000.0] * spare),
        merges=merges,
        bos=ids[conventions.bos],
        eos=ids[conventions.eos],
        pad=ids[conventions.pad],
        unknown=None if conventions.unknown is None else ids[conventions.unknown],
        end_of_turn=ids[conventions.end_of_turn],
        add_bos=conventions.add_bos,
        add_space_prefix=conventions.add_space_prefix,
        chat_template=conventions.template if model.chat_template else None,
        num_real=len(tokens),
    )


_Parts = tuple[tuple[str, ...], tuple[int, ...], tuple[float, ...], tuple[tuple[str, str], ...]]
"""Tokens, types, scores, merges."""


def _byte_level(conventions: _Conventions, size: int) -> _Parts:
    alphabet = tuple(byte_characters().values())
    special = len(conventions.first) + len(conventions.last) + len(conventions.user_defined)
    _check_size(size, special + len(alphabet))
    merges = _trained("bpe")[: size - special - len(alphabet)]
    normal = (*alphabet, *(left + right for left, right in merges))
    runs = (
        (conventions.first, CONTROL),
        (normal, NORMAL),
        (conventions.last, CONTROL),
        (conventions.user_defined, USER_DEFINED),
    )
    tokens = tuple(token for run, _ in runs for token in run)
    types = tuple(kind for run, kind in runs for _ in run)
    return tokens, types, (0.0,) * len(tokens), merges


def _sentence_piece(conventions: _Conventions, size: int) -> _Parts:
    """Specials, 256 bytes, pieces by falling score, single characters last, as SentencePiece writes them."""
    first = (*conventions.first, *conventions.user_defined)
    byte_tokens = tuple(f"<0x{b:02X}>" for b in range(256))
    characters = tuple(sorted(set(_spm_text())))
    _check_size(size, len(first) + 256 + len(characters))
    pieces = tuple(a + b for a, b in _trained("spm")[: size - len(first) - 256 - len(characters)])
    tokens = (*first, *byte_tokens, *pieces, *characters)
    special = [UNKNOWN if token == conventions.unknown else CONTROL for token in conventions.first]
    types = (
        *special,
        *[USER_DEFINED] * len(conventions.user_defined),
        *[BYTE] * 256,
        *[NORMAL] * (len(pieces) + len(characters)),
    )
    ranks = range(len(pieces) + len(characters))
    scores = (*[0.0] * (len(first) + 256), *(-float(rank) for rank in ranks))
    return tokens, types, scores, _all_splits(pieces, {*pieces, *characters})


def _all_splits(pieces: Iterable[str], known: set[str]) -> tuple[tuple[str, str], ...]:
    """Merges for tokenizer.json: joining by score reaches a piece from any split of it into known pieces."""
    splits = ((piece[:i], piece[i:]) for piece in pieces for i in range(1, len(piece)))
    return tuple((left, right) for left, right in splits if left in known and right in known)


def _check_size(size: int, least: int) -> None:
    if size < least:
        raise ConfigError("vocab_size", size, f"must be at least {least} (special tokens and single characters)")


def byte_characters() -> dict[int, str]:
    """byte -> the printable character that spells it in byte-level BPE, in the order of GPT-2's vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(rest)}


def _spm_text() -> str:
    return _CORPUS.replace(" ", "▁").replace("\n", "")


def _spelled(word: str, kind: VocabularyKind) -> tuple[str, ...]:
    if kind == "spm":
        return tuple(word.replace(" ", "▁").replace("\n", ""))
    table = byte_characters()
    return tuple(table[b] for b in word.encode())


@lru_cache(maxsize=2)
def _trained(kind: VocabularyKind) -> tuple[tuple[str, str], ...]:
    """All merges that the corpus gives, most frequent first: pairs seen at least twice, ties to the smaller pair."""
    words = Counter(_spelled(word, kind) for word in _WORDS.findall(_CORPUS))
    merges: list[tuple[str, str]] = []
    while True:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in pairwise(word):
                pairs[pair] += count
        best = max(pairs, key=lambda pair: (pairs[pair], pair), default=None)
        if best is None or pairs[best] < 2:
            return tuple(merges)
        merges.append(best)
        words = Counter({_joined(word, best): count for word, count in words.items()})


def _joined(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    """`word` with every occurrence of `pair`, from the left, made one symbol."""
    out: list[str] = []
    i = 0
    while i < len(word):
        if word[i : i + 2] == pair:
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)
