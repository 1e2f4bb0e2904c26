"""Chunks and graph sizes: the arithmetic against the scheduler that really cuts prompts, and its own rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import ConfigError
from octavo.planning.steps import capture_bucket, capture_sizes, chunk_sizes
from tests.scheduling.harness import Engine, make_request


@given(prompt=st.integers(1, 5000), room=st.integers(1, 600), decodes=st.integers(0, 300))
def test_chunks_cover_the_prompt_and_only_the_last_is_smaller(prompt: int, room: int, decodes: int) -> None:
    chunks = chunk_sizes(prompt, room + decodes, decodes)
    assert sum(chunks) == prompt
    assert set(chunks[:-1]) <= {room}
    assert 1 <= chunks[-1] <= room


@pytest.mark.parametrize(("prompt", "budget", "decodes"), [(2050, 512, 0), (600, 409, 10), (96, 32, 0), (97, 40, 8)])
def test_the_scheduler_cuts_prompts_so(prompt: int, budget: int, decodes: int) -> None:
    engine = Engine(num_blocks=1000, max_model_len=4096, max_num_batched_tokens=budget, max_num_seqs=decodes + 1)
    engine.add(*(make_request(f"decode-{index}", 1, 200) for index in range(decodes)))
    if decodes:
        engine.step()
    engine.add(make_request("prompt", prompt, 2))
    seen: list[int] = []
    while not engine.tokens["prompt"]:
        scheduled = engine.step()
        seen.append(scheduled["prompt"])
        assert sum(scheduled.values()) == seen[-1] + decodes
    assert tuple(seen) == chunk_sizes(prompt, budget, decodes)


def test_decodes_that_fill_the_budget_leave_no_chunk() -> None:
    with pytest.raises(ConfigError, match="100 decoding requests leave no room"):
        chunk_sizes(50, 100, 100)


@given(tokens=st.integers(1, 2000), limit=st.integers(1, 1024))
def test_a_step_runs_in_the_next_size_up_or_without_graph(tokens: int, limit: int) -> None:
    sizes, bucket = capture_sizes(limit), capture_bucket(tokens, limit)
    if bucket is None:
        assert tokens > sizes[-1]
    else:
        assert bucket == min(size for size in sizes if size >= tokens)
