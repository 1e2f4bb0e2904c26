"""What leaves the scheduler: one output per token, logprobs, the ledger, and the totals."""

from octavo.request.outputs import FinishReason
from tests.scheduling.harness import Engine, make_request


def test_the_ledger_comes_with_the_first_and_the_last_output():
    engine = Engine()
    engine.generate(make_request("a", 3, max_tokens=4))
    assert [output.stats is not None for output in engine.outputs["a"]] == [True, False, False, True]
    first, last = engine.outputs["a"][0].stats, engine.outputs["a"][-1].stats
    assert first is not last and (first.num_output_tokens, last.num_output_tokens) == (1, 4)


def test_the_ledger_tells_what_happened():
    engine = Engine(max_num_batched_tokens=8, block_size=4)
    engine.now_s = 100.0
    engine.add(make_request("other", 8, max_tokens=1))
    engine.add(make_request("a", 18, max_tokens=3))
    engine.run()
    ledger = engine.stats("a")
    assert ledger.arrival_s == 100.0
    assert ledger.first_scheduled_s == 101.0  # the step before was full
    assert ledger.first_token_s == 103.0 and ledger.finished_s == 105.0
    assert (ledger.num_prompt_tokens, ledger.num_output_tokens, ledger.num_cached_tokens) == (18, 3, 0)
    assert (ledger.num_computed_tokens, ledger.num_recomputed_tokens) == (20, 0)
    assert (ledger.num_steps, ledger.num_preemptions, ledger.max_blocks) == (5, 0, 5)


def test_a_request_carries_its_own_arrival_where_it_has_one():
    engine = Engine()
    engine.now_s = 50.0
    engine.generate(make_request("a", 3, arrival_s=42.0))
    assert engine.stats("a").arrival_s == 42.0


def test_every_request_emits_exactly_one_output_with_a_finish_reason():
    engine = Engine()
    engine.generate(*[make_request(f"r{i}", 3, max_tokens=1 + i) for i in range(5)])
    for outputs in engine.outputs.values():
        assert [output.finish_reason for output in outputs] == [None] * (len(outputs) - 1) + ["length"]


def test_unfinished_prompts_give_no_output():
    engine = Engine(max_num_batched_tokens=4)
    engine.add(make_request("a", 12))
    assert [engine.finish(engine.plan()) for _ in range(2)] == [[], []]
    assert len(engine.finish(engine.plan())) == 1


def test_logprobs_come_one_row_per_token_for_those_who_asked():
    engine = Engine()
    engine.generate(make_request("a", 3, logprobs=2), make_request("b", 3))
    rows = [row for output in engine.outputs["a"] for row in output.new_logprobs]
    assert [row.token_ids[0] for row in rows] == engine.tokens["a"]
    assert all(len(row.token_ids) == 3 for row in rows)
    assert all(output.new_logprobs is None for output in engine.outputs["b"])


def prompt_rows(engine, name):
    sent = [output.prompt_logprobs for output in engine.outputs[name] if output.prompt_logprobs is not None]
    assert len(sent) == 1 and engine.outputs[name][0].prompt_logprobs is sent[0]
    return sent[0]


def test_prompt_logprobs_come_once_with_the_first_output_whatever_the_chunks():
    whole, chunked = Engine(), Engine(max_num_batched_tokens=3)
    for engine in (whole, chunked):
        engine.generate(make_request("a", range(10), prompt_logprobs=1))
    rows = prompt_rows(chunked, "a")
    assert rows == prompt_rows(whole, "a")
    assert rows[0] is None and [row.token_ids[0] for row in rows[1:]] == list(range(1, 10))


def test_a_prompt_of_one_token_has_one_empty_row():
    engine = Engine()
    engine.generate(make_request("a", 1, prompt_logprobs=1))
    assert prompt_rows(engine, "a") == [None]


def test_prompt_logprobs_survive_preemption_in_the_prompt_and_after_it():
    alone_rows = []
    for length in (16, 7):
        engine = Engine()
        engine.generate(make_request("b", length, max_tokens=6, prompt_logprobs=0))
        alone_rows.append(prompt_rows(engine, "b"))
    early = Engine(num_blocks=6, max_model_len=24, max_num_batched_tokens=2)
    early.generate(make_request("a", 3, max_tokens=12), make_request("b", 16, max_tokens=6, prompt_logprobs=0))
    late = Engine(num_blocks=4, max_model_len=16)
    late.generate(make_request("a", 8, max_tokens=6), make_request("b", 7, max_tokens=6, prompt_logprobs=0))
    for engine, rows in zip((early, late), alone_rows, strict=True):
        assert engine.stats("b").num_preemptions > 0
        assert prompt_rows(engine, "b") == rows


def test_totals_add_up():
    engine = Engine()
    engine.generate(make_request("a", range(10), max_tokens=4), make_request("b", range(10), max_tokens=2))
    engine.add(make_request("c", 5))
    engine.scheduler.abort("c")
    totals = engine.counters
    assert totals["prompt_tokens"] == 20 and totals["cached_tokens"] == 8
    assert totals["generation_tokens"] == 6
    assert totals["computed_tokens"] == sum(plan.num_tokens for plan in engine.plans) == 20 - 8 + 6 - 2
    assert totals["steps"] == len(engine.plans) == 4
    assert (totals["finished_length"], totals["finished_abort"], totals["finished_stop"]) == (2, 1, 0)
    assert {f"finished_{reason}" for reason in FinishReason} <= set(totals)
    assert totals["evicted_blocks"] == 0


def test_load_tells_the_state_of_queues_and_pool():
    engine = Engine(num_blocks=16, max_num_seqs=1)
    engine.add(make_request("a", 10), make_request("b", 3))
    engine.step()
    load = engine.scheduler.load()
    assert (load.num_waiting, load.num_running) == (1, 1)
    assert (load.num_blocks, load.num_free_blocks, load.num_cached_blocks) == (16, 13, 2)
