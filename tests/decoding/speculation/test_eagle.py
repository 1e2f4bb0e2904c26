"""Drafts by an EAGLE head: the head's cache is as if all that is known had run at once, whatever has been guessed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.decoding.speculation.eagle import EagleProposer
from octavo.execution.draft_head import LoadedHead
from octavo.execution.loader import open_checkpoint
from octavo.execution.native import NativeExecutor
from octavo.execution.protocols import Int32, RanStep, SlotArrays, StepBatch
from octavo.execution.weights import load_model
from octavo.request.params import SamplingParams
from octavo.scheduling.plan import NewRequestData
from tests.draft_heads import RandomHead, config, read_head, tensors, write_copied, write_head
from tests.execution.driver import Driver, layout_for
from tests.execution.test_weights import open_tiny

SLOTS, MAX_LEN, BLOCK_SIZE, MAX_TOKENS, VOCAB = 3, 64, 4, 48, 512
BLOCKS = MAX_LEN // BLOCK_SIZE
HEADS = {"eagle": RandomHead(), "eagle3": RandomHead(layout="eagle3", draft_vocab=200)}


@pytest.fixture(params=HEADS, scope="module")
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedHead:
    head, folder = HEADS[request.param], tmp_path_factory.mktemp("head")
    write_head(folder / "head", config(head), tensors(head))
    return read_head(folder / "head", *load_model(open_tiny(folder, layers=3)))


class Rig:
    """A target and its head, slots with blocks of their own, and steps as a runner makes them."""

    def __init__(self, loaded: LoadedHead) -> None:
        sizes = {"isa": "auto", "max_tokens": MAX_TOKENS, "max_rows": 24, "max_seqs": SLOTS, "max_positions": MAX_LEN}
        layout = layout_for(
            loaded.target, tokens=MAX_LEN, sequences=SLOTS, block_size=BLOCK_SIZE, beside=loaded.program
        )
        self.target = NativeExecutor(loaded.target, loaded.target_weights, layout, threads=1, **sizes)
        self.head = NativeExecutor(
            loaded.program, loaded.weights, layout, threads=None, beside=self.target, borrowed=loaded.borrowed, **sizes
        )
        assert self.head.memory is self.target.memory and len(layout.groups) == 1
        tables = np.random.default_rng(0).permutation(np.arange(1, 1 + SLOTS * BLOCKS, dtype=np.int32))
        self.held = SlotArrays(
            tokens=np.zeros((SLOTS, MAX_LEN), np.int32),
            num_tokens=np.zeros(SLOTS, np.int32),
            block_tables=tables.reshape(1, SLOTS, BLOCKS),
            block_size=BLOCK_SIZE,
        )
        self.proposer = EagleProposer(self.head, loaded.token_ids, width=64, vocab_size=VOCAB)
        self.computed = np.zeros(SLOTS, np.int32)

    def add(self, slot: int, token_ids: Sequence[int]) -> None:
        self.held.tokens[slot, : len(token_ids)] = token_ids
        self.held.num_tokens[slot], self.computed[slot] = len(token_ids), 0
        self.proposer.add(slot, new_request(token_ids))

    def propose(self, slots: Sequence[int], most: Sequence[int], least_chance: float = 0.0) -> list[list[int]]:
        return [list(guess) for guess in self.proposer.propose(slots, most, least_chance, self.held)]

    def step(self, counts: dict[int, int], drafts: dict[int, Sequence[int]], answers: dict[int, Sequence[int]]) -> None:
        """Runs the next `counts[slot]` known tokens and drafts; slots whose tokens are then all run draw `answers`, of
        which a draft is right if it is the same."""
        slots = sorted(counts)
        rows = [self._rows(slot, counts[slot], drafts.get(slot, ())) for slot in slots]
        drawn = [self._drawn(slot, counts[slot], drafts.get(slot, ()), answers) for slot in slots]
        batch = self._batch(slots, rows, drawn)
        self.target.run(batch)
        sampling = np.repeat(np.arange(len(slots)), [len(each) for each in drawn]).astype(np.int32)
        token_ids = np.array([token_id for each in drawn for token_id in each], np.int32)
        assert list(self.proposer.ran(RanStep(batch, slots, sampling, token_ids, self.target))) == []
        for slot, each in zip(slots, drawn, strict=True):
            known = [token_id for token_id in each if token_id >= 0]
            self.computed[slot] += counts[slot] + max(0, len(known) - 1)
            start = self.held.num_tokens[slot]
            self.held.tokens[slot, start : start + len(known)] = known
            self.held.num_tokens[slot] += len(known)

    def _rows(self, slot: int, count: int, drafts: Sequence[int]) -> list[int]:
        start = int(self.computed[slot])
        return [*self.held.tokens[slot, start : start + count].tolist(), *drafts]

    def _drawn(self, slot: int, count: int, drafts: Sequence[int], answers: dict[int, Sequence[int]]) -> list[int]:
        """One for the last known token and each draft; -1 behind the first that is not its draft."""
        if self.computed[slot] + count < self.held.num_tokens[slot]:
            return []
        drawn = list(answers[slot])[: len(drafts) + 1]
        right = next((i for i, draft in enumerate(drafts) if drawn[i] != draft), len(drafts))
        return [*drawn[: right + 1], *[-1] * (len(drafts) - right)]

    def _batch(self, slots: Sequence[int], rows: list[list[int]], drawn: list[list[int]]) -> StepBatch:
        counts = np.array([len(each) for each in rows], np.int32)
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        owners = np.repeat(np.array(slots), counts)
        steps = [self.computed[slot] + np.arange(len(each)) for slot, each in zip(slots, rows, strict=True)]
        positions = np.concatenate(steps).astype(np.int32)
        blocks = self.held.block_tables[:, owners, positions // BLOCK_SIZE]
        logit_rows = [np.arange(stop - len(each), stop) for stop, each in zip(starts[1:], drawn, strict=True)]
        return StepBatch(
            token_ids=np.array([token_id for each in rows for token_id in each], np.int32),
            positions=positions,
            seq_starts=starts,
            context_lens=(self.computed[list(slots)] + counts).astype(np.int32),
            block_tables=np.ascontiguousarray(self.held.block_tables[:, list(slots)]),
            slot_mapping=(blocks * BLOCK_SIZE + positions % BLOCK_SIZE).astype(np.int32),
            logit_rows=np.concatenate(logit_rows).astype(np.int32),
        )


def new_request(token_ids: Sequence[int]) -> NewRequestData:
    return NewRequestData(
        request_id="r", token_ids=list(token_ids), num_prompt_tokens=len(token_ids), params=SamplingParams(),
        eos_token_ids=(), block_ids=(()), tenant="", cache_salt=None,
    )  # fmt: skip


def fresh_guess(loaded: LoadedHead, token_ids: Sequence[int], most: int) -> list[int]:
    """What is guessed where all tokens have run at once and nothing was guessed before."""
    rig = Rig(loaded)
    rig.add(0, token_ids[:-1])
    rig.step({0: len(token_ids) - 1}, {}, {0: token_ids[-1:]})
    return rig.propose([0], [most])[0]


def some_tokens(count: int, seed: int = 3) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB, count).tolist()


def known(rig: Rig, slot: int) -> list[int]:
    return rig.held.tokens[slot, : rig.held.num_tokens[slot]].tolist()


@dataclass(frozen=True)
class Turn:
    """One step of a request: how many prompt tokens at most, how many guesses, and how many of these come."""

    chunk: int
    most: int
    right: int


TURNS = st.lists(st.builds(Turn, st.integers(1, 9), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(turns=st.tuples(TURNS, TURNS))
def test_guesses_are_those_of_a_head_that_has_seen_it_all_at_once(loaded: LoadedHead, turns) -> None:
    rig = Rig(loaded)
    for slot, prompt in ((0, some_tokens(13)), (2, some_tokens(5, seed=4))):
        rig.add(slot, prompt)
    todo = {0: list(turns[0]), 2: list(turns[1])}
    while any(todo.values()):
        now = {slot: each.pop(0) for slot, each in todo.items() if each}
        take_a_step(rig, now)
    for slot in (0, 2):
        if rig.computed[slot] == rig.held.num_tokens[slot] - 1:
            assert rig.propose([slot], [4]) == [fresh_guess(loaded, known(rig, slot), 4)]


def take_a_step(rig: Rig, turns: dict[int, Turn]) -> None:
    left = {slot: int(rig.held.num_tokens[slot] - rig.computed[slot]) for slot in turns}
    asked = [slot for slot, turn in turns.items() if left[slot] == 1 and turn.most > 0 and rig.computed[slot] > 0]
    guesses = dict(zip(asked, rig.propose(asked, [turns[slot].most for slot in asked]), strict=True)) if asked else {}
    answers = {
        slot: [*guesses.get(slot, [])[: turn.right], *some_tokens(9, seed=int(rig.held.num_tokens[slot]))]
        for slot, turn in turns.items()
    }
    rig.step({slot: min(turn.chunk, left[slot]) for slot, turn in turns.items()}, guesses, answers)


def test_a_slot_of_its_own_and_a_batch_guess_the_same(loaded: LoadedHead) -> None:
    rig = Rig(loaded)
    for slot, count in ((0, 9), (1, 14), (2, 6)):
        rig.add(slot, some_tokens(count, seed=slot))
    rig.step({0: 9, 1: 14, 2: 6}, {}, {slot: [7 + slot] for slot in range(3)})
    together = rig.propose([2, 0, 1], [1, 4, 2])
    assert [len(guess) for guess in together] == [1, 4, 2]
    assert rig.propose([0], [4]) == [together[1]]
    for slot, guess in zip((2, 0, 1), together, strict=True):
        assert fresh_guess(loaded, known(rig, slot), len(guess)) == guess


def test_asking_twice_changes_nothing(loaded: LoadedHead) -> None:
    rig = Rig(loaded)
    rig.add(0, some_tokens(9))
    rig.step({0: 9}, {}, {0: [5]})
    first = rig.propose([0], [4])
    assert rig.propose([0], [4]) == first
    assert rig.propose([0], [2]) == [first[0][:2]]


def test_what_is_not_likely_enough_is_not_guessed_nor_gone_on_from(loaded: LoadedHead) -> None:
    rig = Rig(loaded)
    for slot in (0, 1):
        rig.add(slot, some_tokens(9, seed=slot))
    rig.step({0: 9, 1: 9}, {}, {0: [5], 1: [6]})
    whole = rig.propose([0, 1], [4, 4])
    assert rig.propose([0, 1], [4, 4], 1.0) == [[], []]
    chances = [1 - 0.5**power for power in range(20, 1, -1)] + [0.5**power for power in range(1, 40)]
    cuts = [rig.propose([0, 1], [4, 4], chance) for chance in chances]
    for slot in (0, 1):
        lengths = [len(cut[slot]) for cut in cuts]
        assert lengths == sorted(lengths) and lengths[0] == 0 and lengths[-1] == 4
        assert all(cut[slot] == whole[slot][: len(cut[slot])] for cut in cuts)


def test_a_new_request_knows_nothing_of_the_one_before(loaded: LoadedHead) -> None:
    rig = Rig(loaded)
    rig.add(0, some_tokens(9))
    rig.step({0: 9}, {}, {0: [5]})
    rig.propose([0], [3])
    rig.proposer.remove(0)
    rig.add(0, some_tokens(7, seed=8))
    rig.step({0: 7}, {}, {0: [6]})
    assert rig.propose([0], [4]) == [fresh_guess(loaded, known(rig, 0), 4)]


def test_slots_that_were_never_added_are_taken_in(loaded: LoadedHead) -> None:
    """Of a request that yields no tokens: whoever hits its blocks finds the head's state, too."""
    rig, told = Rig(loaded), Rig(loaded)
    token_ids = some_tokens(12)
    for each in (rig, told):
        each.add(1, token_ids)
    rig.proposer.remove(1)
    for each in (rig, told):
        each.step({1: 11}, {}, {})
    state = [state_of(each.head, each.held.block_tables[0, 1, :3]) for each in (rig, told)]
    assert state[0] == state[1] and any(state[0])


def state_of(head: NativeExecutor, blocks: Int32) -> list[bytes]:
    out = [np.empty(head.block_bytes(0), np.uint8) for _ in blocks]
    for block, data in zip(blocks.tolist(), out, strict=True):
        head.read_block(0, block, data)
    return [data.tobytes() for data in out]


def test_behind_a_prefix_hit_the_hidden_state_before_is_zero(loaded: LoadedHead) -> None:
    """Guesses need not be those of one who has seen it all, but must be guesses."""
    rig = Rig(loaded)
    token_ids = some_tokens(12)
    rig.add(0, token_ids)
    rig.step({0: 12}, {}, {0: [5]})
    rig.add(0, [*token_ids, 9, 8, 7])  # another request over the same blocks
    rig.computed[0] = 12
    rig.step({0: 3}, {}, {0: [6]})
    (guess,) = rig.propose([0], [4])
    assert len(guess) == 4 and all(0 <= token_id < VOCAB for token_id in guess)


@pytest.mark.parametrize(("noise", "least", "most"), [(0.0, 40, 40), (0.1, 10, 39)])
def test_a_copy_of_the_target_is_right(noise: float, least: int, most: int, tmp_path: Path) -> None:
    """Of 40 guesses in ten chains of four: all of them, or with noise in its weights some."""
    target, head = write_copied(tmp_path, noise=noise)
    model = load_model(open_checkpoint([target / "model.safetensors"]))
    rig = Rig(read_head(head, *model))
    right = 0
    for seed in range(10):
        token_ids = some_tokens(9, seed)
        for _ in range(5):
            token_ids.append(likeliest(rig.target, token_ids))
        rig.add(0, token_ids[:9])
        rig.step({0: 9}, {}, {0: token_ids[9:10]})
        (guess,) = rig.propose([0], [4])
        right += next((i for i, token_id in enumerate(guess) if token_id != token_ids[10 + i]), 4)
    assert least <= right <= most


def likeliest(target: NativeExecutor, token_ids: Sequence[int]) -> int:
    driver = Driver(target)
    return int(driver.step([(driver.start(token_ids), len(token_ids))])[0].argmax())


def test_a_failed_row_tells_nothing(loaded: LoadedHead) -> None:
    rig = Rig(loaded)
    rig.add(0, some_tokens(9))
    rig.step({0: 9}, {}, {0: [5]})
    (guess,) = rig.propose([0], [2])
    rig.step({0: 1}, {0: guess}, {0: [-1, -1, -1]})
    rig.computed[0] = rig.held.num_tokens[0] - 1
    assert rig.propose([0], [2]) == [guess]
