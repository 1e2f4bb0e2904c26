"""`speculative_config`: what vLLM's users write is obeyed, or refused by the key that cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from octavo import LLM, SamplingParams
from octavo.cli.flags import Settings, with_settings
from octavo.config import EngineConfig, SpeculationConfig
from octavo.errors import ConfigError

NGRAM = {"method": "ngram", "num_speculative_tokens": 4}
OTHERS_OF_VLLM = (
    "draft_tensor_parallel_size",
    "tensor_parallel_size",
    "quantization",
    "moe_backend",
    "attention_backend",
    "kv_cache_dtype",
    "max_model_len",
    "revision",
    "code_revision",
    "index_share_for_mtp_iteration",
    "disable_padded_drafter_batch",
    "disable_eagle_block_drop",
    "use_local_argmax_reduction",
    "use_heterogeneous_vocab",
    "parallel_drafting",
    "num_speculative_tokens_per_batch_size",
    "enforce_eager",
    "suffix_decoding_max_tree_depth",
    "suffix_decoding_max_cached_requests",
    "suffix_decoding_max_spec_factor",
    "suffix_decoding_min_token_prob",
    "draft_load_config",
    "rejection_sample_method",
    "synthetic_acceptance_rates",
    "synthetic_acceptance_length",
    "enable_adaptive_verification",
    "draft_sample_method",
    "dspark_draft_topk",
    "speculative_token_tree",
    "disable_by_batch_size",
)
"""The keys that it knows and we do not, and two that it knew."""


def config_of(**given: Any) -> SpeculationConfig:
    return EngineConfig.from_fields({"speculative_config": given}).speculation


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        (NGRAM, {"speculation": "ngram", "num_speculative_tokens": 4}),
        ({**NGRAM, "prompt_lookup_max": 4}, {"prompt_lookup_min": 2, "prompt_lookup_max": 4}),
        ({**NGRAM, "prompt_lookup_max": 3, "prompt_lookup_min": 1}, {"prompt_lookup_min": 1, "prompt_lookup_max": 3}),
        ({"method": "suffix", "num_speculative_tokens": 32}, {"speculation": "suffix", "num_speculative_tokens": 32}),
        ({"method": "draft_model", "model": "org/tiny@v1"}, {"speculation": "draft:org/tiny@v1"}),
        ({"model": "org/tiny"}, {"speculation": "draft:org/tiny"}),
        ({"method": "eagle", "model": "/heads/one"}, {"speculation": "eagle:/heads/one"}),
        ({"method": "eagle3", "model": "/heads/three"}, {"speculation": "eagle:/heads/three"}),
        ({**NGRAM, "model": None, "revision": None}, {"speculation": "ngram"}),
        ({**NGRAM, "draft_tensor_parallel_size": 1, "parallel_drafting": False}, {"speculation": "ngram"}),
    ],
)
def test_it_says_the_same_in_our_words(given: dict[str, Any], fields: dict[str, Any]) -> None:
    config = config_of(**given)
    assert {name: getattr(config, name) for name in fields} == fields
    assert config == SpeculationConfig(**vars(config)), "what it stood for stands in the fields, once"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "method=None: is missing; give one of ngram, suffix, draft_model, eagle, eagle3"),
        ({"num_speculative_tokens": 5}, "method=None: is missing; give one of"),
        ({"method": "medusa"}, "method='medusa': must be one of"),
        ({"method": 5}, "method=5: must be a text"),
        ({"method": "eagle"}, "model=None: must name the model that guesses, for method eagle"),
        ({**NGRAM, "model": "x"}, "model='x': has no meaning for method ngram"),
        ({"method": "suffix", "prompt_lookup_max": 3}, "prompt_lookup_max=3: goes with method ngram alone"),
        ({**NGRAM, "num_speculative_tokens": "5"}, "num_speculative_tokens='5': must be a whole number"),
        ({**NGRAM, "num_speculative_tokens": True}, "num_speculative_tokens=True: must be a whole number"),
        ({**NGRAM, "revision": "v1"}, "revision='v1': write it behind the model's name: org/name@revision"),
        ({**NGRAM, "draft_tensor_parallel_size": 2}, "draft_tensor_parallel_size=2: one process runs the whole model"),
        ({**NGRAM, "parallel_drafting": 0}, "parallel_drafting=0: drafts are made one token after the other"),
        ({**NGRAM, "num_spec_tokens": 5}, "num_spec_tokens=5: no such key; known are method, model, num_spec"),
    ],
)
def test_what_cannot_be_obeyed_is_refused_by_its_key(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(**given)
    assert str(caught.value).startswith(f"speculative_config.{problem}")


@pytest.mark.parametrize("key", [*OTHERS_OF_VLLM, "anything"])
def test_no_key_is_taken_and_ignored(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"speculative_config\.{key}="):
        config_of(**NGRAM, **{key: "something"})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"num_speculative_tokens": 0}, "num_speculative_tokens=0: must be in"),
        ({"prompt_lookup_max": 33}, "prompt_lookup_max=33: must be in"),
        ({"prompt_lookup_max": 1}, "prompt_lookup_min=2: must be in .1, 1., the prompt_lookup_max"),
    ],
)
def test_numbers_have_the_bounds_of_the_fields(fields: dict[str, int], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        config_of(**{**NGRAM, **fields})
    with pytest.raises(ConfigError, match=problem):
        SpeculationConfig(speculation="ngram", **fields)  # type: ignore[arg-type]


def test_who_guesses_is_said_once() -> None:
    with pytest.raises(ConfigError, match="`speculation` says who guesses, too; give one of them"):
        EngineConfig.from_fields({"speculation": "suffix", "speculative_config": NGRAM})
    with pytest.raises(ConfigError, match="`speculation` says who guesses, too; give one of them"):
        EngineConfig.from_fields({"speculation": "off", "speculative_config": NGRAM})


def test_auto_leaves_it_open() -> None:
    settled = EngineConfig.from_fields({"speculation": "auto", "speculative_config": NGRAM}).speculation
    assert settled == config_of(**NGRAM)


def test_how_many_goes_with_somebody_who_guesses() -> None:
    with pytest.raises(ConfigError, match="num_speculative_tokens=5: goes with speculation, which is off"):
        SpeculationConfig(speculation="off", num_speculative_tokens=5)
    assert SpeculationConfig(num_speculative_tokens=5).speculation == "auto"


def test_look_ups_go_with_ngram_alone() -> None:
    with pytest.raises(ConfigError, match="prompt_lookup_max=7: goes with speculation ngram alone"):
        SpeculationConfig(speculation="suffix", prompt_lookup_max=7)


def run(tmp_path: Path, *arguments: str, file: str = "") -> SpeculationConfig:
    """What a command makes of flags and a configuration file."""
    seen: Settings = {}
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @with_settings(SpeculationConfig)
    def command(settings: Settings) -> None:
        """Help."""
        seen.update(settings)
        SpeculationConfig(**settings)

    (tmp_path / "x.yaml").write_text(file)
    result = CliRunner().invoke(app, [*arguments, *(["--config", str(tmp_path / "x.yaml")] if file else [])])
    if isinstance(result.exception, ConfigError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return SpeculationConfig(**seen)


AS_YAML = "speculative-config: {method: ngram, num_speculative_tokens: 4}"
AS_TEXT_IN_YAML = f"speculative_config: '{json.dumps(NGRAM)}'"


def test_on_the_command_line_and_in_a_file(tmp_path: Path) -> None:
    wanted = SpeculationConfig(speculation="ngram", num_speculative_tokens=4)
    assert run(tmp_path, "--speculative-config", json.dumps(NGRAM)) == wanted
    assert run(tmp_path, file=AS_YAML) == run(tmp_path, file=AS_TEXT_IN_YAML) == wanted
    suffix = '{"method": "suffix"}'
    assert run(tmp_path, "--speculative-config", suffix, file=AS_YAML).speculation == "suffix"


def test_mistakes_are_told_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--speculative-config method='medusa': must be one of ngram"):
        run(tmp_path, "--speculative-config", '{"method": "medusa"}')
    with pytest.raises(ConfigError, match=r"x\.yaml, line 1: speculative_config revision='v1': write it behind"):
        run(tmp_path, file="speculative-config: {method: ngram, revision: v1}")
    both = ["--speculation", "suffix", "--speculative-config", '{"method": "ngram"}']
    with pytest.raises(
        ConfigError, match=r"--speculative-config=.*: --speculation says who guesses, too; give one of them"
    ):
        run(tmp_path, *both)
    with pytest.raises(ConfigError, match=r"line 1: speculative_config='ngram': 'ngram' is no JSON object"):
        run(tmp_path, file="speculative_config: ngram")
    with pytest.raises(ConfigError, match=r"line 1: speculation=\{.*must be one value"):
        run(tmp_path, file="speculation: {method: ngram}")


def test_its_text_is_for_the_command_line() -> None:
    with pytest.raises(ConfigError, match=r'must be a mapping such as \{"method": "ngram"\}, not its text'):
        EngineConfig.from_fields({"speculative_config": json.dumps(NGRAM)})


def test_an_engine_obeys_it(tiny_model: str) -> None:
    """With the first token of the answer the text ends with two that stood before, not with three."""
    prompt = [6, 8, 9, 10, 30, 7, 8]
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, logit_bias={9: 100})
    tokens, drafted = [], []
    for least in (2, 3):
        given = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": least, "prompt_lookup_max": 3}
        with LLM(tiny_model, max_model_len=64, num_kv_blocks=20, threads=1, speculative_config=given) as llm:
            assert llm.info.speculation == "ngram"
            (output,) = llm.generate(prompt, params)
            tokens.append(output.outputs[0].token_ids)
            drafted.append(output.ledger[0].num_draft_tokens)  # type: ignore[union-attr]
    assert tokens == [(9, 9, 9)] * 2 and drafted[0] > drafted[1] == 0


def test_an_engine_has_the_draft_model_that_it_names(tiny_model: str) -> None:
    """The model itself, which is right in all that it guesses greedily."""
    given = {"method": "draft_model", "model": tiny_model, "num_speculative_tokens": 3}
    with LLM(tiny_model, max_model_len=64, num_kv_blocks=20, threads=1, speculative_config=given) as llm:
        (output,) = llm.generate([7, 8, 9], SamplingParams(temperature=0, max_tokens=9, ignore_eos=True))
        (stats,) = output.ledger
    assert stats is not None and stats.num_accepted_by_position == [2, 2, 2] and stats.num_wasted_draft_tokens == 0
