"""Requests in plain language, for models that know some."""

from collections.abc import Callable, Sequence

from octavo.request.params import SamplingParams
from tests.equality.workload import Request, Workload, greedy, seeded

SYSTEM = (
    "You are a bookbinder with forty years at the bench. You answer in short, plain sentences, you name the tool and "
    "the material, and where a measure matters you give it in millimetres. You never guess: what you do not know you "
    "say so."
)
LETTER = (
    "Dear Anna, the press came on Tuesday, in three crates, and it took four of us to carry the bed up the stairs. "
    "The ink table is cracked at one corner, which the seller had not told us, but the rollers are as good as new. "
    "We set the first page by lamplight: a notice for the baker, forty words in two sizes of type, and the baker paid "
    "for it in bread. Since then we have printed a calendar, eleven visiting cards and the rules of the swimming club. "
)
Conversation = tuple[dict[str, str], ...]
PROMPTS: tuple[str | Conversation, ...] = (
    ({"role": "user", "content": "What is the capital of France?"},),
    "The capital of France is",
    ({"role": "system", "content": SYSTEM}, {"role": "user", "content": "Which glue do I use for a leather spine?"}),
    'def fold(sheet, times):\n    """Folds a sheet in half so many times."""\n    for',
    ({"role": "system", "content": SYSTEM}, {"role": "user", "content": "How thick may the boards be?"}),
    LETTER + LETTER + "In the summer we hope",
    "Grüße aus Köln! 東京は今日 \U0001f600 und",
    ({"role": "user", "content": "Write a haiku about paper."},),
    LETTER + "The baker, for his part,",
    "1, 1, 2, 3, 5, 8, 13,",
)
CHOOSING: tuple[Callable[[int, int], SamplingParams], ...] = (
    lambda seed, length: greedy(length, logprobs=3),
    lambda seed, length: seeded(seed, length, logprobs=1),
    lambda seed, length: seeded(seed, length, temperature=0.7, top_p=0.9, top_k=50, logprobs=2),
    lambda seed, length: greedy(
        length, repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.5, logprobs=1
    ),
    lambda seed, length: seeded(seed, length, n=2, min_p=0.05, logprobs=0),
    lambda seed, length: greedy(length // 2, prompt_logprobs=2, logprobs=2),
    lambda seed, length: seeded(seed, length, stop=(".", "\n", " a "), min_tokens=3),
    lambda seed, length: greedy(length, ignore_eos=False, logit_bias={260: -20.0, 28: 1.5}, logprobs=5),
    lambda seed, length: seeded(seed, length, ignore_eos=False, bad_words=("the", "The"), temperature=1.3, logprobs=1),
    lambda seed, length: seeded(seed, length, top_k=2, frequency_penalty=1.0),
)


PLAIN_PROMPTS = tuple(prompt for prompt in PROMPTS if isinstance(prompt, str))
"""For models that cannot chat."""


def text_workload(count: int, length: int, prompts: Sequence[str | Conversation] = PROMPTS) -> Workload:
    """So many requests of at most `length` tokens each; every way of choosing meets every prompt in turn."""
    return tuple(_request(i, length, prompts) for i in range(count))


def _request(i: int, length: int, prompts: Sequence[str | Conversation]) -> Request:
    prompt, choosing = i % len(prompts), (i + i // len(prompts)) % len(CHOOSING)
    return Request(f"{i}: prompt {prompt}, choosing {choosing}", prompts[prompt], CHOOSING[choosing](100 + i, length))
