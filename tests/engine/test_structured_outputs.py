"""Answers of a given shape through the Python API, on a model with random weights."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from octavo import LLM, SamplingParams
from octavo.engine.output import CompletionOutput
from octavo.errors import InvalidRequestError
from octavo.request.outputs import FinishReason
from octavo.request.structured import StructuredKind, StructuredSpec

PROMPT = list(range(20, 37))
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}

ITEM = r"(\d{1,2}|x[ab])"


def schema(value: Any, **more: Any) -> StructuredSpec:
    return StructuredSpec(kind=StructuredKind.JSON_SCHEMA, source=json.dumps(value), **more)


def regex(source: str) -> StructuredSpec:
    return StructuredSpec(kind=StructuredKind.REGEX, source=source)


def choice(*choices: str) -> StructuredSpec:
    return StructuredSpec(kind=StructuredKind.CHOICE, choices=choices)


def grammar(source: str) -> StructuredSpec:
    return StructuredSpec(kind=StructuredKind.GRAMMAR, source=source)


def drawn(spec: StructuredSpec | None, seed: int = 1, **more: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 200, "seed": seed, "structured_outputs": spec, **more})


@pytest.fixture(scope="module", params=[False, True], ids=["in turn", "planned ahead"])
def llm(tiny_model: str, request: pytest.FixtureRequest) -> Iterator[LLM]:
    settings = {"threads": 1, "max_model_len": 512, "kv_cache_memory_bytes": 16 * 2**20}
    with LLM(tiny_model, **settings, async_scheduling=request.param) as llm:
        yield llm


def answer(llm: LLM, params: SamplingParams) -> CompletionOutput:
    ((output,),) = [one.outputs for one in llm.generate([PROMPT], params)]
    return output


@pytest.mark.parametrize("temperature", [0.0, 1.0, 2.0])
def test_each_kind_of_shape(llm: LLM, temperature: float) -> None:
    for spec, pattern in [
        (schema(PERSON), r"\{[^}]*\}"),
        (regex("[a-f]{2,9}-[0-9]{3}"), r"[a-f]{2,9}-[0-9]{3}"),
        (choice("yes", "no", "maybe not"), "yes|no|maybe not"),
        (
            grammar('root ::= item ("," item){1,3}\nitem ::= [0-9]{1,2} | "x" [ab]'),
            r"(\d{1,2}|x[ab])(,(\d{1,2}|x[ab])){1,3}",
        ),
    ]:
        for seed in range(4):
            output = answer(llm, drawn(spec, seed, temperature=temperature))
            assert output.finish_reason is FinishReason.STOP, output
            assert re.fullmatch(pattern, output.text, re.DOTALL), output.text
            assert output.token_ids[-1] in llm.info.eos_token_ids
            if spec.kind is StructuredKind.JSON_SCHEMA:
                jsonschema.validate(json.loads(output.text), PERSON)


@pytest.mark.parametrize("more", [{"ignore_eos": True}, {"min_tokens": 60}])
def test_an_answer_that_may_have_no_end_token_ends_where_it_is_whole(llm: LLM, more: dict[str, Any]) -> None:
    for seed in range(6):
        output = answer(llm, drawn(schema(PERSON), seed, **more, logprobs=1))
        assert output.finish_reason is FinishReason.STOP
        assert output.stop_reason is None
        jsonschema.validate(json.loads(output.text), PERSON)
        assert output.token_ids[-1] not in llm.info.eos_token_ids
        assert output.logprobs is not None
        assert len(output.logprobs) == len(output.token_ids)


def test_the_end_of_a_whole_answer_is_good_even_where_its_length_is_up(llm: LLM) -> None:
    spec = regex("[ab]{4}")
    whole = answer(llm, drawn(spec, ignore_eos=True))
    assert answer(llm, drawn(spec, ignore_eos=True, max_tokens=len(whole.token_ids))).finish_reason is FinishReason.STOP
    cut = answer(llm, drawn(spec, max_tokens=len(whole.token_ids)))  # the end token has no room any more
    assert (cut.text, cut.finish_reason) == (whole.text, FinishReason.LENGTH)
    ended = answer(llm, drawn(spec, max_tokens=len(whole.token_ids) + 1))
    assert (ended.text, ended.finish_reason) == (whole.text, FinishReason.STOP)


def test_min_tokens_forbids_end_tokens_where_the_answer_may_go_on(llm: LLM) -> None:
    for seed in range(4):
        output = answer(llm, drawn(regex("[ab]+"), seed, min_tokens=30, max_tokens=60))
        assert len(output.token_ids) >= 30
        assert re.fullmatch("[ab]+", output.text)


def test_what_cannot_be_had_ends_its_request_alone_and_names_field_keyword_and_place(llm: LLM) -> None:
    bad = schema({"type": "object", "properties": {"a": {"not": {}}}}, field="response_format")
    everybody = [drawn(schema(PERSON)), drawn(bad), drawn(None, max_tokens=5, ignore_eos=True), drawn(bad, n=2)]
    outputs = llm.generate([PROMPT] * 4, everybody)
    jsonschema.validate(json.loads(outputs[0].outputs[0].text), PERSON)
    assert len(outputs[2].outputs[0].token_ids) == 5
    for output in (outputs[1].outputs[0], *outputs[3].outputs):
        assert output.finish_reason is FinishReason.ERROR
        assert re.search(r"response_format: at \$\.properties\.a: the keyword 'not'", output.error or "")
        assert output.stats is not None
        assert output.stats.num_computed_tokens == 0
    assert llm.load().num_waiting_for_grammar == 0


def test_contradictions_end_their_request_with_what_contradicts(llm: LLM) -> None:
    outputs = llm.generate(
        [PROMPT] * 3,
        [
            drawn(regex("[ab]{3}"), allowed_token_ids=(200,)),
            drawn(schema(PERSON)),
            drawn(regex("x"), bad_words_token_ids=tuple((i,) for i in ids_of(llm, "x"))),
        ],
    )
    assert outputs[0].outputs[0].finish_reason is FinishReason.ERROR
    assert "the shape asked for and allowed_token_ids" in (outputs[0].outputs[0].error or "")
    jsonschema.validate(json.loads(outputs[1].outputs[0].text), PERSON)
    assert "the shape asked for and bad_words" in (outputs[2].outputs[0].error or "")


def ids_of(llm: LLM, characters: str) -> list[int]:
    """Tokens whose text is of these characters only."""
    tokenizer = llm._words.tokenizer
    assert tokenizer is not None
    texts = {i: tokenizer.token_bytes(i) for i in range(llm.info.vocab_size) if not tokenizer.is_special(i)}
    return [i for i, text in texts.items() if text and set(text) <= set(characters.encode())]


def test_end_tokens_that_other_parameters_exclude_are_no_end(llm: LLM) -> None:
    """It would be a contradiction, if the answer did not end anyhow where nothing can follow."""
    for more in (
        {"allowed_token_ids": tuple(ids_of(llm, "ab"))},
        {"bad_words_token_ids": ((llm.info.eos_token_ids[0],),)},
    ):
        output = answer(llm, drawn(regex("[ab]{5}"), **more))
        assert (output.finish_reason, len(output.text)) == (FinishReason.STOP, 5)


def test_only_the_empty_answer(llm: LLM) -> None:
    empty = answer(llm, drawn(regex("()")))
    assert (empty.text, empty.finish_reason) == ("", FinishReason.STOP)
    for more in ({"ignore_eos": True}, {"min_tokens": 1}):
        output = answer(llm, drawn(regex("()"), **more))
        assert output.finish_reason is FinishReason.ERROR
        assert "only the empty answer" in (output.error or "")


def test_several_answers_to_one_prompt_differ_and_each_is_whole(llm: LLM) -> None:
    (output,) = llm.generate([PROMPT], drawn(schema(PERSON), n=5, temperature=1.5))
    texts = [choice.text for choice in output.outputs]
    assert len(set(texts)) == 5
    for text in texts:
        jsonschema.validate(json.loads(text), PERSON)


def test_logprobs_are_those_of_the_model_before_the_mask(llm: LLM) -> None:
    (guided,) = llm.generate([PROMPT], drawn(choice("zebra"), temperature=0.0, logprobs=20))
    (free,) = llm.generate([PROMPT], drawn(None, temperature=0.0, logprobs=20, max_tokens=1, ignore_eos=True))
    first, unmasked = guided.outputs[0].logprobs[0], free.outputs[0].logprobs[0]  # type: ignore[index]
    assert first.token_ids[1:] == unmasked.token_ids[1:]
    assert first.logprobs[1:] == unmasked.logprobs[1:]
    assert first.token_ids[0] != unmasked.token_ids[0]
    assert first.rank > 1


ENDLESS = regex("[ -~\\n]*")


@pytest.mark.parametrize(
    "more",
    [
        {"temperature": 0.0},
        {"temperature": 1.3, "logprobs": 3},
        {"top_k": 7, "top_p": 0.9, "min_p": 0.01},
        {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.4, "logprobs": 2},
        {"logit_bias": {40: 3.0, 50: -5.0}, "min_tokens": 7},
        {"n": 3},
        {"stop": ("e", "th")},
        {"prompt_logprobs": 2},
    ],
    ids=str,
)
def test_a_grammar_that_allows_everything_changes_nothing(llm: LLM, more: dict[str, Any]) -> None:
    """Everything that is allowed anyway: no grammar lets text be what is no text."""
    printable = (*ids_of(llm, "".join(map(chr, range(32, 127))) + "\n"), *llm.info.eos_token_ids)
    common = {"max_tokens": 40, "allowed_token_ids": printable, **more}
    (guided,) = llm.generate([PROMPT], drawn(ENDLESS, **common))
    (free,) = llm.generate([PROMPT], drawn(None, **common))
    for one, other in zip(guided.outputs, free.outputs, strict=True):
        assert one.text == other.text
        assert one.token_ids == other.token_ids
        assert one.logprobs == other.logprobs
        assert (one.finish_reason, one.stop_reason) == (other.finish_reason, other.stop_reason)
    assert guided.prompt_logprobs == free.prompt_logprobs


def test_stop_strings_and_stop_ids_end_answers_before_they_are_whole(llm: LLM) -> None:
    spec = schema(PERSON)
    whole = answer(llm, drawn(spec))
    cut = answer(llm, drawn(spec, stop=('"age"',)))
    assert (cut.finish_reason, cut.stop_reason) == (FinishReason.STOP, '"age"')
    assert whole.text.startswith(cut.text)
    token = whole.token_ids[3]
    cut = answer(llm, drawn(spec, stop_token_ids=(token,)))
    assert cut.stop_reason == token
    assert cut.token_ids == whole.token_ids[: whole.token_ids.index(token) + 1]


def test_ids_without_text(llm: LLM) -> None:
    output = answer(llm, drawn(choice("yes", "no"), detokenize=False))
    assert output.text == ""
    assert output.token_ids == answer(llm, drawn(choice("yes", "no"))).token_ids


def test_the_ledger_says_how_long_the_grammar_took(llm: LLM) -> None:
    first = answer(llm, drawn(regex("[ab]{7}x"))).stats
    again = answer(llm, drawn(regex("[ab]{7}x"))).stats
    assert first is not None
    assert again is not None
    assert first.waited_for_grammar_s > again.waited_for_grammar_s >= 0.0
    free = answer(llm, drawn(None, max_tokens=2)).stats
    assert free is not None
    assert free.waited_for_grammar_s == 0.0


def test_without_a_tokenizer_there_are_no_shapes(tiny_model: str) -> None:
    with (
        LLM(tiny_model, skip_tokenizer_init=True, threads=1, max_model_len=64) as llm,
        pytest.raises(InvalidRequestError, match=r"response_format=.*skip_tokenizer_init"),
    ):
        llm.generate([PROMPT], drawn(schema({}, field="response_format")))


def test_leaving_while_a_grammar_is_compiled(llm: LLM) -> None:
    """A generator that is closed before its first delta."""
    big = schema({"enum": [f"value {i} {'y' * 20}" for i in range(3000)]})
    stream = llm.stream(PROMPT, drawn(big))
    other = llm.stream(PROMPT, drawn(None, max_tokens=3, ignore_eos=True, detokenize=False))
    next(other)
    stream.close()
    assert len(list(other)) == 2
    assert llm.load().num_waiting_for_grammar == 0
