"""Who is refused at arrival, and who may start."""

import pytest

from octavo.errors import InvalidRequestError, QueueFullError
from tests.scheduling.harness import FULL, WINDOWED, Engine, alone, make_request

# ---- refused at arrival


def refusal(engine, request):
    with pytest.raises(InvalidRequestError) as caught:
        engine.add(request)
    assert not engine.scheduler.has_work
    return caught.value


def test_an_empty_prompt():
    assert refusal(Engine(), make_request("a", 0)).field == "prompt"


@pytest.mark.parametrize("length", [32, 33, 64])
def test_a_prompt_that_leaves_no_room_for_a_token(length):
    error = refusal(Engine(max_model_len=32), make_request("a", length))
    assert error.field == "prompt"
    assert f"the prompt has {length} tokens" in error.problem
    assert "max_model_len=32" in error.problem and "at most 31 tokens" in error.problem


def test_a_prompt_of_all_but_one_token_of_the_context_yields_exactly_one_token():
    engine = Engine(max_model_len=32)
    (tokens,) = engine.generate(make_request("a", 31, max_tokens=10))
    assert len(tokens) == 1 and engine.finished["a"] == "length"


def test_a_prompt_that_never_fits_the_pool_with_the_arithmetic():
    error = refusal(Engine(num_blocks=4, block_size=4), make_request("a", 17, max_tokens=2))
    assert error.field == "prompt" and error.value == "17 tokens"
    assert "17 prompt + 2 output tokens need 5 KV blocks of 4 tokens in 1 cache group(s)" in error.problem
    assert "the whole KV memory has 4" in error.problem and "kv_cache_memory_bytes" in error.problem


def test_outputs_that_never_fit_the_pool():
    error = refusal(Engine(num_blocks=4, block_size=4), make_request("a", 10, max_tokens=8))
    assert error.field == "max_tokens" and error.value == 8
    assert "10 prompt + 8 output tokens need 5 KV blocks" in error.problem


def test_a_request_that_fills_the_pool_to_the_last_slot_runs():
    """The last token is never run, so 10 + 7 tokens need 16 slots."""
    engine = Engine(num_blocks=4, block_size=4)
    request = make_request("a", 10, max_tokens=7)
    assert engine.generate(request) == [alone(request)]
    assert engine.stats("a").max_blocks == 4


def test_each_cache_group_needs_blocks():
    refusal(Engine(num_blocks=7, block_size=4, layers=(FULL, WINDOWED)), make_request("a", 13, max_tokens=2))
    Engine(num_blocks=8, block_size=4, layers=(FULL, WINDOWED)).generate(make_request("a", 13, max_tokens=2))


def test_the_context_bounds_what_the_pool_must_hold():
    """max_tokens beyond the context is cut by the length rule, so it does not count."""
    engine = Engine(num_blocks=4, block_size=4, max_model_len=17)
    (tokens,) = engine.generate(make_request("a", 10, max_tokens=1000))
    assert len(tokens) == 7


def test_without_max_tokens_the_context_is_the_limit():
    engine = Engine(max_model_len=16)
    (tokens,) = engine.generate(make_request("a", 10, max_tokens=None))
    assert len(tokens) == 6 and engine.finished["a"] == "length"


def test_the_id_of_a_live_request():
    engine = Engine()
    engine.add(make_request("a", 3))
    with pytest.raises(InvalidRequestError, match="still live"):
        engine.add(make_request("a", 5))
    assert engine.num_waiting == 1


def test_more_requests_than_the_queue_holds():
    engine = Engine(max_num_queued_reqs=2, max_num_seqs=1)
    engine.add(make_request("a", 3), make_request("b", 3))
    with pytest.raises(QueueFullError, match="2 requests are waiting, and max_num_queued_reqs is 2") as caught:
        engine.add(make_request("c", 3))
    assert caught.value.retry_after_s > 0
    engine.step()
    engine.add(make_request("c", 3))
    engine.run()
    assert set(engine.finished) == {"a", "b", "c"}


def test_the_bound_of_the_queue_does_not_hit_preempted_requests():
    engine = Engine(num_blocks=4, block_size=4, max_model_len=16, max_num_queued_reqs=2)
    engine.add(make_request("a", 8, max_tokens=6), make_request("b", 8, max_tokens=6))
    engine.step()
    engine.add(make_request("c", 1), make_request("d", 1))
    engine.step()
    assert (engine.num_running, engine.num_waiting) == (1, 3)
    engine.run()
    assert len(engine.finished) == 4


# ---- admitted from the queue


def test_all_known_tokens_must_fit_although_the_first_chunk_would():
    engine = Engine(num_blocks=8, block_size=4, max_num_batched_tokens=8, max_model_len=32)
    engine.add(make_request("a", 4, max_tokens=16))
    engine.step()
    engine.step()
    engine.add(make_request("b", 28, max_tokens=1))
    while "a" not in engine.finished:
        assert set(engine.step()) == {"a"}
    assert engine.step() == {"b": 8}


def test_the_queue_stops_at_the_first_that_does_not_fit():
    engine = Engine(num_blocks=8, block_size=4, max_model_len=32)
    engine.add(make_request("a", 4, max_tokens=8))
    engine.step()
    engine.add(make_request("big", 32 - 1, max_tokens=1), make_request("small", 2, max_tokens=1))
    assert engine.step() == {"a": 1}
    engine.run()
    admitted = [data.request_id for plan in engine.plans for data in plan.new_requests]
    assert admitted == ["a", "big", "small"]


def test_a_hit_lowers_what_a_request_needs():
    engine = Engine(num_blocks=8, block_size=4, max_model_len=32)
    engine.add(make_request("a", range(16), max_tokens=8))
    engine.step()
    engine.add(make_request("b", range(22), max_tokens=1))
    assert set(engine.step()) == {"a", "b"}


@pytest.mark.parametrize(("watermark", "is_admitted"), [(0.0, True), (0.25, True), (0.375, False)])
def test_the_watermark_keeps_blocks_free_at_admission(watermark, is_admitted):
    """8 blocks: `a` holds 2 after its second step, `b` needs 4, so 2 are left."""
    engine = Engine(num_blocks=8, block_size=4, max_model_len=32, watermark=watermark)
    engine.add(make_request("a", 5, max_tokens=20))
    engine.step()
    engine.add(make_request("b", 16, max_tokens=2))
    assert ("b" in engine.step()) == is_admitted


def test_the_watermark_does_not_hold_in_an_empty_engine():
    engine = Engine(num_blocks=8, block_size=4, max_model_len=32, watermark=0.9)
    request = make_request("a", 30, max_tokens=2)
    assert engine.generate(request) == [alone(request)]


def test_preempted_requests_pass_the_same_gate():
    engine = Engine(num_blocks=4, block_size=4, max_model_len=16)
    engine.add(make_request("a", 8, max_tokens=8), make_request("b", 8, max_tokens=8))
    engine.step()
    assert engine.step() == {"a": 1}
    while "a" not in engine.finished:
        assert set(engine.step()) == {"a"}
    assert set(engine.step()) == {"b"}


def test_retry_after_follows_the_pace_of_admissions():
    """One request of 7 tokens at a time: a place in the queue opens every 7 steps, and a step is a second here."""
    engine = Engine(max_num_queued_reqs=2, max_num_seqs=1)

    def retry_after_s():
        with pytest.raises(QueueFullError) as caught:
            engine.add(make_request("one too many", 3))
        return caught.value.retry_after_s

    engine.add(make_request("r0", 3, 7), make_request("r1", 3, 7))
    assert retry_after_s() == 1.0
    for i in range(2, 40):
        while engine.num_waiting == 2:
            engine.step()
        engine.add(make_request(f"r{i}", 3, 7))
    assert retry_after_s() == pytest.approx(7.0, abs=0.5)
    engine.now_s += 10_000.0
    assert retry_after_s() == 60.0
