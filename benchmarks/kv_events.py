"""What KV events cost: in the step loop, in the thread beside it, and at a follower.

    python benchmarks/kv_events.py [--num-seqs 1 32 256] [--steps 400] [--blocks 250000]

First decode steps without any execution, `--num-seqs` requests in each, so that a step fills num_seqs / 16 blocks on
average: microseconds of processor time of the loop's thread per step (schedule, update, and where events are on, what
they add: records of blocks and `flush`), the lowest of five rounds each, and of the publisher's thread per step. One
follower is connected. Then a snapshot of `--blocks` blocks in prompts of 64: milliseconds to copy the state, to make
the answer, and for a follower to take it in; and microseconds of a follower per live block.
"""

import argparse
import gc
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from octavo.config import KVEventsConfig, SchedulerConfig
from octavo.engine.kv_publisher import KVPublisher
from octavo.engine.kv_sockets import bind_sockets
from octavo.kv.events import EventStream, GroupWords, Translator
from octavo.kv.hashing import BlockHasher
from octavo.kv.manager import KVManager
from octavo.kv.record import BlockRecord, Tier
from octavo.kv.spec import AttentionSpec, KVDtype, KVLayout, lay_out
from octavo.request.params import SamplingParams
from octavo.request.request import GenerateRequest
from octavo.router.kv_feed import KvFeed
from octavo.router.kv_messages import AskSnapshot, Live, Snapshot
from octavo.scheduling.plan import StepPlan, StepResult
from octavo.scheduling.scheduler import Scheduler

BLOCK_SIZE = 16
CHAIN = 64
ROUNDS = 5


def make_layout(num_blocks: int) -> KVLayout:
    """One group of full attention."""
    spec = AttentionSpec(num_kv_heads=1, head_dim=64)
    return lay_out((spec,), num_blocks=num_blocks + 1, block_size=BLOCK_SIZE, dtype=KVDtype.FP16)


def result_of(plan: StepPlan) -> StepResult:
    """A made-up token for everybody."""
    return StepResult(step=plan.step, token_ids=((7,),) * len(plan.request_ids))


@contextmanager
def publishing(manager: KVManager) -> Iterator[KVPublisher]:
    """A publisher that a follower is connected to, which never reads."""
    config = KVEventsConfig(kv_events_endpoint="tcp://127.0.0.1:0")
    sockets = bind_sockets(config)
    if sockets is None:
        raise RuntimeError("events are on")
    publisher = KVPublisher(sockets, config, manager.layout, "m")
    manager.observe(publisher.observer)
    with zmq.Context() as context, context.socket(zmq.SUB) as follower:
        follower.subscribe("")
        follower.connect(publisher.info.endpoint)
        time.sleep(0.1)  # until the connection stands
        yield publisher
        publisher.close()


def decode(num_seqs: int, steps: int, publisher: KVPublisher | None, manager: KVManager) -> tuple[float, float]:
    """Seconds of the loop's thread and of all others, per decode step."""
    scheduler = Scheduler(SchedulerConfig(max_num_seqs=num_seqs, max_num_batched_tokens=16384), manager, 4096)
    rng = random.Random(0)
    for i in range(num_seqs):
        prompt = [rng.randrange(50000) for _ in range(32 + i % BLOCK_SIZE)]
        params = SamplingParams(max_tokens=steps + 200, seed=0)
        scheduler.add(GenerateRequest(request_id=str(i), prompt_token_ids=prompt, params=params), 0.0)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)  # as the core process has it
    own = everything = 0.0
    for step in range(steps + 50):
        if step == 50:
            own, everything = time.thread_time(), time.process_time()
        plan = scheduler.schedule(0.0)
        if plan is None:
            raise RuntimeError("there is work")
        scheduler.update(plan, result_of(plan), 0.0)
        if publisher is not None:
            publisher.flush()
    own, everything = time.thread_time() - own, time.process_time() - everything
    return own / steps, (everything - own) / steps


def compare(num_seqs: int, steps: int) -> str:
    """One row of the first table."""
    off, on, beside = [], [], []
    for _ in range(ROUNDS):
        manager = KVManager(make_layout(200_000))
        off.append(decode(num_seqs, steps, None, manager)[0])
        manager = KVManager(make_layout(200_000))
        with publishing(manager) as publisher:
            own, others = decode(num_seqs, steps, publisher, manager)
        on.append(own)
        beside.append(others)
    micros = [1e6 * min(times) for times in (off, on, beside)]
    return f"| {num_seqs} | {micros[0]:.0f} | {micros[1]:.0f} | {micros[1] - micros[0]:.0f} | {micros[2]:.0f} |"


def records(num_blocks: int) -> Iterator[BlockRecord]:
    """Blocks of random prompts."""
    hasher, rng = BlockHasher("f", BLOCK_SIZE), random.Random(0)
    for _ in range(num_blocks // CHAIN):
        hashes: list[bytes] = []
        tokens = [rng.randrange(50000) for _ in range(CHAIN * BLOCK_SIZE)]
        hasher.extend(hashes, tokens, CHAIN)
        for i, name in enumerate(hashes):
            block = tuple(tokens[i * BLOCK_SIZE : (i + 1) * BLOCK_SIZE])
            parent = hashes[i - 1] if i else None
            yield BlockRecord(group=0, block_hash=name, parent_hash=parent, token_ids=block)


def snapshot(num_blocks: int) -> str:
    """Lines on a snapshot and on live blocks."""
    gc.set_threshold(50_000, 20, 20)
    stream = EventStream(Translator((GroupWords("full_attention", None),), BLOCK_SIZE), epoch=bytes(16), first_seq=0)
    feed = KvFeed()
    batches = [stream.open(0.0)]
    changes = [(Tier.DEVICE, record) for record in records(num_blocks)]
    started = time.thread_time()
    for start in range(0, len(changes), CHAIN):
        message = stream.publish(changes[start : start + CHAIN], 0.0)
        if message is not None:
            batches.append(message)
    published = time.thread_time() - started
    started = time.thread_time()
    for _, seq, payload in batches:
        feed.receive(Live(int.from_bytes(seq, "big"), payload), 0.0)
    followed = time.thread_time() - started
    started = time.thread_time()
    answer = stream.answer(b"snapshot", 0.0)
    copied = time.thread_time() - started
    (frames,) = [message for message in answer if message is not None]
    made = time.thread_time() - started
    late = KvFeed()
    (request,) = late.receive(Live(int.from_bytes(batches[-1][1], "big"), batches[-1][2]), 0.0)
    if not isinstance(request, AskSnapshot):
        raise RuntimeError("who comes late asks for all")
    started = time.thread_time()
    late.receive(Snapshot(request.request, int.from_bytes(frames[0], "big"), frames[1], tuple(frames[2:])), 0.0)
    taken = time.thread_time() - started
    size = sum(map(len, frames)) / 1e6
    return (
        f"live: {1e6 * published / len(changes):.1f} us per block at the publisher, "
        f"{1e6 * followed / len(changes):.1f} us at a follower\n"
        f"snapshot of {len(changes):,} blocks, {size:.1f} MB in {len(frames) - 2} pages: state copied in "
        f"{1e3 * copied:.0f} ms, answer made in {1e3 * made:.0f} ms, taken in in {1e3 * taken:.0f} ms"
    )


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-seqs", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--blocks", type=int, default=250_000)
    options = parser.parse_args()
    print("| requests | loop without, us | with events | more | thread beside |\n|---|---|---|---|---|")
    for num_seqs in options.num_seqs:
        print(compare(num_seqs, options.steps))
    print(snapshot(options.blocks))


if __name__ == "__main__":
    main()
