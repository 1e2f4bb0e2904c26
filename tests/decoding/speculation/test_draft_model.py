"""A draft model runs every token that stands once, in the step in which the first model runs it."""

from collections.abc import Sequence

import numpy as np
import pytest

from octavo.decoding.speculation.draft_model import DraftModelProposer
from octavo.execution.protocols import Float32, RanStep, SlotArrays, StepBatch
from tests.decoding.speculation.texts import Request

VOCAB, PADDED = 50, 56
BLOCK_SIZE = 4


class Counting:
    """Says that the token behind n is n + 1, padding even more so; keeps what it was asked to run."""

    def __init__(self) -> None:
        self.batches: list[StepBatch] = []
        self.is_closed = False

    def run(self, batch: StepBatch) -> Float32:
        self.batches.append(batch)
        logits = np.zeros((len(batch.logit_rows), PADDED), np.float32)
        logits[np.arange(len(logits)), batch.token_ids[batch.logit_rows] + 1] = 1
        logits[:, VOCAB:] = 2
        return logits

    def close(self) -> None:
        self.is_closed = True

    def take(self) -> list[list[tuple[int, int]]]:
        """(position, token) of the rows of each run since the last call."""
        rows = [list(zip(b.positions.tolist(), b.token_ids.tolist(), strict=True)) for b in self.batches]
        self.batches.clear()
        return rows


def make(slots: Sequence[int] = ()) -> tuple[DraftModelProposer, Counting]:
    executor = Counting()
    proposer = DraftModelProposer(executor, VOCAB)  # type: ignore[arg-type]
    for slot in slots:
        proposer.add(slot, Request([1]))
    return proposer, executor


def held(texts: dict[int, list[int]]) -> SlotArrays:
    """Slots with these tokens; block b of slot s and group g is 100 g + 10 s + b."""
    tokens, counts = np.zeros((4, 40), np.int32), np.zeros(4, np.int32)
    for slot, text in texts.items():
        tokens[slot, : len(text)] = text
        counts[slot] = len(text)
    tables = np.array([[[100 * g + 10 * s + b for b in range(10)] for s in range(4)] for g in range(2)], np.int32)
    return SlotArrays(tokens, counts, tables, BLOCK_SIZE)


def step(*sequences: tuple[int, int, list[int], list[int]]) -> RanStep:
    """Of each (slot, first position, tokens that run, tokens drawn); drafts follow the first token where tokens were
    drawn, and a prompt's rows yield nothing."""
    token_ids, positions, starts, contexts, sampling, drawn_ids = [], [], [0], [], [], []
    for place, (_, first, tokens, drawn) in enumerate(sequences):
        token_ids += tokens
        positions += range(first, first + len(tokens))
        starts.append(len(token_ids))
        contexts.append(first + len(tokens))
        if drawn:
            sampling += [place] * len(tokens)
            drawn_ids += [*drawn, *[-1] * (len(tokens) - len(drawn))]
    count = len(token_ids)
    batch = StepBatch(
        token_ids=np.array(token_ids, np.int32),
        positions=np.array(positions, np.int32),
        seq_starts=np.array(starts, np.int32),
        context_lens=np.array(contexts, np.int32),
        block_tables=np.zeros((2, len(sequences), 10), np.int32),
        slot_mapping=np.arange(2 * count, dtype=np.int32).reshape(2, count),
        logit_rows=np.zeros(len(sampling), np.int32),
        block_copies=(object(),),  # type: ignore[arg-type]
    )
    slots = [slot for slot, *_ in sequences]
    sampled = np.array(sampling, np.int32), np.array(drawn_ids, np.int32)
    return RanStep(batch, slots, *sampled, states=None)  # type: ignore[arg-type]


def test_a_chain_runs_row_by_row_for_all_requests_together() -> None:
    proposer, executor = make([0, 2])
    texts = held({0: [7, 8, 9], 2: list(range(20, 30))})
    assert proposer.propose([2, 0], [1, 3], 0.0, texts) == [[30], [10, 11, 12]]
    first = executor.batches[0]
    assert first.slot_mapping.tolist() == [[22 * 4 + 1, 2], [122 * 4 + 1, 100 * 4 + 2]]
    assert first.context_lens.tolist() == [10, 3]
    assert executor.take() == [[(9, 29), (2, 9)], [(3, 10)], [(4, 11)]]


def test_what_is_not_likely_enough_is_not_guessed_nor_gone_on_from() -> None:
    """Logits of 1 for a token and 0 for the others of 50: a chance of 1 in 19, squared and cubed."""
    proposer, executor = make([0])
    text = held({0: [6, 7, 9]})
    assert proposer.propose([0], [3], 0.053, text) == [[]]
    assert executor.take() == [[(2, 9)]]
    proposer.ran(step((0, 2, [9], [10])))
    assert executor.take() == [], "the known token has been run"
    assert proposer.propose([0], [3], 0.052, text) == [[10]]
    assert executor.take() == [[(2, 9)], [(3, 10)]]
    proposer.ran(step((0, 2, [9, 10], [10, 11])))
    assert executor.take() == []
    assert proposer.propose([0], [3], 0.0001, text) == [[10, 11, 12]]


def test_padding_is_never_guessed() -> None:
    proposer, _ = make([0])
    assert proposer.propose([0], [2], 0.0, held({0: [48]})) == [[49, 0]], "nothing comes behind the last token"


@pytest.mark.parametrize(
    ("ran", "drawn", "missing"),
    [
        pytest.param([9, 10, 11, 12], [10, 11, 12, 13], [[(5, 12)]], id="all right"),
        pytest.param([9, 10, 11, 12], [10, 11, 40], [], id="two right"),
        pytest.param([9, 10, 11, 12], [40], [], id="none right"),
        pytest.param([9, 10], [10, 11], [], id="fewer were worth running"),
        pytest.param([9], [10], [], id="none were worth running"),
        pytest.param([9, 10, 44, 45], [10, 44, 45, 46], [[(4, 44), (5, 45)]], id="others were run"),
        pytest.param([9, 44], [10], [], id="others were run, and were wrong"),
    ],
)
def test_what_stands_and_was_not_run_is_run_behind_the_step(
    ran: list[int], drawn: list[int], missing: list[list[tuple[int, int]]]
) -> None:
    proposer, executor = make([0])
    proposer.propose([0], [3], 0.0, held({0: [6, 7, 9]}))
    executor.take()
    assert list(proposer.ran(step((0, 2, ran, drawn)))) == []
    assert executor.take() == missing


def test_a_step_without_drafts_is_run_as_it_is() -> None:
    proposer, executor = make([0])
    ran = step((0, 0, [1, 2, 3], []), (3, 8, [5], [6]))
    proposer.ran(ran)
    (batch,) = executor.batches
    assert batch.token_ids is ran.batch.token_ids
    assert len(batch.logit_rows) == 0
    assert batch.block_copies == (), "the first model's step has made them, in all layers"


def test_prompts_and_requests_nobody_added_are_run_beside_drafts() -> None:
    proposer, executor = make([0])
    proposer.propose([0], [2], 0.0, held({0: [6, 7, 9]}))
    executor.take()
    proposer.ran(step((1, 4, [30, 31], []), (0, 2, [9, 10, 11], [10, 11, 12]), (3, 8, [5], [6])))
    (batch,) = executor.batches
    assert executor.take() == [[(4, 30), (5, 31), (4, 11), (8, 5)]]
    assert batch.seq_starts.tolist() == [0, 2, 3, 4]
    assert batch.context_lens.tolist() == [6, 5, 9]
    assert batch.slot_mapping.tolist() == [[0, 1, 4, 5], [6, 7, 10, 11]]


def test_a_chain_counts_for_its_own_step_only() -> None:
    """What came of its part is not known where that failed, and the slot holds another request later."""
    proposer, executor = make([0])
    proposer.propose([0], [2], 0.0, held({0: [6, 7, 9]}))
    proposer.remove(0)
    proposer.add(0, Request([6, 7, 9]))
    executor.take()
    proposer.ran(step((0, 2, [9], [10])))
    assert executor.take() == [[(2, 9)]]


def test_a_chain_that_breaks_is_run_again_in_full() -> None:
    proposer, executor = make([0])
    whole = executor.run

    def run(batch: StepBatch) -> Float32:
        if batch.positions[0] == 4:
            raise MemoryError
        return whole(batch)

    executor.run = run  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        proposer.propose([0], [3], 0.0, held({0: [6, 7, 9]}))
    executor.take()
    proposer.ran(step((0, 2, [9], [10])))
    assert executor.take() == [[(2, 9)]]


def test_it_closes_its_executor() -> None:
    proposer, executor = make()
    proposer.close()
    assert executor.is_closed
