"""Generated JSON validates: two thousand answers of a model with random weights, over schemas of every keyword that is
enforced, checked by `jsonschema`."""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from octavo import LLM, SamplingParams, StructuredKind, StructuredSpec
from octavo.decoding.structured.json_schema.rewrite import ENFORCED
from octavo.execution.loader.tiny.write import write_tiny_model
from octavo.request.outputs import FinishReason
from tests.decoding.structured.keyword_cases import CASES

DOCS = Path(__file__).parents[2] / "docs" / "structured_output.md"
MAX_TOKENS = 900


def schemas() -> list[Any]:
    """All schemas of the cases, and one that holds many keywords at one time."""
    many = {
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": []}},
        "type": "object",
        "properties": {
            "id": {"type": "integer", "exclusiveMinimum": 0, "maximum": 10**6, "multipleOf": 5},
            "when": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "minItems": 1, "maxItems": 3},
            "kind": {"enum": ["a", 1, None, "é"]},
            "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,3}$"},
            "either": {"anyOf": [{"type": "boolean"}, {"type": "number", "minimum": -1, "maximum": 1}]},
            "tail": {"$ref": "#/$defs/node"},
        },
        "required": ["id", "when", "kind", "code", "either"],
        "additionalProperties": False,
    }
    return [many, *(schema for cases in CASES.values() for schema, _, _ in cases)]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    path = write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")
    settings = {"threads": 1, "max_model_len": 1024, "max_num_seqs": 128, "kv_cache_memory_bytes": 64 * 2**20}
    with LLM(str(path), **settings) as llm:
        yield llm


def leaning_to_an_end(llm: LLM) -> dict[int, float]:
    """A bias to what ends something, and to what patterns and formats wait for: random answers are long where a schema
    has no bound."""
    tokenizer = llm._words.tokenizer
    assert tokenizer is not None
    texts = {i: tokenizer.token_bytes(i) for i in range(llm.info.vocab_size) if not tokenizer.is_special(i)}
    lean = {**dict.fromkeys(b'"', 9.0), **dict.fromkeys(b"}]b@/.-:Z", 4.5), **dict.fromkeys(b"[{", -3.0)}
    padding = {i: -100.0 for i, text in texts.items() if text.startswith(b"[PAD")}
    of_text = {i: lean[text[0]] for i, text in texts.items() if len(text) == 1 and text[0] in lean}
    return padding | of_text | dict.fromkeys(llm.info.eos_token_ids, 6.0)


def ask(llm: LLM, count: int, first_seed: int, **more: Any) -> list[tuple[Any, str]]:
    """So many answers over all schemas in turn: (schema, answer). Every one ends by itself."""
    wanted = [schema for _, schema in zip(range(count), schemas() * count, strict=False)]
    bias = leaning_to_an_end(llm)
    params = [
        SamplingParams(
            max_tokens=MAX_TOKENS,
            seed=first_seed + i,
            temperature=(0.6, 0.8, 1.0)[i % 3],
            logit_bias=bias,
            frequency_penalty=0.3,
            structured_outputs=StructuredSpec(kind=StructuredKind.JSON_SCHEMA, source=json.dumps(schema), **more),
        )
        for i, schema in enumerate(wanted)
    ]
    outputs = llm.generate([[20 + i % 200] for i in range(count)], params)
    answers = [output.outputs[0] for output in outputs]
    for schema, answer in zip(wanted, answers, strict=True):
        assert answer.finish_reason is FinishReason.STOP, (schema, answer.error, answer.text[-80:])
    return [(schema, answer.text) for schema, answer in zip(wanted, answers, strict=True)]


def check(answers: list[tuple[Any, str]]) -> None:
    """Each is JSON of its schema, by exact arithmetic and with formats."""
    validators: dict[str, Any] = {}
    for schema, text in answers:
        key = json.dumps(schema)
        if key not in validators:
            exact = json.loads(key, parse_float=Decimal)
            made = jsonschema.Draft202012Validator
            validators[key] = made(exact, format_checker=made.FORMAT_CHECKER)
        validators[key].validate(json.loads(text, parse_float=Decimal))


def test_answers_of_every_keyword_validate(llm: LLM) -> None:
    check(ask(llm, 400, 0))


@pytest.mark.slow
def test_two_thousand_answers_validate(llm: LLM) -> None:
    check(ask(llm, 2000, 1000))


def test_white_space_does_not_run_away(llm: LLM) -> None:
    """A model that wants nothing but white space gets one break with a bounded indent between two tokens, and none
    at all where it is told so."""
    spaces = {i: 20.0 for i in range(llm.info.vocab_size) if is_white(llm, i)}
    schema = {"type": "object", "properties": {"a": {"enum": [1]}, "b": {"enum": [2]}}, "required": ["a", "b"]}
    schema |= {"additionalProperties": False}
    for compact in (False, True):
        spec = StructuredSpec(kind=StructuredKind.JSON_SCHEMA, source=json.dumps(schema), compact=compact)
        params = SamplingParams(temperature=0, max_tokens=400, logit_bias=spaces, structured_outputs=spec)
        ((answer,),) = [output.outputs for output in llm.generate([[20]], params)]
        assert answer.finish_reason is FinishReason.STOP
        assert json.loads(answer.text) == {"a": 1, "b": 2}
        runs = [len(run) for run in re.findall(r"\s+", answer.text)]
        assert max(runs, default=0) <= (0 if compact else 33)
        assert compact or runs


def is_white(llm: LLM, token_id: int) -> bool:
    tokenizer = llm._words.tokenizer
    assert tokenizer is not None
    text = tokenizer.token_bytes(token_id)
    return bool(text) and not text.strip()


def test_the_table_of_keywords_in_the_docs_is_what_is_tested() -> None:
    table = DOCS.read_text().split("Enforced:")[1].split("Harmless")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    documented = {keyword for row in rows for keyword in re.findall(r"`([$\w]+)`", row)}
    assert documented == set(CASES) == set(ENFORCED)
