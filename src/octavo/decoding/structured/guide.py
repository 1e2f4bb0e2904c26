"""One answer on its way through its grammar."""

from collections.abc import Sequence

from octavo.decoding.reasoning import ReasoningPhase, ReasoningTracker
from octavo.decoding.structured.backend import CompiledGrammar, Matcher, allow, forbid
from octavo.errors import InvalidRequestError, RequestFailedError
from octavo.execution.protocols import Int32
from octavo.request.params import SamplingParams
from octavo.request.structured import StructuredSpec


class Guide:
    """Says which tokens may come next, and where the answer ends without an end token.

    That is where the answer is whole, nothing but an end token can follow, and none may: there is none
    (`ignore_eos`), the request's other parameters exclude them all, or `min_tokens` is not reached.

    Reasoning comes before the shape, if the request says how it is marked. It may be any text but an end of the answer:

        <think> r r r </think> { " a " : 1 }
        opening | free        | the shape
    """

    def __init__(
        self,
        grammar: CompiledGrammar,
        spec: StructuredSpec,
        params: SamplingParams,
        eos_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
    ) -> None:
        """
        Args:
            output_token_ids: what stands of the answer, after a preemption.

        Raises:
            InvalidRequestError: no answer of at least one token is of that shape.
            RequestFailedError: what stands of it is not of that shape, or became too complex.
        """
        self.spec = spec
        self.is_over = False
        """The answer has ended; what is drawn behind its end is dropped by others."""
        self._grammar = grammar
        self._end_token_ids = tuple(i for i in eos_token_ids if _may_be_drawn(i, params))
        self._min_tokens = params.min_tokens
        self._num_tokens = 0
        self._matcher: Matcher | None = grammar.matcher(self._end_token_ids)
        """Of the tokens that belong to the shape; None: what stands of the answer can only be a begin marker."""
        self._reasoning = None if params.reasoning is None else ReasoningTracker(params.reasoning)
        """None: there is none, or it is over, and the shape binds what follows."""
        for token_id in output_token_ids:
            self._take(token_id)
        if self._num_tokens == 0 and self._ends_here():
            raise InvalidRequestError(
                spec.field,
                spec.source or list(spec.choices),
                "only the empty answer is of that shape, and ignore_eos, min_tokens or the tokens allowed exclude it",
            )

    def fill_mask(self, row: Int32) -> None:
        """See `Matcher.fill_mask`."""
        if self._is_free:
            row[:] = -1
            forbid(row, self._end_token_ids)
            return
        if self._matcher is None:
            row[:] = 0
        else:
            self._matcher.fill_mask(row)
        allow(row, self._opening_ids)

    def num_worth_running(self, drafts: Sequence[int]) -> int:
        """How many of these drafts, from the first one on, the answer's shape allows, as far as `fill_masks` looks
        ahead: not across the border between reasoning and shape, nor beyond what may be the answer's end."""
        if self._is_free:
            return self._num_inside(drafts)
        if self._matcher is None or self._reasoning is not None:
            return 0
        probe = self._matcher.clone()
        for count, token_id in enumerate(drafts):
            if token_id in self._end_token_ids or not _goes_on(probe, token_id):
                return count
        return len(drafts)

    def _num_inside(self, drafts: Sequence[int]) -> int:
        tracker = self._reasoning
        for count, token_id in enumerate(drafts):
            tracker = None if tracker is None else tracker.behind(token_id)
            if tracker is None or tracker.phase is not ReasoningPhase.INSIDE or token_id in self._end_token_ids:
                return count
        return len(drafts)

    def fill_masks(self, rows: Int32, drafts: Sequence[int]) -> int:
        """Writes the masks of a run of rows, `[1 + drafts, mask_words(vocab_size)]`: of the answer as it is, and behind
        each of its drafts, which `num_worth_running` has let pass.

        Returns:
            How many are written, at least 1: behind the others the answer may not go on.
        """
        self.fill_mask(rows[0])
        if self._is_free or self._matcher is None:
            rows[1:] = rows[0]
            return len(rows)
        probe = self._matcher.clone() if drafts else None
        for count, (token_id, row) in enumerate(zip(drafts, rows[1:], strict=True), 1):
            if probe is None or not _fills(probe, token_id, row):
                return count
        return len(rows)

    def follow(self, token_id: int) -> bool:
        """Goes on by one token; whether the answer ends with it although it is no end token.

        Raises:
            RequestFailedError: see `Matcher.accept`.
        """
        self._take(token_id)
        self.is_over = self._ends_here()
        return self.is_over

    def forced_tokens(self) -> list[int]:
        """See `Matcher.forced_tokens`; none where reasoning is open or may begin."""
        if self._is_free or self._matcher is None or self._reasoning is not None:
            return []
        return self._matcher.forced_tokens()

    @property
    def _is_free(self) -> bool:
        return self._reasoning is not None and self._reasoning.phase is ReasoningPhase.INSIDE

    @property
    def _opening_ids(self) -> tuple[int, ...]:
        """What would go on a marker that begins reasoning."""
        return () if self._reasoning is None else self._reasoning.opening_ids

    def _take(self, token_id: int) -> None:
        if not self._is_free:
            self._accept(token_id)
        self._num_tokens += 1
        if self._reasoning is not None:
            self._follow_reasoning(self._reasoning, token_id)

    def _accept(self, token_id: int) -> None:
        """Takes a token as part of the shape. One that may also go on a begin marker need not be."""
        if self._matcher is not None and self._matcher.accept(token_id):
            return
        if token_id not in self._opening_ids:
            problem = f"token {token_id} at {self._num_tokens} of the answer is not of its shape"
            raise RequestFailedError(f"{self.spec.field}: {problem}")
        self._matcher = None

    def _follow_reasoning(self, reasoning: ReasoningTracker, token_id: int) -> None:
        reasoning.push(token_id)
        if reasoning.phase is ReasoningPhase.INSIDE:
            self._matcher = None
        elif reasoning.phase is ReasoningPhase.BEHIND:
            self._matcher, self._reasoning = self._grammar.matcher(self._end_token_ids), None
        elif not reasoning.opening_ids:
            self._reasoning = None

    def _ends_here(self) -> bool:
        if self._matcher is None or self._is_free or self._opening_ids:
            return False
        may_end = self._end_token_ids and self._num_tokens >= self._min_tokens
        return not may_end and self._matcher.is_complete


def _goes_on(probe: Matcher, token_id: int) -> bool:
    """Takes a draft, if it is allowed and something may follow it."""
    try:
        return probe.accept(token_id) and not probe.is_complete
    except RequestFailedError:  # if the draft is right its request will fail without it, too
        return False


def _fills(probe: Matcher, token_id: int, row: Int32) -> bool:
    """Takes a draft and writes the mask behind it; False where that cannot be."""
    try:
        if not probe.accept(token_id):
            return False
        probe.fill_mask(row)
    except RequestFailedError:
        return False
    return True


def _may_be_drawn(token_id: int, params: SamplingParams) -> bool:
    """Whether the parameters leave room for an end token, `min_tokens` aside."""
    allowed = params.allowed_token_ids
    return (allowed is None or token_id in allowed) and (token_id,) not in params.bad_words_token_ids
