"""Random operations on a manager with several kinds of groups: all laws after each, and hits against brute force."""

from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octavo.kv.hashing import BlockHasher
from octavo.kv.manager import KVManager
from octavo.kv.spec import AttentionSpec, RecurrentSpec
from tests.effort import times
from tests.kv.mirror import Mirror, computed_names
from tests.scheduling.harness import FULL, WINDOWED, make_layout

CHUNKED = AttentionSpec(num_kv_heads=1, head_dim=4, chunk=6)
NARROW = AttentionSpec(num_kv_heads=1, head_dim=4, window=1)
STATE = RecurrentSpec(state_bytes=64)
LAYERS = [
    (FULL,),
    (FULL, WINDOWED, CHUNKED),
    (WINDOWED, FULL),
    (NARROW, CHUNKED),
    (FULL, STATE),
    (STATE, WINDOWED, FULL),
]
SIZE = 4
LONGEST = 40


class Operations(RuleBasedStateMachine):
    """Admits, runs, preempts, aborts and fails requests in steps, several of them in flight, as a scheduler may."""

    @initialize(
        layers=st.sampled_from(LAYERS),
        step=st.integers(1, 24),
        spare=st.integers(0, 25),
        match=st.booleans(),
        depth=st.integers(1, 3),
    )
    def start(self, layers, step, spare, match, depth):
        num_blocks = make_layout(1, layers=layers).blocks_per_request(LONGEST, step) + spare
        layout = make_layout(num_blocks, layers=layers)
        self.layers, self.most, self.depth = layers, step, depth
        self.manager = KVManager(layout, sub_block_match=match, max_step_tokens=step, fingerprint="f")
        self.mirror = Mirror(BlockHasher("f", SIZE))
        self.manager.observe(self.mirror)
        self.computed = {}
        """Request -> computed tokens, steps in flight included."""
        self.pending = {}
        """Request -> tokens that steps in flight will yield."""
        self.step = {}
        """Request of the step under planning -> tokens it will have computed."""
        self.flying = deque()
        """The same of steps in flight, the oldest first."""
        self.waiting = []

    @rule(shared=st.integers(0, 30), own=st.lists(st.integers(0, 2), min_size=1, max_size=6), salted=st.booleans())
    def arrive(self, shared, own, salted):
        self.waiting.append(self.manager.open([*range(shared), *own], cache_salt="s" if salted else None))

    @precondition(lambda self: self.waiting and len(self.flying) < self.depth)
    @rule(data=st.data())
    def admit(self, data):
        held = self.waiting[0]
        hit = self.manager.match(held)
        self._compare_with_brute_force(held, hit)
        if self.manager.num_blocks_needed(hit, len(held.token_ids)) > self.manager.num_free_blocks:
            return
        self.waiting.pop(0)
        self.manager.adopt(held, hit)
        self.computed[held], self.pending[held] = hit.num_tokens, 0
        end = hit.num_tokens + data.draw(st.integers(1, min(self.most, len(held.token_ids) - hit.num_tokens)))
        assert self.manager.allocate(held, end) is not None, "what fits as a whole fits in part"
        self.step[held] = end

    @precondition(lambda self: len(self.flying) < self.depth and any(held not in self.step for held in self.computed))
    @rule(data=st.data())
    def go_on(self, data):
        held = data.draw(st.sampled_from([held for held in self.computed if held not in self.step]))
        left = len(held.token_ids) + self.pending[held] - self.computed[held]
        if len(held.token_ids) + self.pending[held] == LONGEST:
            return
        end = self.computed[held] + data.draw(st.integers(1, min(self.most, left)))
        while self.manager.allocate(held, end) is None:
            if self.flying:
                return
            victim = list(self.computed)[-1]
            self._preempt(victim)
            if victim is held:
                return
        self.step[held] = end

    @precondition(lambda self: self.step)
    @rule()
    def issue(self):
        for held, end in self.step.items():
            self.computed[held] = end
            self.pending[held] += end == len(held.token_ids) + self.pending[held]
        self.flying.append(self.step)
        self.manager.issue()
        self.step = {}

    @precondition(lambda self: self.flying and not self.step)
    @rule(data=st.data())
    def land(self, data):
        step = self.flying.popleft()
        failed = [held for held in step if data.draw(st.integers(0, 9)) == 0]
        touched = self.manager.revoke(failed) if failed else []
        assert not failed or not set(failed) <= set(touched), "somebody is to blame"
        for held in set(failed).difference(touched):
            if held in self.computed:
                self._leave(held)
        for held in touched:
            self._preempt(held, planned=False)
            for each in (step, *self.flying):
                each.pop(held, None)  # void
        self.manager.commit()
        for held, end in step.items():
            if held in self.computed:
                self.manager.settle(held, end)
                assert held.copies() == []
                if end == len(held.token_ids):
                    held.token_ids.append(data.draw(st.integers(0, 2)))
                    self.pending[held] -= 1
                    if len(held.token_ids) == LONGEST or data.draw(st.integers(0, 9)) == 0:
                        self._leave(held)

    @precondition(lambda self: self.computed and not self.step)
    @rule(data=st.data())
    def abort(self, data):
        self._leave(data.draw(st.sampled_from(list(self.computed))))

    @precondition(lambda self: not self.step)
    @rule()
    def reset(self):
        idle = self.manager.num_free_blocks == self.manager.num_blocks
        assert self.manager.reset_prefix_cache() == idle

    def _leave(self, held):
        del self.computed[held]
        self.manager.free(held)

    def _preempt(self, victim, planned=True):
        if planned and victim in self.step:
            assert self.manager.is_withdrawable(victim)
            self.manager.withdraw(victim)
            del self.step[victim]
        else:
            self.manager.free(victim)
        del self.computed[victim]
        self.waiting.insert(0, victim)

    def _compare_with_brute_force(self, held, hit):
        """The longest border at which every group has what it needs; behind it, the longest common part of a block."""
        groups = list(zip(self.layers_by_group(), self.manager._groups, strict=True))

        def fits(border):
            return all(
                held.hashes[block] in policy.index
                for spec, policy in groups
                for block in range(spec.first_needed(border * SIZE) // SIZE, border)
            )

        longest = max(border for border in range((len(held.token_ids) - 1) // SIZE + 1) if fits(border))
        assert hit.num_blocks == longest
        assert longest * SIZE <= hit.num_tokens < longest * SIZE + SIZE
        assert hit.num_tokens < len(held.token_ids)
        if hit.source is not None:
            for _, policy in groups:
                assert not policy.index[hit.source].in_flight

    def layers_by_group(self):
        return [group.spec for group in self.manager.layout.groups]

    @invariant()
    def observers_know_what_is_there(self):
        if hasattr(self, "manager"):
            assert self.mirror.names() == computed_names(self.manager)

    @invariant()
    def laws_hold(self):
        if not hasattr(self, "manager"):
            return
        self.manager.check()
        for held in self.computed:
            if self.depth == 1:
                assert held.num_blocks <= self.manager.blocks_per_request(LONGEST)
            if held.partial_hit is not None:
                assert any(held in step for step in (self.step, *self.flying))
                assert all(source.ref > 0 for source in held.partial_hit.sources)

    def teardown(self):
        if not hasattr(self, "manager"):
            return
        for held in list(self.computed):
            self._leave(held)
        for _ in range(len(self.flying) + 1):
            self.manager.commit()
        self.manager.check()
        assert self.manager.num_free_blocks == self.manager.num_blocks
        assert self.manager.reset_prefix_cache() and self.manager.num_cached_blocks == 0


TestOperations = Operations.TestCase
TestOperations.settings = settings(max_examples=times(50), stateful_step_count=40)


@pytest.mark.slow
class TestManyOperations(Operations.TestCase):
    """The same for longer, with other examples."""

    settings = settings(max_examples=times(70), stateful_step_count=80)
