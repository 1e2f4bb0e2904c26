"""KV events over loopback: followers see what the engine holds, whatever they miss; nobody holds the engine up."""

import gc
import logging
import random
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from octavo.config import EngineConfig, KVEventsConfig
from octavo.engine.kv_publisher import KVPublisher
from octavo.engine.kv_sockets import bind_sockets
from octavo.errors import ConfigError
from octavo.kv.events import decode_batch
from octavo.router.kv_client import KvEventsClient
from octavo.router.kv_directory import KvDirectory
from octavo.router.kv_feed import Exactness
from tests.engine.following import ANY_PORT, LIMIT_S, PublishingEngine, followed, held_by, poll_until
from tests.scheduling.harness import FULL, WINDOWED, make_layout, make_request

Socket = zmq.Socket[bytes]


@pytest.fixture(autouse=True)
def quick_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that joins is told where the stream stands by the next one: nothing here is about how long that takes
    (tests/end_to_end/test_kv_events.py waits for one as it is)."""
    monkeypatch.setattr("octavo.engine.kv_publisher.HEARTBEAT_S", 0.25)


@pytest.fixture
def engine() -> Iterator[PublishingEngine]:
    made = PublishingEngine()
    yield made
    made.core.close()


@pytest.fixture
def context() -> Iterator[zmq.Context[Socket]]:
    made: zmq.Context[Socket] = zmq.Context()
    yield made
    made.destroy(linger=0)


def ask(context: zmq.Context[Socket], address: str, kind: int, *frames: bytes) -> Socket:
    socket = context.socket(kind)
    socket.setsockopt(zmq.RCVTIMEO, LIMIT_S * 1000)
    socket.connect(address)
    socket.send_multipart(frames)
    return socket


def load(engine: PublishingEngine, rng: random.Random, count: int, *, tag: str = "") -> None:
    """Prompts that share beginnings, more than fit: blocks are shared, evicted and preempted."""
    for i in range(count):
        shared = [rng.randrange(3)] * rng.choice([0, 8, 16])
        prompt = [*shared, *(rng.randrange(100) for _ in range(rng.randrange(1, 20)))]
        salt = rng.choice([None, None, "s"])
        engine.core.add(make_request(f"{tag}{i}", prompt, max_tokens=rng.randrange(1, 16), cache_salt=salt))


@pytest.mark.parametrize("layers", [(FULL,), (FULL, WINDOWED)], ids=["full", "window"])
@pytest.mark.parametrize("ahead", [False, True], ids=["in_turn", "ahead"])
@pytest.mark.parametrize("form", ["map", "array"])
def test_a_follower_holds_what_the_engine_holds(layers: tuple, ahead: bool, form: str) -> None:
    rng = random.Random(3)
    engine = PublishingEngine(
        layers=layers, form=form, async_scheduling=ahead, num_blocks=24 * len(layers), admission_conservativeness=0.0
    )
    with followed(engine) as (client, feed):
        poll_until(client, lambda: feed.exactness(time.monotonic()) is Exactness.EXACT)
        for round_ in range(6):
            load(engine, rng, 12, tag=f"{round_}.")
            while engine.core.has_work:
                engine.core.step()
                if rng.random() < 0.1:
                    engine.core.abort([f"{round_}.{rng.randrange(12)}"])
            poll_until(client, lambda: held_by(feed) == engine.held)
            if round_ % 3 == 2:
                assert engine.core.reset_prefix_cache()
                poll_until(client, lambda: not held_by(feed))
        counters = engine.core.load().counters
        assert counters["evicted_blocks"] > 50 and counters["preemptions"] > 0
        poll_until(client, lambda: client.directory.is_exact("e", time.monotonic()))
        assert feed.num_drifts == 0
    engine.core.close()


def test_one_who_joins_late_gets_all_at_once(engine: PublishingEngine) -> None:
    load(engine, random.Random(1), 20)
    engine.run()
    with followed(engine) as (client, feed):
        poll_until(client, lambda: client.directory.is_exact("e", time.monotonic()))
        assert held_by(feed) == engine.held and feed.num_recoveries == 1


def test_one_who_does_not_read_holds_nobody_up_and_catches_up() -> None:
    engine = PublishingEngine(num_blocks=12, buffer_steps=5)
    with followed(engine) as (client, feed):
        poll_until(client, lambda: client.directory.is_exact("e", time.monotonic()))
        seen = feed.seq
        rng = random.Random(2)
        for round_ in range(500):
            engine.core.add(make_request(f"{round_}", [rng.randrange(100) for _ in range(20)], max_tokens=1))
            engine.run()
        poll_until(client, lambda: held_by(feed) == engine.held and feed.exactness(time.monotonic()) is Exactness.EXACT)
        assert feed.seq is not None and seen is not None and feed.seq - seen >= 500
    engine.core.close()


def test_a_restarted_engine_is_another_one() -> None:
    engine = PublishingEngine()
    load(engine, random.Random(1), 8)
    engine.run()
    with followed(engine) as (client, feed):
        poll_until(client, lambda: held_by(feed) == engine.held)
        engine.core.close()
        again = PublishingEngine(endpoint=engine.info.endpoint, replay_endpoint=engine.info.replay_endpoint)
        assert again.info.epoch != engine.info.epoch
        load(again, random.Random(7), 3)
        again.run()
        poll_until(client, lambda: client.directory.is_exact("e", time.monotonic()) and held_by(feed) == again.held)
        assert feed.epoch is not None and feed.epoch.hex() == again.info.epoch
        again.core.close()


def test_several_engines_in_one_directory() -> None:
    engines = {name: PublishingEngine() for name in ("a", "b")}
    prompt = list(range(20))
    with KvEventsClient(KvDirectory()) as client:
        for name, engine in engines.items():
            client.follow(name, engine.info.endpoint, engine.info.replay_endpoint)
            engine.core.add(make_request(name, prompt if name == "b" else prompt[:8], max_tokens=1))
            engine.run()
        directory = client.directory
        poll_until(client, lambda: all(directory.is_exact(name, time.monotonic()) for name in engines))
        found = {name: directory.longest_prefix(name, directory.names_of(name, prompt)).num_blocks for name in engines}
        assert found == {"a": 2, "b": 5}
        assert directory.names_of("b", prompt)[:2] == directory.names_of("a", prompt)
        client.unfollow("a")
        assert not directory.is_exact("a", time.monotonic())
    for engine in engines.values():
        engine.core.close()


def test_without_a_replay_endpoint_a_late_follower_knows_that_it_knows_nothing() -> None:
    engine = PublishingEngine(replay_endpoint=None)
    with followed(engine) as (client, feed):
        poll_until(client, lambda: feed.exactness(time.monotonic()) is not Exactness.WAITING)
        load(engine, random.Random(1), 2)
        engine.run()
        while client.poll(0.1):
            pass
        assert feed.exactness(time.monotonic()) in (Exactness.RECOVERING, Exactness.EXACT)
        assert (feed.exactness(time.monotonic()) is Exactness.EXACT) == (held_by(feed) == engine.held)
    engine.core.close()


def test_replay_in_the_words_of_vllm(engine: PublishingEngine, context: zmq.Context[Socket]) -> None:
    load(engine, random.Random(1), 3)
    engine.run()
    assert engine.info.replay_endpoint is not None
    with ask(context, engine.info.replay_endpoint, zmq.DEALER, b"", (0).to_bytes(8, "big")) as dealer:
        messages = [dealer.recv_multipart()]
        while messages[-1][3]:
            messages.append(dealer.recv_multipart())
    numbers = [int.from_bytes(frames[2], "big") for frames in messages[:-1]]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) and len(numbers) > 3
    assert messages[-1] == [b"", b"", b"\xff" * 8, b""]
    assert all(len(frames) == 4 and decode_batch(frames[3]).stamp is not None for frames in messages[:-1])
    with ask(context, engine.info.replay_endpoint, zmq.DEALER, b"", numbers[2].to_bytes(8, "big")) as dealer:
        assert dealer.recv_multipart()[2] == numbers[2].to_bytes(8, "big")


def test_a_snapshot_is_one_answer_to_one_request(engine: PublishingEngine, context: zmq.Context[Socket]) -> None:
    load(engine, random.Random(1), 3)
    engine.run()
    assert engine.info.replay_endpoint is not None
    with ask(context, engine.info.replay_endpoint, zmq.REQ, b"snapshot") as requester:
        cut, epoch, *batches = requester.recv_multipart()
        assert len(cut) == 8 and epoch.hex() == engine.info.epoch
        stored = [event for batch in batches for event in decode_batch(batch).events]
        assert {("GPU", event.group_idx, name) for event in stored for name in event.block_hashes} == engine.held
        requester.send(b"snapshot")
        assert requester.recv_multipart()[:2] == [cut, epoch]


def test_what_is_no_request_is_ignored(engine: PublishingEngine, context: zmq.Context[Socket]) -> None:
    assert engine.info.replay_endpoint is not None
    for frames in ([b"", b"hello"], [b"x"], [b"", b"", b""], [b"a", b"b", b"c"]):
        ask(context, engine.info.replay_endpoint, zmq.DEALER, *frames).close()
    with ask(context, engine.info.replay_endpoint, zmq.REQ, b"snapshot") as requester:
        assert len(requester.recv_multipart()) >= 3


def test_a_quiet_engine_gives_signs_of_life(context: zmq.Context[Socket], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.engine.kv_publisher.HEARTBEAT_S", 0.05)
    engine = PublishingEngine(topic="kv@{host}:{port}@{model}")
    with context.socket(zmq.SUB) as follower:
        follower.setsockopt(zmq.RCVTIMEO, LIMIT_S * 1000)
        follower.subscribe("kv@127.0.0.1:")
        follower.connect(engine.info.endpoint)
        beats = [follower.recv_multipart() for _ in range(3)]
    port = engine.info.endpoint.rpartition(":")[2]
    assert {topic for topic, _, _ in beats} == {f"kv@127.0.0.1:{port}@model".encode()}
    numbers = [int.from_bytes(number, "big") for _, number, _ in beats]
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    for _, _, payload in beats:
        batch = decode_batch(payload)
        assert batch.stamp is not None and batch.stamp.digests == () and len(msgspec.msgpack.decode(payload)) == 3
    engine.core.close()


def test_ipc_addresses(tmp_path: Path) -> None:
    path = f"ipc://{tmp_path}/kv"
    engine = PublishingEngine(endpoint=path, replay_endpoint=f"ipc://{tmp_path}/replay")
    load(engine, random.Random(1), 3)
    engine.run()
    with followed(engine) as (client, feed):
        poll_until(client, lambda: held_by(feed) == engine.held)
    with pytest.raises(ConfigError, match=r"kv_events_endpoint='ipc://.*is taken by another process"):
        PublishingEngine(endpoint=path)
    engine.core.close()
    PublishingEngine(endpoint=path).core.close()


# ---- what cannot be


def test_a_port_in_use_is_said_at_start(engine: PublishingEngine) -> None:
    with pytest.raises(ConfigError, match=r"kv_events_endpoint='tcp.*taken by another process; end that one or choose"):
        PublishingEngine(endpoint=engine.info.endpoint)
    with pytest.raises(ConfigError, match=r"kv_events_replay_endpoint.*taken by another process"):
        PublishingEngine(replay_endpoint=engine.info.endpoint)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("tcp://192.0.2.1:5557", "is no address of this machine"),
        ("tcp://no-such-name.invalid:5557", "is no address of this machine"),
        ("ipc:///no/such/folder/kv", "cannot be listened on: No such file or directory"),
    ],
)
def test_addresses_that_cannot_be_listened_on(address: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        bind_sockets(KVEventsConfig(kv_events_endpoint=address))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"kv_events_endpoint": "tcp://*:5557"}, "would listen on every network; write tcp://0.0.0.0:PORT"),
        ({"kv_events_endpoint": "tcp://[::]:5557"}, "would listen on every network"),
        ({"kv_events_endpoint": "127.0.0.1:5557"}, "must look like tcp://127.0.0.1:5557"),
        ({"kv_events_endpoint": "tcp://127.0.0.1"}, "must look like"),
        ({"kv_events_endpoint": "tcp://127.0.0.1:70000"}, "must look like"),
        ({"kv_events_endpoint": "udp://127.0.0.1:5557"}, "must look like"),
        ({"kv_events_replay_endpoint": ANY_PORT}, "has no effect without kv_events_endpoint"),
        ({"kv_events_topic": "kv@{pod}"}, "may hold {host}, {port} and {model}"),
        ({"kv_events_topic": "kv@{"}, "no other braces"),
        ({"kv_events_buffer_steps": 0}, "must be in"),
    ],
)
def test_settings_that_cannot_be(settings: dict, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        KVEventsConfig(**settings)


def test_events_of_a_cache_that_is_off_are_refused() -> None:
    with pytest.raises(ConfigError, match="enable_prefix_caching=False: must be on for kv_events_endpoint"):
        EngineConfig.from_fields({"kv_events_endpoint": ANY_PORT, "enable_prefix_caching": False})


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:0", "tcp://[::1]:5557", "tcp://eth0:5557", "ipc:///tmp/x"])
def test_addresses_that_can_be(address: str) -> None:
    assert KVEventsConfig(kv_events_endpoint=address).kv_events_endpoint == address


def test_a_topic_with_a_host_needs_one() -> None:
    sockets = bind_sockets(KVEventsConfig(kv_events_endpoint="tcp://0.0.0.0:0"))
    assert sockets is not None
    with pytest.raises(ConfigError, match=r"names no host for \{host\}; write the address that followers know"):
        sockets.fill_in("kv@{host}@{model}", "m")
    port = sockets.endpoint.rpartition(":")[2].encode()
    assert sockets.fill_in("kv@10.0.0.1:{port}@{model}", "m") == b"kv@10.0.0.1:" + port + b"@m"
    sockets.close()


# ---- ends


def test_a_forgotten_publisher_ends() -> None:
    config = KVEventsConfig(kv_events_endpoint=ANY_PORT)
    sockets = bind_sockets(config)
    assert sockets is not None
    publisher = KVPublisher(sockets, config, make_layout(8), "m")
    thread, gone = publisher._thread, weakref.ref(publisher)
    del publisher
    gc.collect()
    thread.join(LIMIT_S)
    assert gone() is None and not thread.is_alive()


def test_what_was_told_before_the_end_goes_out(context: zmq.Context[Socket]) -> None:
    engine = PublishingEngine()
    with followed(engine) as (client, feed):
        poll_until(client, lambda: client.directory.is_exact("e", time.monotonic()))
        load(engine, random.Random(1), 3)
        engine.run()
        engine.core.close()
        poll_until(client, lambda: held_by(feed) == engine.held)
        engine.core.close()


def test_a_fault_in_the_thread_is_logged_and_the_engine_goes_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.engine.kv_publisher.MAX_WAITING_STEPS", -1)
    with caplog.at_level(logging.ERROR):
        engine = PublishingEngine()
        engine.publisher._thread.join(LIMIT_S)
        load(engine, random.Random(1), 5)
        engine.run()
    assert "followers will notice that the engine is silent" in caplog.text
    assert not len(engine.publisher._inbox) and engine.held
    engine.core.close()
