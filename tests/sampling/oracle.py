"""What every sampling parameter means, in plain NumPy, by docs/decoding.md; shares nothing with the sampler."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.request.params import SamplingParams
from octavo.request.reasoning import ReasoningSpec

Array = npt.NDArray[Any]
Edit = Callable[[Mapping[str, Any], Sequence[int], Sequence[int], Array], Array]
"""A logits processor: (args, prompt, outputs, row) -> row."""


def adjusted(raw: Array, p: SamplingParams, eos: Sequence[int], prompt: Sequence[int], outputs: Sequence[int]) -> Array:
    """Logits after everything that comes before temperature."""
    x, ids = np.array(raw, np.float32), np.arange(len(raw))
    if p.allowed_token_ids is not None:
        x[~np.isin(ids, p.allowed_token_ids)] = -np.inf
    for token, bias in (p.logit_bias or {}).items():
        x[token] += np.float32(bias)
    for word in p.bad_words_token_ids:
        if list(outputs[len(outputs) - len(word) + 1 :]) == list(word[:-1]) and len(outputs) >= len(word) - 1:
            x[word[-1]] = -np.inf
    if len(outputs) < p.min_tokens:
        x[[i for i in (*eos, *p.stop_token_ids) if i < len(x)]] = -np.inf
    seen = np.isin(ids, [*prompt, *outputs])
    times = np.bincount([i for i in outputs if i < len(x)], minlength=len(x))[: len(x)].astype(np.float32)
    r = np.float32(p.repetition_penalty)
    x = np.where(seen, np.where(x > 0, x / r, x * r), x)
    x = np.where(times > 0, x - np.float32(p.frequency_penalty) * times, x)
    return np.where(times > 0, x - np.float32(p.presence_penalty), x).astype(np.float32)


def bits(words: Array, count: int) -> Array:
    """A mask's words as one truth value per token id."""
    return np.array([words[i // 32] >> i % 32 & 1 for i in range(count)], bool)


def probabilities(x: Array, p: SamplingParams) -> Array:
    """The distribution of the next token from adjusted logits."""
    if p.temperature < 1e-5:
        return np.eye(len(x))[int(np.argmax(x))]
    z = (x.astype(np.float64) - x.max()) / p.temperature
    order = np.lexsort((np.arange(len(x)), -x))  # best first, ties by id
    kept = order[: p.top_k] if p.top_k > 0 else order
    if p.top_p < 1:
        mass = np.cumsum(np.exp(z[kept]))
        kept = kept[: 1 + int(np.searchsorted(mass, p.top_p * mass[-1] * (1 - 1e-9)))]
    kept = kept[z[kept] >= (np.log(p.min_p) if p.min_p else -np.inf)]
    out = np.zeros(len(x))
    out[kept] = np.exp(z[kept])
    return out / out.sum()


def draw(x: Array, p: SamplingParams, position: int) -> tuple[int, bool]:
    """The token, and whether that is certain: not decided by less than rounding."""
    if p.temperature < 1e-5:
        return int(np.argmax(x)), True
    chances = probabilities(x, p)
    with np.errstate(divide="ignore"):
        keys = np.log(chances) - np.log(noise(p.seed or 0, position, len(x)))
    second, first = np.sort(keys)[-2:]
    return int(np.argmax(keys)), first - second > 1e-5 and border_is_clear(x, p)


def border_is_clear(x: Array, p: SamplingParams) -> bool:
    """Whether what top_p and min_p keep stays the same under rounding."""
    z = np.sort((x.astype(np.float64) - x.max()) / p.temperature)[::-1]
    mass = np.cumsum(np.exp(z[: p.top_k] if p.top_k > 0 else z))
    clear = p.top_p == 1 or float(np.abs(mass / mass[-1] - p.top_p).min()) > 1e-6
    return clear and (p.min_p == 0 or float(np.abs(z - np.log(p.min_p)).min()) > 1e-5)


def noise(seed: int, position: int, count: int) -> Array:
    """Exponential noise as the page words it: R(b) / 64 + (t mod 64 = f(b) ? 0 : e(t))."""
    t = np.arange(count, dtype=np.uint64)
    b = t // np.uint64(64)
    first = philox(b, position, 1, seed)
    own = np.choose(
        (t // np.uint64(8) % np.uint64(4)).astype(int),
        philox(np.uint64(8) * (t // np.uint64(32)) + t % np.uint64(8), position, 0, seed),
    )
    e, least = (-np.log1p(-(w.astype(np.float64) + 0.5) / 2.0**32) for w in (own, first[0]))
    return np.asarray(least / 64 + np.where(t % np.uint64(64) == first[1] >> np.uint64(26), 0.0, e))


def philox(c0: Array, position: int, purpose: int, seed: int) -> list[Array]:
    """Philox4x32-10 of the counters (c0, position, purpose, 0)."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    c = [c0, *(np.full_like(c0, word) for word in (position, purpose, 0))]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [p1 >> half ^ c[1] ^ np.uint64(k0), p1 & low, p0 >> half ^ c[3] ^ np.uint64(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def forced(spec: ReasoningSpec | None, outputs: Sequence[int]) -> int | None:
    """The token that a budget of reasoning forces behind these outputs, found by reading them all."""
    if spec is None or spec.budget < 0:
        return None
    inside, start, left, closed = spec.is_open, 0, spec.budget, False
    for n in range(1, len(outputs) + 1):
        part = tuple(outputs[start:n])
        if inside:
            is_whole = len(part) == left + len(spec.forced_end)
            if is_whole or (len(part) <= left and any(part[-len(end) :] == end for end in spec.ends)):
                inside, closed, start, left = False, True, n, max(0, left - len(part))
        elif (not closed or spec.reopens) and any(part[-len(begin) :] == begin for begin in spec.begins):
            inside, start = True, n
    return spec.forced_end[len(outputs) - start - left] if inside and len(outputs) - start >= left else None


def logprobs(raw: Array) -> Array:
    """Log-probabilities of a whole row at temperature 1."""
    x = raw.astype(np.float64)
    return np.asarray(x - x.max() - np.log(np.exp(x - x.max()).sum()))


def listed(raw: Array, p: SamplingParams, token: int) -> list[int]:
    """The ids of a row of logprobs: the token, then those named, or else the most probable."""
    best = np.lexsort((np.arange(len(raw)), -raw))[: p.logprobs or 0]
    return [token, *(p.logprob_token_ids or [int(i) for i in best if raw[i] > -np.inf])]


def repeats_at_end(outputs: Sequence[int], low: int, high: int, count: int) -> bool:
    """Whether a repetition is complete."""
    return any(
        len(outputs) >= size * count and list(outputs[-size * count :]) == list(outputs[-size:]) * count
        for size in range(max(1, low), high + 1)
    )
