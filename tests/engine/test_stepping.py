"""The core with steps in the background: what overlaps, what a lost executor means, how the thread ends."""

import gc
import threading
import weakref
from queue import SimpleQueue

import pytest

from octavo import SamplingParams
from octavo.config import SchedulerConfig
from octavo.engine.core import EngineCore
from octavo.engine.stepping import InBackground, InTurn, Stepping
from octavo.execution.scripted import ScriptedExecutor
from octavo.kv.manager import KVManager
from octavo.request.outputs import RequestOutput
from octavo.request.request import GenerateRequest
from octavo.scheduling.plan import StepPlan, StepResult
from octavo.scheduling.scheduler import Scheduler
from tests.engine.scripted import EOS, says, scripted_llm
from tests.scheduling.harness import alone, make_layout, make_request

LIMIT_S = 20
"""Longer than any wait here takes; a test that comes so far fails."""


class GatedExecutor(ScriptedExecutor):
    """Its steps begin when told to."""

    def __init__(self) -> None:
        super().__init__(make_layout(64), vocab_size=1000, max_in_flight=2)
        self.begun: SimpleQueue[int] = SimpleQueue()
        self.gate = threading.Semaphore(0)

    def execute(self, plan: StepPlan) -> StepResult:
        """See `StepExecutor.execute`."""
        self.begun.put(plan.step)
        if not self.gate.acquire(timeout=LIMIT_S):
            raise TimeoutError(f"step {plan.step} was never let go")
        return super().execute(plan)


def make_core(executor: ScriptedExecutor, *, ahead: bool = True) -> EngineCore:
    config = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=64, async_scheduling=ahead)
    return EngineCore(Scheduler(config, KVManager(make_layout(64)), 128), executor, lambda: 0.0)


def run(core: EngineCore, *requests: GenerateRequest) -> dict[str, list[int]]:
    """Tokens of requests that run to their end."""
    for request in requests:
        assert core.add(request) is None
    tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
    while core.has_work:
        take(tokens, core.step())
    return tokens


def take(tokens: dict[str, list[int]], outputs: list[RequestOutput]) -> None:
    for output in outputs:
        tokens[output.request_id] += output.new_token_ids


@pytest.mark.parametrize("ahead", [False, True])
def test_tokens_are_the_same_in_turn_and_in_the_background(ahead: bool) -> None:
    requests = [make_request(f"r{i}", 4 + i, max_tokens=5 + i, eos=(*range(0, 1000, 9),)) for i in range(6)]
    core = make_core(ScriptedExecutor(make_layout(64), vocab_size=1000, max_in_flight=1 + ahead), ahead=ahead)
    assert run(core, *requests) == {request.request_id: alone(request) for request in requests}
    load = core.load()
    assert load.num_free_blocks == load.num_blocks and (load.counters["discarded_tokens"] > 0) == ahead
    core.close()


def test_the_next_step_is_planned_while_one_runs() -> None:
    """Step 0 ends only when step 1 has been planned; without the overlap that would never be."""
    executor = GatedExecutor()
    core = make_core(executor)
    schedule, planned = core._scheduler.schedule, []

    def counted_schedule(now_s: float) -> StepPlan | None:
        plan = schedule(now_s)
        planned.append(plan)
        if len(planned) == 2:
            executor.gate.release()
        return plan

    core._scheduler.schedule = counted_schedule  # type: ignore[method-assign]
    core.add(make_request("a", 6, max_tokens=9))
    outputs = core.step()
    assert len(planned) == 2 and len(outputs[0].new_token_ids) == 1
    executor.gate.release(100)
    core.close()


def test_requests_come_and_go_while_a_step_runs() -> None:
    executor = GatedExecutor()
    core = make_core(executor)
    first, second, third = (make_request(name, 6, max_tokens=6) for name in "abc")
    for request in (first, second):
        core.add(request)
    executor.gate.release()
    tokens: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    take(tokens, core.step())
    assert [executor.begun.get(timeout=LIMIT_S) for _ in range(2)] == [0, 1]  # step 1 has begun and cannot end
    core.abort(["a"])
    core.add(third)
    assert core.load().num_running == 1 and core.load().num_waiting == 1
    executor.gate.release(100)
    while core.has_work:
        take(tokens, core.step())
    assert tokens == {"a": alone(first)[:1], "b": alone(second), "c": alone(third)}
    core.close()


@pytest.mark.parametrize("ahead", [False, True])
def test_a_lost_executor_is_told_with_its_step_and_ever_after(ahead: bool) -> None:
    def script(known: object, num_prompt: int, params: SamplingParams) -> int:
        raise MemoryError("no room")

    core = make_core(ScriptedExecutor(make_layout(64), script=script, max_in_flight=1 + ahead), ahead=ahead)
    core.add(make_request("a", 6, max_tokens=9))
    for _ in range(3):
        with pytest.raises(MemoryError, match="no room"):
            core.step()
    core.close()


def test_a_closed_core_leaves_no_thread() -> None:
    core = make_core(ScriptedExecutor(make_layout(64), vocab_size=1000, max_in_flight=2))
    core.add(make_request("a", 6, max_tokens=9))
    core.step()
    thread = core._stepping._thread  # type: ignore[attr-defined]
    assert thread.is_alive()
    core.close()
    core.close()
    assert not thread.is_alive()


def test_a_core_that_is_forgotten_leaves_no_thread_and_lets_go_of_the_executor() -> None:
    executor = ScriptedExecutor(make_layout(64), max_in_flight=2)
    core, held = make_core(executor), weakref.ref(executor)
    thread = core._stepping._thread  # type: ignore[attr-defined]
    del core, executor
    gc.collect()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("kind", [InTurn, InBackground])
def test_steps_run_in_their_order(kind: type[InTurn] | type[InBackground]) -> None:
    class Recorder(ScriptedExecutor):
        def execute(self, plan: StepPlan) -> StepResult:
            return StepResult(step=plan.step, token_ids=())

    stepping: Stepping = kind(Recorder(make_layout(4)))
    columns: dict[str, tuple[()]] = dict.fromkeys(("request_ids", "num_scheduled_tokens", "num_computed_tokens"), ())
    for step in range(5):
        stepping.start(StepPlan(step=step, new_block_ids=(), **columns))
    assert [stepping.land().step for _ in range(5)] == list(range(5))
    stepping.close()


def test_an_llm_is_settled_though_a_step_of_nobody_is_still_in_flight() -> None:
    """The answer ended with a token that the step in flight did not know of."""
    llm = scripted_llm(says("one two"), async_scheduling=True)
    params = SamplingParams(temperature=0, max_tokens=40)
    for _ in range(3):
        assert llm.generate("x", params)[0].outputs[0].text == "one two"
        load = llm.load()
        assert (load.num_running, load.num_free_blocks) == (0, load.num_blocks)
        assert llm.reset_prefix_cache()
    assert load.counters["discarded_tokens"] == 2  # the last one has not landed
    assert EOS not in llm.generate("x", params)[0].outputs[0].token_ids[:-1]
    llm.close()
