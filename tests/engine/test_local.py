"""One core shared by generations: threads, signals in mid-step, streams that are left anywhere, broken steps."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FrameType

import pytest

from octavo import SamplingParams
from octavo.engine.llm import LLM
from octavo.engine.output import GenerationDelta
from octavo.errors import EngineDeadError
from tests.engine.scripted import says, scripted_llm

GREEDY = SamplingParams(temperature=0, max_tokens=64)
ANSWER = "one two three"


class TimeIsUpError(Exception):
    """What a user's time limit raises."""


def in_step(number: int, action: Callable[[], object]) -> LLM:
    """An `LLM` that says ANSWER; `action` runs inside its step of that number."""
    answer, steps = says(ANSWER), iter(range(10**6))

    def script(token_ids: Sequence[int], num_prompt: int, params: SamplingParams) -> int:
        if next(steps) == number:
            action()
        return answer(token_ids, num_prompt, params)

    return scripted_llm(script)


def is_sound(llm: LLM) -> bool:
    """All free, and the next answer is right."""
    load = llm.load()
    idle = (load.num_running, load.num_waiting, load.num_free_blocks) == (0, 0, load.num_blocks)
    return idle and llm.generate("again", GREEDY)[0].outputs[0].text == ANSWER


@pytest.fixture(autouse=True, params=[False, True], ids=["in turn", "a step ahead"])
def planning(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every engine here runs its steps in the caller's thread, or in one of their own."""
    monkeypatch.setitem(globals(), "scripted_llm", partial(scripted_llm, async_scheduling=request.param))


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads change places after every few instructions."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture
def raising_signals() -> Iterator[None]:
    """SIGALRM raises TimeIsUpError, SIGINT KeyboardInterrupt, as it does by default."""

    def ring(_: int, __: FrameType | None) -> None:
        raise TimeIsUpError

    alarm = signal.signal(signal.SIGALRM, ring)
    yield
    signal.signal(signal.SIGALRM, alarm)


@pytest.mark.usefixtures("quick_switches")
def test_threads_share_an_llm_and_each_gets_what_it_would_get_alone() -> None:
    params = SamplingParams(temperature=1, seed=5, max_tokens=20, ignore_eos=True)
    prompts = [[f"{thread} {i}" for i in range(6)] for thread in range(4)]
    alone = [[o.outputs[0].token_ids for o in scripted_llm().generate(each, params)] for each in prompts]
    llm = scripted_llm(num_blocks=40, max_num_queued_reqs=3)
    answers: dict[int, list[tuple[int, ...]]] = {}

    def work(thread: int) -> None:
        answers[thread] = [o.outputs[0].token_ids for o in llm.generate(prompts[thread], params)]

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answers.get(thread) for thread in range(4)] == alone
    assert llm.load().num_free_blocks == llm.load().num_blocks


@pytest.mark.usefixtures("raising_signals")
@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGALRM, TimeIsUpError)], ids=["ctrl-c", "limit"]
)
def test_a_signal_in_mid_step_ends_the_generation_and_leaves_the_engine_whole(
    number: int, error: type[BaseException]
) -> None:
    llm = in_step(2, lambda: signal.raise_signal(number))
    with pytest.raises(error):
        llm.generate(["a", "b"], GREEDY)
    assert is_sound(llm)


@pytest.mark.usefixtures("raising_signals")
def test_a_signal_in_the_step_of_another_generation_costs_a_resting_one_nothing() -> None:
    llm = in_step(6, lambda: signal.raise_signal(signal.SIGINT))
    resting = llm.stream("a", GREEDY)
    text = next(resting).choice.text
    with pytest.raises(KeyboardInterrupt):
        llm.generate("b", GREEDY)
    assert text + "".join(delta.choice.text for delta in resting) == ANSWER
    assert is_sound(llm)


def test_a_stream_may_be_closed_in_mid_step() -> None:
    streams: list[Iterator[GenerationDelta]] = []
    llm = in_step(4, streams.clear)  # the last reference goes
    streams.append(llm.stream("a", GREEDY))
    next(streams[0])
    assert llm.generate("b", GREEDY)[0].outputs[0].text == ANSWER
    assert is_sound(llm)


def test_a_broken_step_is_told_to_everybody_who_comes_after() -> None:
    def break_down() -> None:
        raise MemoryError("no room")

    llm = in_step(3, break_down)
    resting = llm.stream("a", GREEDY)
    next(resting)
    with pytest.raises(MemoryError):
        llm.generate("b", GREEDY)
    for use in (lambda: list(resting), lambda: llm.generate("c", GREEDY), llm.load):
        with pytest.raises(EngineDeadError, match="MemoryError: no room"):
            use()
    llm.close()


def test_a_closed_llm_says_so() -> None:
    llm = scripted_llm(says(ANSWER))
    resting = llm.stream("a", GREEDY)
    next(resting)
    llm.close()
    llm.close()
    for use in (lambda: list(resting), lambda: llm.generate("b", GREEDY), llm.load, llm.reset_prefix_cache):
        with pytest.raises(EngineDeadError, match="was closed"):
            use()
