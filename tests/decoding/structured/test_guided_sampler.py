"""A sampler that draws under masks: which rows have one, what is followed, and whose fault ends whom."""

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from octavo.decoding.structured.backend import CompiledGrammar
from octavo.decoding.structured.guided_sampler import GuidedSampler
from octavo.errors import RequestFailedError
from octavo.execution.protocols import Float32, Int32, SampledRows, TokenMasks
from octavo.request.outputs import LogprobRow
from octavo.request.params import SamplingParams
from octavo.request.structured import StructuredKind, StructuredSpec
from tests.decoding.structured.walks import BACKEND, END, TOKENS, WORDS

VOCAB = len(TOKENS)


class Inner:
    """Takes the allowed token of the highest logit, and keeps what it was given."""

    def __init__(self) -> None:
        self.slots: set[int] = set()
        self.mask_rows: list[list[int] | None] = []
        self.refused: set[int] = set()
        """Rows with an error of its own."""

    def add(
        self, slot: int, params: SamplingParams, eos: Sequence[int], prompt: Sequence[int], output: Sequence[int]
    ) -> None:
        assert slot not in self.slots
        self.slots.add(slot)

    def remove(self, slot: int) -> None:
        self.slots.remove(slot)

    def prepare(self, slots: Int32) -> None:
        raise AssertionError("the other sampler makes no masks")

    def sample(self, logits: Float32, slots: Int32, masks: TokenMasks | None = None) -> SampledRows:
        logits = logits.copy()
        self.mask_rows.append(None if masks is None else masks.rows.tolist())
        for row in range(len(slots)):
            if masks is not None and masks.rows[row] >= 0:
                words = np.ascontiguousarray(masks.words[masks.rows[row]])
                bits = np.unpackbits(words.view(np.uint8), bitorder="little")[:VOCAB]
                logits[row, bits == 0] = -np.inf
        ids = logits.argmax(axis=1).astype(np.int32)
        errors = dict.fromkeys(self.refused, "refused")
        ids[list(errors)] = -1
        return SampledRows(ids, [], errors)

    def score(self, logits: Float32, targets: Int32, num_logprobs: int) -> list[LogprobRow]:
        return []


class Source:
    """Compiles when it is asked."""

    def __init__(self) -> None:
        self.forgotten: list[StructuredSpec] = []

    def of(self, spec: StructuredSpec) -> CompiledGrammar:
        if spec.source == "gone":
            raise RequestFailedError("structured_outputs: its grammar has not been compiled")
        return BACKEND.compile(spec)

    def forget(self, spec: StructuredSpec) -> None:
        self.forgotten.append(spec)


class Case:
    def __init__(self) -> None:
        self.inner, self.source = Inner(), Source()
        self.sampler = GuidedSampler(self.inner, self.source, VOCAB)

    def add(self, slot: int, pattern: str | None, output: bytes = b"", **params: object) -> None:
        spec = None if pattern is None else StructuredSpec(kind=StructuredKind.REGEX, source=pattern)
        made = SamplingParams(structured_outputs=spec, max_tokens=100, **params)  # type: ignore[arg-type]
        self.sampler.add(slot, made, () if made.ignore_eos else (END,), [1], list(output))

    def step(self, *slots: int, wants: Iterable[int] = ()) -> SampledRows:
        """Draws for slots; `wants`: the token that each row's logits favour."""
        logits = np.zeros((len(slots), VOCAB), np.float32)
        for row, token in enumerate(wants):
            logits[row, token] = 1.0
        named = np.array(slots, np.int32)
        self.sampler.prepare(named)
        return self.sampler.sample(logits, named)


@pytest.fixture
def case() -> Case:
    return Case()


def test_rows_have_the_masks_of_their_slots_and_others_none(case: Case) -> None:
    case.add(0, None)
    case.add(1, "b+")
    case.add(2, "[xy]+")
    sampled = case.step(0, 1, 2, wants=b"zzy")
    assert bytes(sampled.token_ids.tolist()) == b"zby"
    assert case.inner.mask_rows == [[-1, 0, 1]]
    assert bytes(case.step(2, 0, wants=b"zz").token_ids.tolist()) == b"xz"
    assert case.inner.mask_rows[-1] == [0, -1]


def test_without_shapes_the_other_sampler_hears_of_no_masks(case: Case) -> None:
    case.add(0, None)
    case.step(0, wants=b"q")
    assert case.inner.mask_rows == [None]
    case.add(1, "a")
    case.step(0, wants=b"q")
    assert case.inner.mask_rows == [None, None], "the guided one yields nothing in this step"


def test_an_answer_that_ends_is_told_once_and_then_left_alone(case: Case) -> None:
    case.add(0, "ab", ignore_eos=True)
    case.add(1, "[ab]+")
    assert case.step(0, 1, wants=b"ab").completed == []
    assert case.step(0, 1, wants=b"bb").completed == [0]
    behind = case.step(0, 1, wants=b"zb")  # planned before it was known that the answer had ended
    assert (behind.completed, behind.errors) == ([], {})
    assert case.inner.mask_rows[-1] == [-1, 0]


def test_a_row_that_fails_in_the_other_sampler_is_not_followed(case: Case) -> None:
    case.add(0, "[ab]+")
    case.add(1, "[ab]+")
    case.inner.refused = {0}
    sampled = case.step(0, 1, wants=b"ab")
    assert (sampled.token_ids.tolist(), sampled.errors) == ([-1, ord("b")], {0: "refused"})
    assert case.source.forgotten == []


def test_an_answer_that_cannot_go_on_fails_alone_and_its_grammar_is_forgotten(case: Case, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    case.add(0, "[ab]+")
    case.add(1, "[ab]+")

    def stumble(row: Int32) -> None:
        raise RequestFailedError("too many ways to read it")

    monkeypatch.setattr(case.sampler._guides[0], "fill_mask", stumble)
    sampled = case.step(0, 1, wants=b"ab")
    assert (sampled.token_ids.tolist(), sampled.errors) == ([-1, ord("b")], {0: "too many ways to read it"})
    assert [spec.source for spec in case.source.forgotten] == ["[ab]+"]
    assert case.step(0, 1, wants=b"zb").errors == {}, "it is over"


def test_what_raises_while_masks_are_filled_is_raised_by_the_call_that_waits(case: Case, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    case.add(0, "[ab]+")
    monkeypatch.setattr(case.sampler._guides[0], "fill_mask", lambda row: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        case.step(0)
    monkeypatch.undo()
    assert case.step(0, wants=b"a").token_ids.tolist() == [ord("a")]


def test_masks_that_are_never_used(case: Case) -> None:
    """The forward has failed, so the step runs again in parts, or requests go."""
    case.add(0, "a+")
    case.add(1, "b+")
    case.sampler.prepare(np.array([0, 1], np.int32))
    assert bytes(case.step(1, wants=b"z").token_ids.tolist()) == b"b"
    case.sampler.prepare(np.array([0, 1], np.int32))
    case.sampler.remove(1)
    assert bytes(case.step(0, wants=b"z").token_ids.tolist()) == b"a"
    case.sampler.prepare(np.array([0], np.int32))
    case.add(1, "c+", b"cc")
    assert bytes(case.step(0, 1, wants=b"zz").token_ids.tolist()) == b"ac"


def test_who_cannot_be_taken_in_leaves_nothing(case: Case) -> None:
    for pattern, output in (("gone", b""), ("a+", b"b")):
        with pytest.raises(RequestFailedError):
            case.add(0, pattern, output)
    assert case.inner.slots == set()
    case.add(0, "a+")
    with pytest.raises(AssertionError):
        case.add(0, "b+")
    assert bytes(case.step(0, wants=b"b").token_ids.tolist()) == b"a"


def test_removing_and_adding_again_goes_on_from_the_tokens_given(case: Case) -> None:
    """As a runner does that undoes what was drawn."""
    case.add(0, "abc")
    case.step(0, wants=b"z")
    case.step(0, wants=b"z")
    case.sampler.remove(0)
    case.add(0, "abc", b"a")
    assert bytes(case.step(0, wants=b"z").token_ids.tolist()) == b"b"


def test_many_rows_at_once(case: Case) -> None:
    for slot in range(70):
        case.add(slot, f"[{chr(97 + slot % 26)}]+" if slot % 3 else None)
    sampled = case.step(*range(70), wants=[ord("0")] * 70)
    expected = [ord("a") + slot % 26 if slot % 3 else ord("0") for slot in range(70)]
    assert sampled.token_ids.tolist() == expected
    assert case.sampler._words.shape == (sum(slot % 3 > 0 for slot in range(70)), WORDS)


def test_masks_of_others_are_refused(case: Case) -> None:
    with pytest.raises(ValueError, match="makes its masks itself"):
        case.sampler.sample(np.zeros((1, VOCAB), np.float32), np.zeros(1, np.int32), TokenMasks(None, None))  # type: ignore[arg-type]
