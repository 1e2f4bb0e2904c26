"""What API processes share: memory, figures, a wire, a socket."""

import asyncio
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from octavo.server import metric_totals
from octavo.server.busy_board import BusyBoard
from octavo.server.listener import SharedListener
from octavo.server.metric_totals import Exposition, Figures
from octavo.server.peer_link import Handler, PeerLink, Word
from octavo.server.quick_histogram import QuickHistogram
from octavo.server.siblings import Alone, Elders


def figures(*observed: float) -> list[Figures]:
    """What a process has counted that saw these values."""
    registry = CollectorRegistry()
    seen = Counter("seen", "Values.", ["size"], registry=registry)
    now = Gauge("now", "Values at one time.", registry=registry)
    spread = Histogram("spread", "How large they are.", buckets=(1.0, 10.0), registry=registry)
    for value in observed:
        seen.labels(size="big" if value > 5 else "small").inc()
        spread.observe(value)
    now.set(len(observed))
    return metric_totals.decode(metric_totals.encode(metric_totals.snapshot(registry)))


def text(total: list[Figures]) -> dict[str, float]:
    """Samples in Prometheus' text, without times of creation."""
    lines = generate_latest(Exposition(total)).decode().splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#") and "_created" not in line]
    return {name: float(value) for name, value in pairs}


def test_figures_of_all_processes_are_those_of_one_that_saw_everything() -> None:
    parts = [figures(0.5, 7.0), figures(20.0), figures()]
    assert text(metric_totals.added_up(parts)) == text(figures(0.5, 7.0, 20.0))
    assert text(figures(0.5, 7.0, 20.0))['spread_bucket{le="10.0"}'] == 2.0


def test_the_earliest_time_of_creation_is_kept() -> None:
    first, second = figures(1.0), figures(2.0)
    times = [
        [value for family in one for name, _, value in family.samples if name == "spread_created"]
        for one in (first, second, metric_totals.added_up([second, first]))
    ]
    assert times[2] == [min(times[0] + times[1])]


def test_a_busy_board_is_the_same_for_all_who_open_it(tmp_path: Path) -> None:
    first, second = (BusyBoard(tmp_path / "board", process=number, num_processes=2) for number in range(2))
    (tmp_path / "board").unlink()
    first.write(3)
    second.write(4)
    assert first.total == second.total == 7
    first.clear(1)
    assert second.total == 3


def test_a_process_that_begins_anew_counts_from_zero(tmp_path: Path) -> None:
    BusyBoard(tmp_path / "board", process=1, num_processes=2).write(4)
    assert BusyBoard(tmp_path / "board", process=1, num_processes=2).total == 0


def test_a_shared_listener_takes_one_connection_per_turn() -> None:
    with SharedListener() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        clients = [socket.create_connection(listener.getsockname()) for _ in range(2)]
        accepted = []
        for _ in range(2):
            accepted.append(listener.accept()[0])
            with pytest.raises(BlockingIOError):
                listener.accept()
        with pytest.raises(BlockingIOError):
            listener.accept()
        for one in (*accepted, *clients):
            one.close()


async def linked(handlers: dict[Word, Handler]) -> tuple[PeerLink, PeerLink, "asyncio.Task[None]"]:
    """Both ends, and the answering of the second."""
    ends = socket.socketpair()
    first, second = [await PeerLink.over(end) for end in ends]
    return first, second, asyncio.create_task(second.listen(handlers))


def test_questions_are_answered_beside_each_other_and_the_end_is_noticed() -> None:
    async def body() -> None:
        gate = asyncio.Event()

        async def slow(content: bytes) -> bytes:
            await gate.wait()
            return b"slow " + content

        async def quick(content: bytes) -> bytes:
            gate.set()
            return b"quick " + content

        first, second, answering = await linked({Word.TOTALS: slow, Word.FIGURES: quick})
        listening = asyncio.create_task(first.listen({}))
        answers = await asyncio.gather(first.ask(Word.TOTALS, b"a"), first.ask(Word.FIGURES, b"b"))
        assert answers == [b"slow a", b"quick b"]
        first.close()
        await asyncio.wait_for(answering, 10)
        second.close()
        listening.cancel()

    asyncio.run(body())


def test_figures_never_fall_for_want_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.server.siblings.PATIENCE_S", 0.01)
    others = [figures(7.0)]

    async def body() -> None:
        async def totals(_: bytes) -> bytes:
            if not others:
                await asyncio.Event().wait()
            return metric_totals.encode(others.pop())

        child, parent, answering = await linked({Word.TOTALS: totals})
        listening = asyncio.create_task(child.listen({}))
        elders = Elders(child)
        for _ in range(2):
            assert text(await elders.totals(figures(0.5))) == text(figures(0.5, 7.0))
        parent.close()
        child.close()
        await asyncio.wait_for(asyncio.gather(listening, answering), 10)

    asyncio.run(body())


def test_one_process_alone_has_its_own_figures() -> None:
    assert asyncio.run(Alone().totals(figures(1.0)))[0].name == "seen"


@given(st.lists(st.floats(0, 20) | st.sampled_from([1.0, 2.5, 10.0]), max_size=20))
def test_a_quick_histogram_counts_as_prometheus_does(values: list[float]) -> None:
    quick_registry, registry = CollectorRegistry(), CollectorRegistry()
    quick = QuickHistogram("spread", "Text.", {"model": "x"}, (1, 2.5, 10), quick_registry)
    slow = Histogram("spread", "Text.", ["model"], buckets=(1, 2.5, 10), registry=registry)
    for value in values:
        quick.observe(value)
        slow.labels(model="x").observe(value)
    if values:
        assert text(metric_totals.snapshot(quick_registry)) == text(metric_totals.snapshot(registry))
    assert text(metric_totals.snapshot(quick_registry))['spread_count{model="x"}'] == len(values)
