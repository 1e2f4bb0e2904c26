"""The requests whose answers must never change: every way of choosing tokens, and every shape that a kernel, the
scheduler or the cache treats in its own way."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from octavo.request.params import SamplingParams
from octavo.request.reasoning import ReasoningSpec
from octavo.request.structured import StructuredKind, StructuredSpec

Message = Mapping[str, str]


@dataclass(frozen=True)
class Request:
    """One request."""

    name: str
    prompt: str | tuple[int, ...] | tuple[Message, ...]
    """A text, token ids, or a conversation."""
    params: SamplingParams

    @property
    def messages(self) -> list[Message]:
        """The conversation; empty if the prompt is none."""
        return [part for part in self.prompt if isinstance(part, Mapping)]


Workload = tuple[Request, ...]
"""Names are unique."""


def shuffled(workload: Workload) -> Workload:
    """The same requests in another order."""
    order = list(workload)
    random.Random(5).shuffle(order)
    return tuple(order)


def reverse(workload: Workload) -> Workload:
    """The last one first."""
    return workload[::-1]


def in_order(workload: Workload) -> Workload:
    """As they are."""
    return workload


def nobody(_: Workload) -> Workload:
    """No neighbours."""
    return ()


def failing(workload: Workload) -> Workload:
    """For each request one with its prompt that fails when its second token is chosen: none is left to choose."""
    one_token = greedy(4, allowed_token_ids=(9,), bad_words_token_ids=((9, 9),), logprobs=1)
    return tuple(replace(request, name=f"failing, {request.name}", params=one_token) for request in workload)


def poisoned(workload: Workload) -> Workload:
    """For each request of token ids one that begins alike, but holds a token whose embedding is no number."""
    chance = random.Random(13)
    return tuple(
        replace(request, name=f"poisoned, {request.name}", prompt=_with_poison(request.prompt, chance))
        for request in workload
        if isinstance(request.prompt, tuple) and not request.messages
    )


def _with_poison(prompt: tuple[object, ...], chance: random.Random) -> tuple[int, ...]:
    at = chance.randrange(len(prompt))
    return (*prompt[:at], chance.choice((6, 7)), *prompt[at:])  # type: ignore[return-value]


def greedy(max_tokens: int, **more: object) -> SamplingParams:
    """The most probable token each time, past any end of text."""
    return SamplingParams(**{"temperature": 0.0, "max_tokens": max_tokens, "ignore_eos": True, **more})  # type: ignore[arg-type]


def seeded(seed: int, max_tokens: int, **more: object) -> SamplingParams:
    """Drawn, by a seed."""
    return greedy(max_tokens, **{"temperature": 1.0, "seed": seed, **more})


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 199}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
LIST = {"type": "array", "items": {"enum": ["sheet", "page", 16, None]}, "minItems": 3, "maxItems": 5}


def schema(value: object) -> StructuredSpec:
    """Answers of a JSON schema, without white space."""
    return StructuredSpec(kind=StructuredKind.JSON_SCHEMA, source=json.dumps(value), compact=True)


def regex(source: str) -> StructuredSpec:
    """Answers of a regular expression."""
    return StructuredSpec(kind=StructuredKind.REGEX, source=source)


STOPS = ("e", "a", "o", "i", "ing", "\n", "t")
"""Frequent enough that a random model writes one soon."""


def tiny_workload(vocab_size: int, eos_ids: Sequence[int]) -> Workload:
    """For models with random weights. Prompts are token ids, so that lengths are what they should be.

    The lengths: 1 and 2 tokens; whole blocks; decoding across the border of two tiles (64) and of two partitions (256)
    of the attention kernel; a prompt longer than two partitions and than any small budget.
    """
    words = random.Random(11)
    text = tuple(words.randrange(8, vocab_size) for _ in range(600))
    eos = eos_ids[0]
    return (
        Request("one token in, one out", text[:1], greedy(1, logprobs=20)),
        Request("two tokens in", text[1:3], seeded(1, 20, logprobs=1)),
        Request("across a tile border", text[:55], greedy(20, logprobs=5)),
        Request("across a partition border", text[:250], greedy(16, logprobs=0)),
        Request("two partitions in", text[:530], seeded(2, 12, logprobs=2)),
        Request("whole blocks in", text[:64], seeded(3, 20, temperature=0.7, logprobs=3)),
        Request("the same, other seed", text[:64], seeded(4, 20, temperature=0.7, logprobs=3)),
        Request("shared beginning", (*text[:100], *text[300:340]), seeded(5, 16, top_k=40, top_p=0.9, min_p=0.01)),
        Request("top_k", text[10:27], seeded(6, 24, top_k=3, temperature=1.5, logprobs=4)),
        Request("top_p", text[20:53], seeded(7, 24, top_p=0.7, logprobs=4)),
        Request("min_p", text[30:61], seeded(8, 24, min_p=0.1, temperature=2.0, logprobs=4)),
        Request(
            "penalties",
            text[40:75],
            greedy(24, repetition_penalty=1.3, presence_penalty=0.6, frequency_penalty=0.4, logprobs=2),
        ),
        Request(
            "seeded penalties", text[:48], seeded(9, 24, repetition_penalty=0.9, frequency_penalty=-0.5, logprobs=2)
        ),
        Request("three answers", text[:80], seeded(10, 16, n=3, logprobs=2)),
        Request("two equal answers", text[5:37], greedy(40, n=2, logprobs=1)),
        Request("prompt logprobs", text[:90], greedy(8, prompt_logprobs=3, logprobs=3)),
        Request("prompt logprobs of two answers", text[:33], seeded(11, 8, n=2, prompt_logprobs=0)),
        Request("stop strings", text[50:70], seeded(12, 40, stop=STOPS)),
        Request(
            "stop strings, shown",
            text[51:71],
            seeded(13, 40, stop=STOPS, min_tokens=3, include_stop_str_in_output=True, logprobs=1),
        ),
        Request(
            "min_tokens",
            text[60:78],
            seeded(14, 30, min_tokens=9, stop_token_ids=(77,), logit_bias={77: 100.0}, logprobs=1),
        ),
        Request(
            "end of text",
            text[70:88],
            seeded(15, 60, ignore_eos=False, logit_bias={eos: 6.0}, logprobs=1, skip_special_tokens=False),
        ),
        Request("logit_bias", text[80:95], greedy(16, logit_bias={9: 5.0, 10: -100.0, 11: 2.5}, logprobs=6)),
        Request("few allowed", text[90:110], seeded(16, 16, allowed_token_ids=tuple(range(20, 60)), logprobs=1)),
        Request("bad words", text[100:117], seeded(17, 24, temperature=0.3, bad_words=("e", "in"), logprobs=1)),
        Request("a JSON object", text[:40], seeded(19, 60, structured_outputs=schema(PERSON), logprobs=2)),
        Request(
            "a list, two answers",
            text[110:131],
            seeded(20, 60, n=2, structured_outputs=schema(LIST), frequency_penalty=0.3, ignore_eos=False, logprobs=1),
        ),
        Request(
            "an expression",
            text[:64],
            greedy(40, structured_outputs=regex("([A-Z][a-z]{3,5} ){2,3}[.!?]"), repetition_penalty=1.4, logprobs=3),
        ),
        Request("a text", "The printer folds a sheet into sixteen pages, and so", greedy(16, logprobs=1)),
        Request(
            "a conversation",
            ({"role": "system", "content": "You fold paper."}, {"role": "user", "content": "How do I make a book?"}),
            seeded(18, 16, logprobs=2),
        ),
    )


KERNEL_REQUESTS = {
    "one token in, one out",
    "two tokens in",
    "across a tile border",
    "across a partition border",
    "shared beginning",
    "top_k",
    "penalties",
    "prompt logprobs",
}


def kernel_workload(vocab_size: int, eos_ids: Sequence[int]) -> Workload:
    """The part of `tiny_workload` that number formats and shapes could tell apart."""
    return tuple(request for request in tiny_workload(vocab_size, eos_ids) if request.name in KERNEL_REQUESTS)


def growing_workload(vocab_size: int, _: Sequence[int]) -> Workload:
    """Short prompts that grow long together, and so fight for blocks; some with logprobs of a longer prompt."""
    words = random.Random(12)
    text = tuple(words.randrange(8, vocab_size) for _ in range(400))
    grown = [
        Request(
            f"growing {i}",
            text[i : 2 * i + 8],
            seeded(20 + i, 60, temperature=0.8 * (i % 2), logprobs=i % 3 + 1, presence_penalty=0.5 * (i % 3)),
        )
        for i in range(14)
    ]
    scored = [Request(f"scored {i}", text[i : i + 60], greedy(24, prompt_logprobs=1)) for i in range(3)]
    reasoning = ReasoningSpec(ends=tuple((i,) for i in range(100, 200)), is_open=True)
    shaped = [
        Request(
            "growing in a shape", text[3:21], seeded(40, 60, structured_outputs=regex("[a-z ]{40,90}"), logprobs=1)
        ),
        Request(
            "growing behind reasoning",
            text[4:25],
            seeded(41, 60, structured_outputs=schema({"type": "array"}), reasoning=reasoning, logprobs=1),
        ),
    ]
    return (*grown[:4], shaped[0], *grown[4:7], *scored, *grown[7:10], shaped[1], *grown[10:])


def branching_workload(vocab_size: int, _: Sequence[int]) -> Workload:
    """A tree of long prompts: they part from one text and from each other anywhere in a block, behind windows and
    around whole blocks, and some are the beginning of others."""
    words = random.Random(13)
    text = tuple(words.randrange(8, vocab_size) for _ in range(480))
    tails = [tuple(words.randrange(8, vocab_size) for _ in range(40)) for _ in range(12)]
    partings = (1, 17, 190, 191, 192, 193, 203, 217, 255, 256, 301, 447)
    leaves = [
        Request(
            f"parts at {parting}",
            (*text[:parting], *tail[: 9 + i]),
            seeded(30 + i, 24, temperature=0.9 * (i % 2), logprobs=2),
        )
        for i, (parting, tail) in enumerate(zip(partings, tails, strict=True))
    ]
    beginnings = [Request(f"{length} tokens in", text[:length], greedy(20, logprobs=1)) for length in (192, 200, 470)]
    twigs = [
        Request(f"parts at 217 and {i}", (*text[:217], *tails[7][:i], *tails[8][:12]), seeded(50 + i, 16, logprobs=0))
        for i in (3, 8)
    ]
    return (*leaves, *beginnings, *twigs)
