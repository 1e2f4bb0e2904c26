"""Settings of each sampling parameter alone and of several together, for a small random model."""

from typing import Any

from hypothesis import strategies as st

from octavo.request.params import SamplingParams
from octavo.request.reasoning import ReasoningSpec
from octavo.request.repetition import RepetitionDetection
from octavo.request.structured import StructuredKind, StructuredSpec

DRAWN = {"temperature": 1.0, "seed": 7}
GREEDY = {"temperature": 0.0}
LETTERS = StructuredSpec(kind=StructuredKind.REGEX, source="[a-f ]{80,90}")
"""A shape that no answer here comes to the end of."""
ALONE: dict[str, dict[str, Any]] = {
    "greedy": {**GREEDY, "logprobs": 3},
    "seed": {**DRAWN, "logprobs": 1},
    "temperature": {**DRAWN, "temperature": 0.4},
    "top_k": {**DRAWN, "top_k": 5, "temperature": 3.0},
    "top_p": {**DRAWN, "top_p": 0.4, "logprobs": 0},
    "min_p": {**DRAWN, "min_p": 0.2, "temperature": 2.0},
    "repetition_penalty": {**GREEDY, "repetition_penalty": 1.8, "logprobs": 2},
    "repetition_penalty below 1": {**GREEDY, "repetition_penalty": 0.6},
    "presence_penalty": {**GREEDY, "presence_penalty": 1.5},
    "frequency_penalty": {**GREEDY, "frequency_penalty": 1.2},
    "frequency_penalty below 0": {**DRAWN, "frequency_penalty": -2.0, "top_k": 40},
    "logit_bias": {**GREEDY, "logit_bias": {9: 4.0, 10: -100.0, 11: 1.5}, "logprobs": 4},
    "allowed_token_ids": {**DRAWN, "allowed_token_ids": tuple(range(20, 50)), "logprobs": 1},
    "bad words of several tokens": {
        **GREEDY,
        "logit_bias": {30: 60.0, 31: 59.0},
        "bad_words_token_ids": ((30, 30), (30, 31, 30), (31, 31)),
    },
    "bad words as text": {
        **GREEDY,
        "bad_words": ("ab",),  # two tokens, and two others behind a space
        "logit_bias": {264: 60.0, 67: 59.8, 68: 59.9},
        "frequency_penalty": 1.0,
    },
    "min_tokens": {**DRAWN, "min_tokens": 9, "stop_token_ids": (33,), "logit_bias": {33: 100.0}},
    "min_tokens and end of sequence": {**DRAWN, "min_tokens": 6, "ignore_eos": False, "logit_bias": {2: 100.0}},
    "stop_token_ids": {**DRAWN, "stop_token_ids": tuple(range(100, 300))},
    "logprob_token_ids": {**DRAWN, "logprobs": 2, "logprob_token_ids": (9, 300, 4, 250)},
    "thinking budget, open": {
        **DRAWN,
        "reasoning": ReasoningSpec(ends=((40,),), forced_end=(41, 40, 42), budget=5, is_open=True),
        "logprobs": 1,
    },
    "thinking budget, markers": {
        **DRAWN,
        "logit_bias": {50: 30.0, 51: 29.0},
        "bad_words_token_ids": ((50, 50), (51, 51), (51, 50)),
        "reasoning": ReasoningSpec(
            begins=((50, 51),), ends=((40, 41),), forced_end=(40, 41), budget=4, is_open=False, reopens=True
        ),
    },
    "repetition_detection": {
        **GREEDY,
        "logit_bias": {30: 60.0, 31: 59.0},
        "bad_words_token_ids": ((30, 30), (31, 31)),
        "repetition_detection": RepetitionDetection(min_pattern_size=2, max_pattern_size=3, min_count=4),
    },
    "structured_outputs": {**DRAWN, "structured_outputs": LETTERS, "logprobs": 2},
    "structured_outputs and others": {
        **DRAWN,
        "structured_outputs": LETTERS,
        "temperature": 2.0,
        "top_k": 20,
        "frequency_penalty": 1.5,
        "logit_bias": {67: 3.0},
        "bad_words": ("bc",),
        "logprobs": 0,
        "logprob_token_ids": (66, 67),
    },
    "structured_outputs behind a budget": {
        **DRAWN,
        "structured_outputs": LETTERS,
        "reasoning": ReasoningSpec(ends=((40,),), forced_end=(41, 40), budget=5, is_open=True),
        "logprobs": 1,
    },
    "structured_outputs behind markers": {
        **DRAWN,
        "structured_outputs": LETTERS,
        "logit_bias": {50: 100.0},
        "bad_words_token_ids": ((50, 50),),
        "reasoning": ReasoningSpec(begins=((50,),), ends=((40,),), forced_end=(40,), budget=4),
    },
    "all together": {
        "temperature": 0.8,
        "seed": 9,
        "top_k": 60,
        "top_p": 0.9,
        "min_p": 0.01,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.3,
        "logit_bias": {5: 2.0},
        "min_tokens": 4,
        "logprobs": 5,
        "prompt_logprobs": 2,
    },
    "three answers": {**DRAWN, "n": 3, "logprobs": 2, "frequency_penalty": 0.7, "top_p": 0.8},
}


FIELD = {
    "bad words of several tokens": "bad_words_token_ids",
    "bad words as text": "bad_words",
    "thinking budget, open": "reasoning",
    "thinking budget, markers": "reasoning",
    **{name: name.split(" ")[0] for name in ALONE if name.split(" ")[0] in SamplingParams.__struct_fields__},
}
"""The parameter that a setting is about."""
SEEN_OTHERWISE = {"seed", "logprob_token_ids"}
"""Parameters that need not change a token."""


def params_of(fields: dict[str, Any], max_tokens: int = 20) -> SamplingParams:
    """Parameters that go on for `max_tokens`, if nothing of theirs ends them."""
    return SamplingParams(**{"max_tokens": max_tokens, "ignore_eos": True, **fields})


ids = st.integers(8, 250)
mixtures = st.fixed_dictionaries(
    {"seed": st.integers(0, 2**63 - 1)},
    optional={
        "temperature": st.sampled_from([0.0, 0.3, 1.0, 2.5]),
        "top_k": st.sampled_from([0, -1, 1, 7, 100]),
        "top_p": st.sampled_from([1.0, 0.95, 0.5, 0.01]),
        "min_p": st.sampled_from([0.0, 0.02, 0.5]),
        "repetition_penalty": st.sampled_from([1.0, 1.4, 0.7]),
        "presence_penalty": st.sampled_from([0.0, 1.0, -1.0]),
        "frequency_penalty": st.sampled_from([0.0, 0.5, -0.5]),
        "logit_bias": st.dictionaries(ids, st.sampled_from([-100.0, -2.0, 0.0, 3.0, 8.0]), max_size=5),
        "allowed_token_ids": st.none() | st.lists(ids, min_size=12, max_size=60, unique=True).map(tuple),
        "bad_words_token_ids": st.lists(st.lists(ids, min_size=1, max_size=3).map(tuple), max_size=4).map(tuple),
        "min_tokens": st.integers(0, 8),
        "stop_token_ids": st.lists(ids, max_size=4, unique=True).map(tuple),
        "logprobs": st.sampled_from([0, 1, 5]),
        "reasoning": st.builds(
            lambda budget, opened: ReasoningSpec(
                begins=((60,),), ends=((61,),), forced_end=(62, 61), budget=budget, is_open=opened
            ),
            st.integers(-1, 6),
            st.booleans(),
        ),
        "repetition_detection": st.builds(
            lambda high, count: RepetitionDetection(max_pattern_size=high, min_count=count),
            st.integers(1, 4),
            st.integers(2, 3),
        ),
    },
)
"""Any of the parameters together."""
