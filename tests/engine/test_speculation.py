"""Who guesses where nothing, or `auto`, is said."""

from typing import Any

import pytest

from octavo import LLM, SamplingParams
from octavo.config import EngineConfig
from octavo.engine.speculation import readings


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ["suffix", "off"]),
        ({"speculation": "auto"}, ["suffix", "off"]),
        ({"num_speculative_tokens": 3}, ["suffix"]),
        ({"executor": "reference"}, ["off"]),
        ({"executor": "reference", "num_speculative_tokens": 3}, ["suffix"]),
        ({"speculation": "off"}, ["off"]),
        ({"speculation": "ngram"}, ["ngram"]),
        ({"speculative_config": {"method": "ngram"}}, ["ngram"]),
    ],
)
def test_what_may_be_meant(fields: dict[str, Any], names: list[str]) -> None:
    config = EngineConfig.from_fields(fields)
    meant = readings(config)
    assert [one.speculation.speculation for one in meant] == names
    assert all(one.execution == config.execution for one in meant)
    assert {one.speculation.num_speculative_tokens for one in meant} == {fields.get("num_speculative_tokens")}


def test_the_start_line_names_who_guesses(tiny_model: str) -> None:
    settings: dict[str, Any] = {"max_model_len": 64, "num_kv_blocks": 20, "threads": 1}
    for fields, name in (({}, "suffix"), ({"executor": "reference"}, "off"), ({"speculation": "off"}, "off")):
        with LLM(tiny_model, **settings, **fields) as llm:
            assert llm.info.speculation == name
            assert llm.info.describe().endswith(", speculation by suffix") == (name == "suffix")


def test_the_default_guesses_and_changes_nothing(tiny_model: str) -> None:
    """Each crowd begins with a few steps that find out what drafts take, so there are some on any machine."""
    params = SamplingParams(temperature=0, max_tokens=300, ignore_eos=True, logprobs=2)
    answers, drafted = [], []
    for fields in ({}, {"speculation": "off"}):
        with LLM(tiny_model, max_model_len=400, num_kv_blocks=60, threads=1, **fields) as llm:
            (choice,) = llm.generate([7, 8, 9] * 30, params)[0].outputs
        assert choice.stats is not None
        answers.append((choice.token_ids, choice.logprobs))
        drafted.append(choice.stats.num_draft_tokens)
    assert answers[0] == answers[1]
    assert drafted[0] > 0 == drafted[1]
