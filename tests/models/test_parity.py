"""Every family against transformers, through the engine: one chunk, chunks, a cached prefix, preempted.

The figures are in docs/models.md; `python -m tests.models.report` writes them there.
"""

import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from octavo.model.registry import BUILT_IN
from tests.models.cases import CASES
from tests.models.matrix import BOUND, max_error
from tests.models.oracle import Oracle, Transformers
from tests.models.paths import PATHS, Scored, prompts
from tests.models.report import DOCUMENT, columns_of, rows_of

OracleOf = Callable[[str], Oracle]

needs_oracle = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")),
    reason="torch and transformers are not installed: pip install 'octavo[oracle]'",
)
others_warn = pytest.mark.filterwarnings("default")  # what other libraries warn of is not ours to mend


@pytest.fixture(scope="module")
def oracle_of(tmp_path_factory: pytest.TempPathFactory) -> OracleOf:
    """The model of a case by its name, made at its first use."""
    return cache(lambda name: Transformers(CASES[name], tmp_path_factory.mktemp("case")))


@pytest.fixture(scope="module")
def scored_by(oracle_of: OracleOf) -> Callable[[str, str], list[Scored]]:
    """(case, path) -> what came of it."""
    return cache(lambda name, path: PATHS[path](CASES[name], oracle_of(name).folder))


@needs_oracle
@others_warn
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", CASES)
def test_logprobs_are_those_of_transformers(oracle_of: OracleOf, scored_by, name: str, path: str) -> None:
    scored = scored_by(name, path)
    assert all(sequence.rows for sequence in scored)
    assert max_error(oracle_of(name), scored) < BOUND


@needs_oracle
@others_warn
@pytest.mark.parametrize("name", CASES)
def test_all_paths_say_the_same(scored_by, name: str) -> None:
    """The promise, on the models of the matrix: the first prompt's answer and its logprobs, bit for bit."""
    first = scored_by(name, "one chunk")[0]
    answer = range(first.num_prompt_tokens, len(first.token_ids))
    for path in PATHS:
        if path == "reference executor":  # its sums have an order of their own
            continue
        other = scored_by(name, path)[0]
        assert other.token_ids == first.token_ids
        assert [other.rows[index] for index in answer] == [first.rows[index] for index in answer]
    assert len({first.token_ids[index] for index in answer}) > 3, "it repeats itself"


@needs_oracle
@others_warn
def test_a_wrong_model_is_seen(oracle_of: OracleOf, scored_by) -> None:
    """The bound tells models apart that differ in little: here in how the rotary frequencies are scaled."""
    other = oracle_of("llama, tied, llama3 scaling")
    mistaken = [Scored(s.token_ids, s.rows, s.num_prompt_tokens) for s in scored_by("llama", "one chunk")]
    assert max_error(other, mistaken) > 100 * BOUND


def test_prompts_differ_and_fit() -> None:
    for case in CASES.values():
        lengths = [len(prompt) for prompt in prompts(case)]
        assert max(lengths) < case.context
        assert len({tuple(prompt) for prompt in prompts(case)}) == len(lengths)


def test_every_family_is_in_the_matrix() -> None:
    types = {case.model_type for case in CASES.values()}
    assert [family.name for family in BUILT_IN if types.isdisjoint(family.hf_model_types)] == []


def test_the_table_in_the_documentation_has_all_of_it() -> None:
    """Names and bounds, not digits: `python -m tests.models.report` writes them."""
    rows = rows_of(Path(DOCUMENT).read_text(encoding="utf-8"))
    assert columns_of(Path(DOCUMENT).read_text(encoding="utf-8")) == list(PATHS)
    assert list(rows) == list(CASES), "run python -m tests.models.report"
    for name, figures in rows.items():
        assert len(figures) == len(PATHS), name
        assert all(0 < figure < BOUND for figure in figures), name
