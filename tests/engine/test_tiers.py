"""Tiers in a running engine: real stores with their threads, the core that rests and is woken, leases, shutdown."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
import zmq

from octavo import AsyncLLM
from octavo.config import CacheConfig, SchedulerConfig
from octavo.engine import wire
from octavo.engine.client_lines import ClientLines, Line
from octavo.engine.core import EngineCore
from octavo.engine.load_window import LoadSender
from octavo.engine.local import LocalEngine
from octavo.engine.process import CoreLoop
from octavo.engine.transfer_desk import TransferDesk
from octavo.engine.waker import Waker
from octavo.engine.wire import Kind
from octavo.errors import ConfigError
from octavo.execution.kv_store import TierStore
from octavo.execution.kv_store.host import HostMedium
from octavo.execution.protocols import Bytes
from octavo.execution.scripted import ScriptedExecutor
from octavo.kv.manager import KVManager
from octavo.kv.record import BlockRecord, Tier
from octavo.kv.tier_book import TierSettings
from octavo.kv.tiers import Tiers
from octavo.request import orders
from octavo.request.control import ControlRequest
from octavo.request.outputs import RequestOutput
from octavo.request.request import GenerateRequest
from octavo.scheduling.scheduler import Scheduler
from tests.scheduling.harness import FULL, VOCAB_SIZE, WINDOWED, alone, make_layout, make_request

PATIENCE_S = 20.0
"""For what happens at once; only a test that fails waits so long."""
LONG = range(40)


class GatedMedium(HostMedium):
    """Host memory that gives nothing before the gate is open."""

    def __init__(self, block_bytes: list[int], capacity_bytes: int) -> None:
        super().__init__(block_bytes, capacity_bytes)
        self.gate, self.is_asked = threading.Event(), threading.Event()
        self.gate.set()

    def read(self, record: BlockRecord) -> Bytes:
        """See `Medium.read`."""
        self.is_asked.set()
        self.gate.wait(PATIENCE_S)
        return super().read(record)


class World:
    """A core over the scripted executor, with host memory behind a pool of 20 blocks of 4 tokens."""

    def __init__(self, *, num_blocks: int = 20, layers: tuple = (FULL,), lease_s: float = 1000.0, ahead: bool) -> None:
        config = SchedulerConfig(
            max_num_seqs=8, max_num_batched_tokens=16, admission_conservativeness=0.0, async_scheduling=ahead
        )
        layout = make_layout(num_blocks, layers=layers)
        manager = KVManager(layout, max_step_tokens=16, fingerprint="test")
        executor = ScriptedExecutor(layout, vocab_size=VOCAB_SIZE, max_in_flight=2 if ahead else 1)
        block_bytes = [executor.block_bytes(group) for group in range(len(layout.groups))]
        self.waker = Waker()
        self.medium = GatedMedium(block_bytes, 400 * max(block_bytes))
        self.store = TierStore(Tier.HOST, self.medium, executor, self.waker.wake)
        settings = [TierSettings(self.store.tier, self.store.capacity_bytes, self.store.num_bytes)]
        self.tiers = Tiers(manager, settings, lease_s=lease_s)
        self.scheduler = Scheduler(config, manager, 128, tiers=self.tiers)
        self.now_s = 0.0
        self.core = EngineCore(
            self.scheduler, executor, lambda: self.now_s, desk=TransferDesk([self.store], self.waker)
        )
        self.tokens: dict[str, list[int]] = {}

    def run(self, *requests: GenerateRequest) -> None:
        """Answers requests as a loop would that is told of nothing else."""
        for request in requests:
            assert self.core.add(request) is None
        while self.core.has_work:
            self.step()

    def step(self) -> list[RequestOutput]:
        self.core.rest(PATIENCE_S)
        outputs = self.core.step()
        for output in outputs:
            self.tokens.setdefault(output.request_id, []).extend(output.new_token_ids)
        return outputs

    def settle(self) -> None:
        """Has all stored that is to be."""
        while self.tiers._transfers or any(book.backlog for book in self.tiers._books.values()):
            self.waker.wait(PATIENCE_S)
            self.core.step()

    def fill_and_evict(self) -> None:
        self.run(make_request("first", LONG, 2))
        self.settle()
        for i in range(3):
            self.run(make_request(f"other{i}", 60, 2))
            self.settle()

    def begin_to_load(self, name: str = "again") -> GenerateRequest:
        """A request that waits behind the closed gate."""
        self.fill_and_evict()
        self.medium.gate.clear()
        request = make_request(name, [*LONG, 7], 2)
        assert self.core.add(request) is None
        self.core.step()
        assert self.medium.is_asked.wait(PATIENCE_S)
        return request


Worlds = Callable[..., World]


@pytest.fixture(params=[False, True], ids=["in turn", "a step ahead"])
def new_world(request: pytest.FixtureRequest) -> Iterator[Worlds]:
    made: list[World] = []

    def new(**options: object) -> World:
        made.append(World(ahead=request.param, **options))  # type: ignore[arg-type]
        return made[-1]

    yield new
    for world in made:
        world.medium.gate.set()
        world.core.close()
        for thread in [thread for thread in threading.enumerate() if thread.name.startswith("kv-")]:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


@pytest.mark.parametrize("layers", [(FULL,), (FULL, WINDOWED)])
def test_blocks_come_back_from_a_real_store_and_tokens_are_the_same(new_world: Worlds, layers: tuple) -> None:
    world = new_world(layers=layers, num_blocks=20 * len(make_layout(1, layers=layers).groups))
    wanted = [
        make_request(f"{i} {turn}", [*range(100 * i, 100 * i + 30), turn], 5) for turn in range(3) for i in range(6)
    ]
    for turn in range(0, len(wanted), 6):
        world.run(*wanted[turn : turn + 6])
        world.settle()
    for request in wanted:
        assert world.tokens[request.request_id] == alone(request)
    counters = world.core.load().counters
    assert counters["host_loaded_blocks"] > 0 and counters["host_failed_loads"] == 0
    assert world.core.load().num_free_blocks == world.core.load().num_blocks


def test_a_core_with_nothing_but_a_load_rests_until_the_store_wakes_it(new_world: Worlds) -> None:
    world = new_world()
    request = world.begin_to_load()
    assert world.core.has_work and world.core.patience_s() == 1000.0
    while world.waker.take():
        world.core.step()
    threading.Timer(0.05, world.medium.gate.set).start()
    started = time.monotonic()
    world.run()
    assert world.tokens["again"] == alone(request) and time.monotonic() - started < PATIENCE_S / 2
    assert world.core.load().counters["host_loaded_blocks"] == 10


def test_a_core_without_work_has_patience_for_ever_once_all_is_stored(new_world: Worlds) -> None:
    world = new_world()
    assert world.core.patience_s() is None
    world.run(make_request("first", LONG, 2))
    world.settle()
    world.core.step()
    assert world.core.patience_s() is None and not world.core.has_work


def test_a_lease_that_ends_lets_the_request_run_without(new_world: Worlds) -> None:
    world = new_world(lease_s=10.0)
    request = world.begin_to_load()
    world.now_s += 9.0
    assert world.core.step() == [] and world.core.patience_s() == pytest.approx(1.0)
    world.now_s += 1.0
    assert world.core.patience_s() == 0.0
    world.run()
    assert world.tokens["again"] == alone(request)
    load = world.core.load()
    assert load.counters["host_failed_loads"] == 1 and load.num_free_blocks == load.num_blocks


def test_an_abort_ends_the_wait(new_world: Worlds) -> None:
    world = new_world()
    world.begin_to_load()
    world.core.abort(["again"])
    load = world.core.load()
    assert not world.core.has_work and load.num_free_blocks == load.num_blocks
    request = make_request("next", 30, 3)
    world.run(request)
    assert world.tokens["next"] == alone(request)


def test_closing_does_not_wait_for_a_stalled_load(new_world: Worlds) -> None:
    world = new_world()
    world.begin_to_load()
    started = time.monotonic()
    world.core.close()
    world.core.close()
    assert time.monotonic() - started < 3.0
    world.waker.wake()  # a thread that comes late


def test_what_is_left_to_be_stored_is_stored_at_the_end(new_world: Worlds) -> None:
    world = new_world()
    world.run(make_request("first", LONG, 2))
    kept: list[int] = []
    world.medium.close = lambda: kept.append(len(world.medium._slot_by_name))  # type: ignore[method-assign]
    world.core.close()
    assert kept == [10]


def test_a_local_engine_waits_for_kv_like_for_anything_else(new_world: Worlds) -> None:
    world = new_world()
    request = world.begin_to_load()
    engine = LocalEngine(world.core)
    threading.Timer(0.05, world.medium.gate.set).start()
    outputs = []
    while world.core.has_work:
        outputs += engine.ask(lambda core: (core.rest(0.1), core.step())[1])
    assert [token for output in outputs for token in output.new_token_ids] == alone(request)


class Loop:
    """A core loop in a thread, and the other ends of its sockets."""

    def __init__(self, core: EngineCore, folder: Path) -> None:
        self.context = zmq.Context()
        self.requests, incoming = self._pair(zmq.PUSH, zmq.PULL)
        self.outputs, outgoing = self._pair(zmq.PULL, zmq.PUSH)
        loads = LoadSender(self.context, [f"ipc://{folder}/load"], core.load)
        self._sockets = [self.requests, self.outputs, incoming, outgoing]
        self._loads = loads
        self._calls = count()
        self._thread = threading.Thread(target=CoreLoop(core, ClientLines([Line(incoming, outgoing)]), loads).run)
        self._thread.start()

    def _pair(self, one: int, other: int) -> tuple[zmq.Socket, zmq.Socket]:
        first, second = self.context.socket(one), self.context.socket(other)
        address = f"inproc://{id(first)}"
        first.bind(address)
        second.connect(address)
        return first, second

    def ask(self, request: GenerateRequest) -> None:
        self.requests.send_multipart([Kind.REQUEST.frame, wire.encoder.encode(request)])

    def say(self, order: orders.Order) -> None:
        control = ControlRequest(call_id=next(self._calls), order=order)
        self.requests.send_multipart([Kind.CONTROL.frame, wire.encoder.encode(control)])

    def next_kind(self) -> bytes:
        assert self.outputs.poll(PATIENCE_S * 1e3), "the loop says nothing"
        return self.outputs.recv_multipart()[0]

    def end(self) -> None:
        self.say(orders.Shutdown())
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        self._loads.close()
        for socket in self._sockets:
            socket.close(linger=0)
        self.context.term()


def test_the_loop_of_a_core_process_sleeps_while_all_wait_and_wakes_for_messages_and_stores(
    new_world: Worlds, tmp_path: Path
) -> None:
    world = new_world()
    world.fill_and_evict()
    world.medium.gate.clear()
    loop = Loop(world.core, tmp_path)
    steps, step = count(), world.core.step
    num_steps = [0]

    def counted() -> list[RequestOutput]:
        num_steps[0] = next(steps) + 1
        return step()

    world.core.step = counted  # type: ignore[method-assign]
    try:
        loop.ask(make_request("again", [*LONG, 7], 2))
        assert world.medium.is_asked.wait(PATIENCE_S)
        loop.say(orders.GetLoad())
        assert loop.next_kind() == Kind.REPLY.frame
        before = num_steps[0]
        assert not loop.outputs.poll(200), "there is nothing to say"
        assert num_steps[0] - before <= 2, "the loop does not spin"
        world.medium.gate.set()
        assert loop.next_kind() == Kind.OUTPUTS.frame
    finally:
        world.medium.gate.set()
        loop.end()


def test_the_loop_of_a_core_process_ends_while_a_load_is_stalled(new_world: Worlds, tmp_path: Path) -> None:
    world = new_world()
    world.fill_and_evict()
    world.medium.gate.clear()
    loop = Loop(world.core, tmp_path)
    loop.ask(make_request("again", [*LONG, 7], 2))
    assert world.medium.is_asked.wait(PATIENCE_S)
    loop.end()


# ---- the waker


def test_a_core_process_with_tiers_frees_all_native_objects_at_its_end(
    tiny_model: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def live() -> None:
        llm = await AsyncLLM.start(
            tiny_model,
            max_model_len=64,
            num_kv_blocks=40,
            threads=1,
            kv_host_memory_bytes=10**6,
            kv_disk_path=str(tmp_path / "kv"),
            kv_disk_size_bytes=10**6,
        )
        await llm.shutdown()

    asyncio.run(live())
    assert capfd.readouterr().err == ""


def test_a_waker_wakes_once_and_from_any_thread() -> None:
    waker = Waker()
    assert not waker.take()
    threads = [threading.Thread(target=waker.wake) for _ in range(8)]
    for thread in threads:
        thread.start()
    waker.wait(PATIENCE_S)
    for thread in threads:
        thread.join()
    assert waker.take() and not waker.take()
    started = time.monotonic()
    waker.wait(0.01)
    assert time.monotonic() - started < 5.0
    waker.close()
    waker.close()
    waker.wake()
    assert not waker.take()


# ---- settings


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"kv_disk_size_bytes": 2**30}, "kv_disk_size_bytes=.*kv_disk_path"),
        ({"kv_disk_path": "/somewhere"}, "kv_disk_path=.*kv_disk_size_bytes"),
        ({"kv_disk_path": "", "kv_disk_size_bytes": 1}, "kv_disk_path"),
        ({"kv_disk_path": "/somewhere", "kv_disk_size_bytes": 0}, "kv_disk_size_bytes=0"),
        ({"kv_host_memory_bytes": 0}, "kv_host_memory_bytes=0"),
        ({"kv_host_memory_bytes": 2**20, "enable_prefix_caching": False}, "enable_prefix_caching"),
        ({"kv_lease_s": 0.0}, "kv_lease_s"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_start(fields: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        CacheConfig(**fields)  # type: ignore[arg-type]
