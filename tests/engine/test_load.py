"""What a router learns of an engine: at once also in mid-step, with step times, and with the names of KV blocks."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import zmq
import zmq.asyncio

from octavo import LLM, AsyncLLM, SamplingParams
from octavo.engine.load_window import LoadReceiver, LoadSender
from octavo.engine.step_rates import StepRates
from octavo.errors import EngineDeadError
from octavo.kv.hashing import BlockHasher
from octavo.request.control import EngineLoad
from octavo.request.pin import PinRequest
from octavo.scheduling.plan import StepPlan, StepTimings
from tests.engine.scripted import says, scripted_llm

GREEDY = SamplingParams(temperature=0, max_tokens=8)


def wait_for(load: Callable[[], EngineLoad | None], wanted: Callable[[EngineLoad], bool]) -> EngineLoad:
    """Looks until the load is as wanted, at most 20 s."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        seen = load()
        if seen is not None and wanted(seen):
            return seen
        threading.Event().wait(0.002)
    pytest.fail(f"never as wanted; last {load()}")


@pytest.mark.parametrize("ahead", [False, True], ids=["in turn", "a step ahead"])
def test_the_newest_load_is_there_while_a_step_runs(tmp_path: Path, ahead: bool) -> None:
    gate, entered = threading.Event(), threading.Event()
    answer = says("x")

    def script(*known: object) -> int:
        entered.set()
        assert gate.wait(20)
        return answer(*known)  # type: ignore[arg-type]

    with scripted_llm(script, async_scheduling=ahead) as llm, zmq.asyncio.Context() as context:
        core, address = llm._engine._core, f"ipc://{tmp_path}/load"
        receiver = LoadReceiver(context, address)
        assert receiver.newest() is None
        sender = LoadSender(zmq.Context.shadow(context), [address], core.load)
        core.before_landing = sender.before
        user = threading.Thread(target=lambda: llm.generate("a prompt of some length", GREEDY))
        user.start()
        try:
            assert entered.wait(20)
            load = wait_for(receiver.newest, lambda load: load.num_running == 1)
            assert (load.num_running_tokens, load.num_tokens_to_run, load.num_waiting) == (23, 1, 0)
            assert load.num_blocks - load.num_free_blocks == 6
        finally:
            gate.set()
            user.join()
            sender.close()
            receiver.close()


def test_an_older_load_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    with scripted_llm(says("x")) as llm, zmq.asyncio.Context() as context:
        receiver = LoadReceiver(context, f"ipc://{tmp_path}/load")
        first, second = llm.load(), llm.load()
        receiver.take(second)
        receiver.take(first)
        assert receiver.newest() == second and first.published_s < second.published_s
        receiver.close()


def test_a_core_process_tells_its_load_unasked(tiny_model: str, capfd: pytest.CaptureFixture[str]) -> None:
    asyncio.run(_watch(tiny_model))
    assert capfd.readouterr().err == "", "at its end all native objects are freed"


async def _watch(model: str) -> None:
    llm = await AsyncLLM.start(model, max_model_len=128, num_kv_blocks=40, threads=1, speculation="off")
    try:
        assert llm.newest_load().num_running == 0
        answer = llm.generate([3] * 70, SamplingParams(temperature=0, max_tokens=57, ignore_eos=True), session="s")
        running = [llm.newest_load().num_running async for _ in answer]
        assert 1 in running
        await asyncio.to_thread(wait_for, llm.newest_load, lambda load: load.num_running == 0)
        load = llm.newest_load()
        assert load.num_sessions == 1 and load.num_pinned_blocks == 7
        assert load.decode_step_s is not None and 0 < load.decode_step_s < 1
        assert load.prefill_tokens_per_s is not None and load.prefill_tokens_per_s > 1
        assert 0 <= time.monotonic() - load.published_s < 20
        await llm.extend_session(PinRequest(session_id="s", lease_s=1))
        lapsed = await asyncio.to_thread(wait_for, llm.newest_load, lambda load: load.num_sessions == 0)
        assert lapsed.num_free_blocks == lapsed.num_blocks, "an idle core notices the end of a lease by itself"
    finally:
        await llm.shutdown()
    with pytest.raises(EngineDeadError):
        llm.newest_load()


def plan(counts: tuple[int, ...], drafts: tuple[int, ...] = ()) -> StepPlan:
    names = tuple(str(number) for number in range(len(counts)))
    nothing = tuple(((),) for _ in counts)
    return StepPlan(
        step=0,
        request_ids=names,
        num_scheduled_tokens=counts,
        num_computed_tokens=counts,
        num_draft_tokens=drafts,
        new_block_ids=nothing,
    )


def test_step_times_are_moving_averages_by_kind() -> None:
    rates = StepRates()
    assert rates.decode_step_s is None and rates.prefill_tokens_per_s is None
    for _ in range(100):
        rates.measured(plan((1, 1, 1)), StepTimings(prepare_s=0.001, execute_s=0.018, sample_s=0.001))
        rates.measured(plan((500, 1)), StepTimings(execute_s=0.5))
        rates.measured(plan((9, 1, 1, 1)), StepTimings(execute_s=9.0))  # neither
    rates.measured(plan((50, 51, 50), drafts=(49, 50, 49)), StepTimings(execute_s=0.02))  # decodes, however many drafts
    assert rates.decode_step_s == pytest.approx(0.02)
    assert rates.prefill_tokens_per_s == pytest.approx(501 / 0.5)


def test_names_of_blocks_can_be_computed_from_the_root(tiny_model: str) -> None:
    with LLM(tiny_model, max_model_len=128, num_kv_blocks=40, threads=1) as llm:
        prompt = [3 + i % 50 for i in range(40)]
        llm.generate(prompt, GREEDY)
        names: list[bytes] = []
        BlockHasher("", llm.info.block_size, root=bytes.fromhex(llm.info.kv_root)).extend(names, prompt, 2)
        manager = llm._engine._core._scheduler._manager
        assert all(name in manager._groups[0].index for name in names) and len(names) == 2


def test_a_load_crosses_whole() -> None:
    with scripted_llm(says("x")) as llm:
        llm.generate("something", GREEDY)
        load = llm.load()
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(load), type=EngineLoad) == load
