"""Batches, requests and answers get lost, late and mixed; engines restart; followers join late: a feed never says that
it is exact while it is not, and becomes exact once the faults stop."""

from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octavo.kv.events import EventStream, decode_batch
from octavo.kv.record import Tier
from octavo.router.kv_feed import Exactness, KvFeed
from octavo.router.kv_messages import AskReplay, Live, Message, Replayed, ReplayEnd, Request, Snapshot
from tests.effort import times
from tests.kv.event_world import Held, World, chain, make_stream

DOINGS = st.lists(
    st.tuples(
        st.sampled_from(["store"] * 5 + ["evict"] * 4 + ["clear"]),
        st.lists(st.integers(0, 1), min_size=2, max_size=8),
        st.sampled_from(list(Tier)),
        st.integers(0, 1),
        st.sampled_from([None, None, "s"]),
    ),
    min_size=1,
    max_size=4,
)


def held_by(feed: KvFeed) -> Held:
    shelves = feed.holdings.residency.shelves
    return frozenset((shelf.medium, shelf.group_idx, name) for shelf in shelves for name in shelf.blocks)


def answers(stream: EventStream, request: Request) -> list[Message]:
    """What comes back from an engine, as the client reads it."""
    body = request.start.to_bytes(8, "big") if isinstance(request, AskReplay) else b"snapshot"
    messages = [frames for frames in stream.answer(body, 0.0) if frames is not None]
    if isinstance(request, AskReplay):
        replayed = [Replayed(request.request, number(frames[1]), frames[2]) for frames in messages[:-1]]
        return [*replayed, ReplayEnd(request.request)]
    ((cut, epoch, *payloads),) = messages
    return [Snapshot(request.request, number(cut), epoch, tuple(payloads))]


def number(frame: bytes) -> int:
    return int.from_bytes(frame, "big")


class Wire(RuleBasedStateMachine):
    """An engine, a feed, and all that can go wrong between them."""

    @initialize(buffer_steps=st.integers(1, 6), form=st.sampled_from(["map", "array"]))
    def start(self, buffer_steps, form):
        self.buffer_steps, self.form = buffer_steps, form
        self.now_s = 0.0
        self.num_lives = self.num_joins = 0
        self.history: dict[tuple[bytes, int], Held] = {}
        """(epoch, number) -> what was stored behind that batch."""
        self.live: deque[Live] = deque()
        """Batches on their way; they keep their order."""
        self.asked: list[Request] = []
        """Requests on their way; they may overtake each other."""
        self.answered: list[deque[Message]] = []
        """Answers on their way, each in its order."""
        self.feed = KvFeed()
        self.begin_life(first_seq=0)

    def begin_life(self, first_seq):
        self.num_lives += 1
        self.world = World()
        self.stream = make_stream(
            epoch=bytes([self.num_lives] * 16), first_seq=first_seq, buffer_steps=self.buffer_steps, form=self.form
        )
        self.send(self.stream.open(self.now_s))

    def send(self, frames):
        seq = number(frames[1])
        self.history[self.stream.epoch, seq] = self.world.held
        self.live.append(Live(seq, frames[2]))

    def hear(self, message):
        self.asked += self.feed.receive(message, self.now_s)

    # ---- the engine

    @rule(steps=st.lists(DOINGS, min_size=1, max_size=3), gap_s=st.sampled_from([0.0, 0.0, 2.0]))
    def work(self, steps, gap_s):
        for doings in steps:
            for do, tokens, tier, group, salt in doings:
                self.do(do, tier, chain(tokens, group=group, salt=salt))
            self.end_step(gap_s)

    def do(self, what, tier, records):
        if what == "store":
            for record in records:
                self.world.store(tier, record)
        elif what == "evict":
            self.world.remove(tier, records[-1])
        else:
            self.world.clear(tier)

    def end_step(self, gap_s=0.0):
        self.now_s += gap_s
        frames = self.stream.publish(self.world.changes.take(), self.now_s)
        if frames is not None:
            self.send(frames)

    def beat(self):
        self.send(self.stream.beat(self.now_s))

    @precondition(lambda self: self.num_lives < 4 and len(self.history) > 5 * self.num_lives)
    @rule(ahead=st.integers(-4, 2), lost=st.booleans(), num_beats=st.integers(0, 4))
    def restart(self, ahead, lost, num_beats):
        """Numbers need not go on behind those of the life before: clocks are set back."""
        self.begin_life(max(0, max(seq for _, seq in self.history) + ahead))
        if lost:
            self.live.pop()
        for _ in range(num_beats):
            self.beat()

    # ---- the wire

    @precondition(lambda self: self.live)
    @rule(lost=st.sampled_from([0, 1, 1, 2]), count=st.integers(1, 3))
    def deliver(self, lost, count):
        for _ in range(min(lost, len(self.live) - 1)):
            self.live.popleft()
        for _ in range(min(count, len(self.live))):
            self.hear_live(self.live.popleft())

    def hear_live(self, message):
        self.last_heard = decode_batch(message.payload).stamp.epoch, message.seq
        self.hear(message)

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), lost=st.sampled_from([False, False, False, True]), how_much=st.sampled_from([0, 1, 99]))
    def ask(self, data, lost, how_much):
        request = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        if not lost:
            self.answered.append(deque(answers(self.stream, request)))
            self.hear_answer(len(self.answered) - 1, how_much)

    @precondition(lambda self: self.answered)
    @rule(data=st.data(), cut_off=st.sampled_from([False, False, False, True]), how_much=st.sampled_from([1, 99]))
    def answer(self, data, cut_off, how_much):
        index = data.draw(st.integers(0, len(self.answered) - 1))
        if cut_off:
            self.answered[index].pop()
        self.hear_answer(index, how_much)

    def hear_answer(self, index, how_much):
        messages = self.answered[index]
        for _ in range(min(how_much, len(messages))):
            self.hear(messages.popleft())
        self.answered = [left for left in self.answered if left]

    # ---- the follower

    @rule(passed_s=st.sampled_from([0.1, 3.0]))
    def tick(self, passed_s):
        self.now_s += passed_s
        self.asked += self.feed.tick(self.now_s)

    @precondition(lambda self: self.num_joins < 3)
    @rule()
    def join_anew(self):
        """Answers to its former self never reach it: they come on other sockets. Of what is on its way it gets some."""
        self.num_joins += 1
        self.feed = KvFeed()
        for _ in range(len(self.live) // 2):
            self.live.popleft()
        self.asked, self.answered = [], []

    @invariant()
    def exact_means_exact(self):
        feed = self.feed
        exactness = feed.exactness(self.now_s)
        assert exactness is not Exactness.UNPROVEN
        if exactness is Exactness.EXACT:
            assert held_by(feed) == self.history[feed.epoch, feed.seq]
            assert (feed.epoch, feed.seq) >= self.last_heard and not feed._held
        assert feed.num_drifts == 0

    def teardown(self):
        """Without further faults a few rounds do: heartbeat, requests, answers, a second try where one was lost."""
        if not hasattr(self, "feed"):
            return
        for _ in range(8):
            self.beat()
            while self.live or self.asked or self.answered:
                self.deliver_all()
            self.tick(3.0)
        self.beat()
        while self.live or self.asked or self.answered:
            self.deliver_all()
        assert self.feed.exactness(self.now_s) is Exactness.EXACT
        assert self.feed.epoch == self.stream.epoch
        assert held_by(self.feed) == self.world.held

    def deliver_all(self):
        while self.live:
            self.hear_live(self.live.popleft())
        while self.asked:
            self.answered.append(deque(answers(self.stream, self.asked.pop(0))))
        while self.answered:
            for message in self.answered.pop(0):
                self.hear(message)


class LongWire(Wire):
    """The same, for longer."""


Wire.TestCase.settings = settings(max_examples=times(40), stateful_step_count=50, deadline=None)
LongWire.TestCase.settings = settings(max_examples=times(60), stateful_step_count=60, deadline=None)
TestWire = Wire.TestCase
TestLongWire = pytest.mark.slow(LongWire.TestCase)
