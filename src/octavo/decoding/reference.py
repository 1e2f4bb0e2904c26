"""The sampler's meaning in NumPy: slow, plain, the oracle of values for the native one.

Logits are edited with the native sampler's own float32 operations (equal bits); probabilities are float64, where the
native sampler uses float32 weights with integer sums, so a top_p border may differ where the mass misses the target by
less than about 1e-6 (`Draw.mass_gap`). The noise is the same.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo.execution.protocols import Float32, Int32
from octavo.request.outputs import LogprobRow
from octavo.request.params import SamplingParams

_Float64 = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]
_Uint64 = npt.NDArray[np.uint64]

_ROUNDS = 10
_MUL = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_TOKEN_NOISE, _BLOCK_NOISE = 0, 1


@dataclass(frozen=True)
class Draw:
    """One draw, with what a comparison needs to know."""

    token: int
    kept: _Bools
    """[valid_vocab_size] the tokens chosen among."""
    key_gap: float
    """Lead of the winner over the second; infinite if it was alone."""
    mass_gap: float
    """Smallest distance of a running mass from the top_p target, as a share of the mass; infinite without top_p."""


class ReferenceRequest:
    """The sampling state of one request."""

    def __init__(
        self,
        params: SamplingParams,
        eos_token_ids: Sequence[int],
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int] = (),
    ) -> None:
        self.params = params
        self.stop_token_ids = {*eos_token_ids, *params.stop_token_ids}
        self.prompt = list(prompt_token_ids)
        self.outputs = list(output_token_ids)

    def adjust(self, logits: Float32, mask: Int32 | None = None) -> Float32:
        """Logits `[valid_vocab_size]` after masks, bias and penalties; float32, in the documented order.

        `mask`: a row of `TokenMasks.words`; None: all tokens are allowed.
        """
        x = logits.astype(np.float32)
        if mask is not None:
            x[[not mask[i // 32] >> (i % 32) & 1 for i in range(len(x))]] = -np.inf
        self._allow(x)
        for token, bias in (self.params.logit_bias or {}).items():
            x[token] += np.float32(bias)
        self._ban(x)
        self._penalize(x)
        return x

    def _allow(self, x: Float32) -> None:
        if self.params.allowed_token_ids is not None:
            masked = np.ones(len(x), dtype=np.bool_)
            masked[list(self.params.allowed_token_ids)] = False
            x[masked] = -np.inf

    def _ban(self, x: Float32) -> None:
        for *prefix, last in self.params.bad_words_token_ids:
            if self.outputs[len(self.outputs) - len(prefix) :] == prefix:
                x[last] = -np.inf
        if len(self.outputs) < self.params.min_tokens:
            x[[i for i in self.stop_token_ids if i < len(x)]] = -np.inf

    def _penalize(self, x: Float32) -> None:
        p = self.params
        in_output = Counter(self.outputs)
        repetition, presence, frequency = (
            np.float32(v) for v in (p.repetition_penalty, p.presence_penalty, p.frequency_penalty)
        )
        for token in {*self.prompt, *self.outputs}:
            if not 0 <= token < len(x):
                continue
            x[token] = x[token] / repetition if x[token] > 0 else x[token] * repetition
            if token in in_output:
                x[token] -= frequency * np.float32(in_output[token])
                x[token] -= presence

    def draw(self, logits: Float32, mask: Int32 | None = None) -> Draw:
        """The next token for raw logits `[valid_vocab_size]` that leave at least one token; not counted as output."""
        x = flatten_infinite(self.adjust(logits, mask))
        if self.params.greedy:
            token = int(np.argmax(x))
            return Draw(token, np.arange(len(x)) == token, np.inf, np.inf)
        z = (x - x.max()) * np.float32(1.0 / self.params.temperature)
        kept, mass_gap = keep(x, z, self.params)
        noise = exponential_noise(self.params.seed or 0, len(self.outputs), len(x))
        keys = np.where(kept, z.astype(np.float64) - np.log(noise), -np.inf)
        second, first = np.sort(keys)[-2:] if len(keys) > 1 else (-np.inf, keys[0])
        return Draw(int(np.argmax(keys)), kept, float(first - second), mass_gap)


def flatten_infinite(x: Float32) -> Float32:
    """If the largest logit is +inf: 0 for the +inf tokens, -inf for the others."""
    if x.max() != np.inf:
        return x
    return np.where(x == np.inf, np.float32(0), np.float32(-np.inf)).astype(np.float32)


def keep(x: Float32, z: Float32, params: SamplingParams) -> tuple[_Bools, float]:
    """What top_k, then top_p, then min_p keep of adjusted logits `x` and z = (x - max) / temperature.

    Returns:
        (kept `[vocab]`, see `Draw.mass_gap`)
    """
    order = np.argsort(-x, kind="stable")  # best first, ties by id
    order = order[x[order] > -np.inf]
    if params.top_k > 0:
        order = order[: params.top_k]
    mass_gap = math.inf
    if params.top_p < 1.0:
        running = np.cumsum(np.exp(z[order].astype(np.float64)))
        target = (params.top_p - 2.0**-40) * running[-1]
        order = order[: int(np.argmax(running >= target)) + 1]
        mass_gap = float(np.abs(running - target).min() / running[-1])
    kept = np.zeros(len(x), dtype=np.bool_)
    kept[order] = True
    if params.min_p > 0.0:
        kept &= z >= np.float32(math.log(params.min_p))
    return kept, mass_gap


def exponential_noise(seed: int, position: int, num_tokens: int) -> _Float64:
    """Independent standard exponential noise of token ids [0, num_tokens) at an output position.

    Per block of 64 tokens: the smallest of 64 such numbers, the token that has it, and what the others exceed it by;
    csrc/sampling/noise.h says why that is the same thing, and which word is whose.
    """
    tokens = np.arange(num_tokens)
    blocks = np.arange(-(-num_tokens // 64))
    block_words = philox4x32(_counters(blocks, position, _BLOCK_NOISE), seed)
    least = np.repeat(_exponential(block_words[0]) / 64, 64)[:num_tokens]
    is_first = tokens % 64 == np.repeat(block_words[1] >> np.uint64(26), 64)[:num_tokens]
    token_words = philox4x32(_counters(8 * (tokens // 32) + tokens % 8, position, _TOKEN_NOISE), seed)
    noise: _Float64 = least + np.where(is_first, 0.0, _exponential(token_words[tokens // 8 % 4, tokens]))
    return noise


def _counters(first_words: npt.NDArray[np.int64], position: int, purpose: int) -> _Uint64:
    counters = np.zeros((4, len(first_words)), dtype=np.uint64)
    counters[0], counters[1], counters[2] = first_words, position, purpose
    return counters


def _exponential(words: _Uint64) -> _Float64:
    noise: _Float64 = -np.log1p(-(words.astype(np.float64) + 0.5) * 2.0**-32)
    return noise


def philox4x32(counters: _Uint64, key: int) -> _Uint64:
    """Philox4x32-10 (Salmon et al. 2011) of counters `[4, n]` under a 64-bit key: words `[4, n]` below 2**32."""
    c0, c1, c2, c3 = counters
    for i in range(_ROUNDS):
        key0, key1 = (np.uint64((half + i * weyl) & 0xFFFFFFFF) for half, weyl in zip(_halves(key), _WEYL, strict=True))
        p0, p1 = _MUL[0] * c0, _MUL[1] * c2
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ key0, p1 & _LOW, (p0 >> _HALF) ^ c3 ^ key1, p0 & _LOW
    return np.stack([c0, c1, c2, c3])


def _halves(key: int) -> tuple[int, int]:
    return key & 0xFFFFFFFF, key >> 32


def logprob_row(logits: Float32, valid_vocab_size: int, token: int, num_logprobs: int) -> LogprobRow:
    """Logprobs from one raw row `[vocab_size]`: normalised over the whole row, listed and ranked among valid ids."""
    x = logits.astype(np.float64)
    if x.max() == np.inf:
        x = flatten_infinite(logits).astype(np.float64)
    logprobs = x - (x.max() + np.log(np.sum(np.exp(x - x.max()))))
    valid = logits[:valid_vocab_size]
    order = np.argsort(-valid, kind="stable")[:num_logprobs]
    listed = [token, *(int(i) for i in order if valid[i] > -np.inf)]
    return LogprobRow(listed, [float(logprobs[i]) for i in listed], 1 + int(np.sum(valid > logits[token])))
