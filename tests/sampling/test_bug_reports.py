"""What other engines have got wrong about sampling, each with the input that showed it, over HTTP and in Python."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import httpx
import pytest

from octavo import LLM
from octavo.request.params import SamplingParams
from tests.sampling.conftest import COMMON, Both

PROMPT = [9, 10, 11, 12, 13, 14]
SEEDED = {"prompt": PROMPT, "max_tokens": 16, "temperature": 1, "seed": 6, "ignore_eos": True, "return_token_ids": True}
MESSAGES = {"messages": [{"role": "user", "content": "fold"}]}


def ask(both: Both, **body: Any) -> httpx.Response:
    return both.http.post("/v1/completions", json=SEEDED | body)


def ids(answer: httpx.Response) -> list[list[int]]:
    assert answer.status_code == 200, answer.text
    return [choice["token_ids"] for choice in answer.json()["choices"]]


@pytest.mark.parametrize("token_id", ["191222", "512", "-1"])
def test_a_bias_beyond_the_vocabulary_is_refused_and_the_next_request_works(both: Both, token_id: str) -> None:
    """vLLM PR 16529, #6866: it ended the engine."""
    before = ids(ask(both))
    answer = ask(both, logit_bias={token_id: -100})
    assert answer.status_code == 400 and answer.json()["error"]["param"].startswith("logit_bias")
    assert token_id in answer.json()["error"]["message"] and ids(ask(both)) == before


@pytest.mark.parametrize("prompt", [[-1], [[5, -7]], [512], [2**63], [1.5], [True]])
def test_prompt_ids_that_there_are_not_are_refused(both: Both, prompt: list[Any]) -> None:
    """vLLM PR 51795: only the upper bound was tested."""
    answer = ask(both, prompt=prompt)
    assert answer.status_code == 400 and answer.json()["error"]["param"].startswith("prompt")


def test_any_id_that_is_given_back_is_taken_as_a_prompt(both: Both) -> None:
    """vLLM #13175: padding rows of the head were drawn."""
    drawn = ids(ask(both, temperature=100, max_tokens=100, n=3))
    assert max(map(max, drawn)) < both.llm.info.vocab_size
    assert len(ids(ask(both, prompt=[*drawn[0], 5]))) == 1


@pytest.mark.parametrize("more", [{}, {"max_tokens": None}, {"max_completion_tokens": 3}, {"max_tokens": 9}])
def test_a_chat_without_max_tokens_has_all_that_is_left(both: Both, more: dict[str, Any]) -> None:
    """vLLM #6707: null ended the engine."""
    body = MESSAGES | {"ignore_eos": True, "max_completion_tokens": None} | more
    usage = both.http.post("/v1/chat/completions", json=body).json()["usage"]
    wanted = body.get("max_completion_tokens") or body.get("max_tokens") or 160 - usage["prompt_tokens"]
    assert usage["completion_tokens"] == wanted


ILLEGAL: list[tuple[str, Any]] = [
    *[("top_p", value) for value in (2, -0.5, 0)],
    *[("temperature", value) for value in (-1, 1e30)],
    *[("top_k", value) for value in (-5,)],
    *[("min_p", value) for value in (2,)],
    *[("repetition_penalty", value) for value in (0,)],
    *[("presence_penalty", value) for value in (100,)],
    *[("seed", value) for value in (-1, 2**70)],
    *[("max_tokens", value) for value in (-1, 2**63)],
]


@pytest.mark.parametrize(("field", "value"), ILLEGAL)
def test_numbers_out_of_range_are_400_by_name(both: Both, field: str, value: Any) -> None:
    """Many servers: 500."""
    answer = ask(both, **{field: value})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


@pytest.mark.parametrize("extreme", [{"temperature": 1e-6}, {"top_k": 10**9}, {"temperature": 100}, {"top_p": 1e-9}])
def test_legal_extremes_give_sane_answers(both: Both, extreme: dict[str, Any]) -> None:
    answer = ids(ask(both, **extreme))
    greedy = ids(ask(both, temperature=0))
    assert (answer == greedy) == (extreme not in ({"top_k": 10**9}, {"temperature": 100}))


def lead_of_40(answer: httpx.Response, position: int) -> float:
    """By how much the model prefers token 40 to 41, before any parameter."""
    top = answer.json()["choices"][0]["logprobs"]["top_logprobs"][position]
    return float(top["token_id:40"] - top["token_id:41"])


def test_presence_and_frequency_see_the_output_and_repetition_the_prompt_too(both: Both) -> None:
    """vLLM-metal PR 69 and others: penalties counted the wrong tokens, and none after the first step."""
    named = {"logprobs": 0, "logprob_token_ids": [40, 41], "return_tokens_as_token_ids": True}
    body = {"prompt": [40] * 6, "max_tokens": 3, "temperature": 0, "allowed_token_ids": [40, 41], **named}
    bias = {"40": 60 - lead_of_40(ask(both, **body), 0), "41": 59.5}  # token 40 leads by a half at the first position
    assert ids(ask(both, **body, logit_bias=bias))[0][0] == 40
    assert ids(ask(both, **body, logit_bias=bias, repetition_penalty=1.5))[0][0] == 41  # it stands in the prompt
    for penalty, by_count in (("presence_penalty", False), ("frequency_penalty", True)):
        answer = ask(both, **body, logit_bias=bias, **{penalty: 1.5})
        drawn = ids(answer)[0]
        for position, token in enumerate(drawn):
            counts = [drawn[:position].count(i) if by_count else int(i in drawn[:position]) for i in (40, 41)]
            lead = lead_of_40(answer, position) + bias["40"] - bias["41"] - 1.5 * (counts[0] - counts[1])
            assert (token == 40) == (lead >= 0)
        assert drawn[0] == 40


def test_every_position_has_a_draw_of_its_own(both: Both) -> None:
    """llama-cpp-python PR 1295: the generator was seeded anew at every token."""
    two = {"temperature": 100, "allowed_token_ids": [40, 41], "max_tokens": 100}
    drawn = ids(ask(both, **two))[0]
    changes = sum(a != b for a, b in pairwise(drawn))
    assert set(drawn) == {40, 41} and 10 < changes < 90


def test_a_seeded_answer_is_the_same_anywhere(both: Both) -> None:
    """vLLM #17524, #21310: it depended on slot and order."""
    alone = ids(ask(both))
    with ThreadPoolExecutor(8) as clients:
        among = list(clients.map(lambda i: ids(ask(both, seed=6 if i % 3 == 0 else i)), range(24)))
    assert [answer for i, answer in enumerate(among) if i % 3 == 0] == [alone] * 8
    assert len({tuple(answer[0]) for answer in among}) == 17
    assert ids(ask(both)) == alone


@pytest.mark.parametrize("stream", [False, True])
def test_all_answers_of_one_request_come_however_small_the_memory(tiny_model: str, stream: bool) -> None:
    """vLLM PR 16863: choices overwrote each other; preemption with several failed."""
    params = SamplingParams(n=4, temperature=1.0, seed=3, max_tokens=32, ignore_eos=True)
    fields = {**COMMON, "max_model_len": 64}
    room = {"num_kv_blocks": 12, "admission_conservativeness": 0.0, "enable_prefix_caching": False}
    with LLM(tiny_model, **fields) as large, LLM(tiny_model, **fields, **room) as small:
        (want,) = large.generate([PROMPT], params)
        if stream:
            seen: dict[int, list[int]] = {}
            for delta in small.stream(PROMPT, params):
                seen.setdefault(delta.choice.index, []).extend(delta.choice.token_ids)
            answers = [tuple(seen[index]) for index in sorted(seen)]
        else:
            answers = [answer.token_ids for answer in small.generate([PROMPT], params)[0].outputs]
        assert small.load().counters["preemptions"] > 0
    assert answers == [answer.token_ids for answer in want.outputs] and len(set(answers)) == 4
