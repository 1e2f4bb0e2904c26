"""One answer on its way through its grammar."""

from collections.abc import Sequence

from octavo.decoding.structured.backend import CompiledGrammar
from octavo.errors import InvalidRequestError, RequestFailedError
from octavo.execution.protocols import Int32
from octavo.request.params import SamplingParams
from octavo.request.structured import StructuredSpec


class Guide:
    """Says which tokens may come next, and where the answer ends without an end token.

    That is where the answer is whole, nothing but an end token can follow, and none may: there is none
    (`ignore_eos`), the request's other parameters exclude them all, or `min_tokens` is not reached.
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
        end_token_ids = tuple(i for i in eos_token_ids if _may_be_drawn(i, params))
        self._min_tokens = params.min_tokens if end_token_ids else None
        """Tokens from which on end tokens may come; None: never."""
        self._matcher = grammar.matcher(end_token_ids)
        for token_id in output_token_ids:
            self._accept(token_id)
        if not output_token_ids and self._ends_here():
            raise InvalidRequestError(
                spec.field,
                spec.source or list(spec.choices),
                "only the empty answer is of that shape, and ignore_eos, min_tokens or the tokens allowed exclude it",
            )

    def fill_mask(self, row: Int32) -> None:
        """See `Matcher.fill_mask`."""
        self._matcher.fill_mask(row)

    def follow(self, token_id: int) -> bool:
        """Goes on by one token; whether the answer ends with it although it is no end token.

        Raises:
            RequestFailedError: see `Matcher.accept`.
        """
        self._accept(token_id)
        self.is_over = self._ends_here()
        return self.is_over

    def _accept(self, token_id: int) -> None:
        if not self._matcher.accept(token_id):
            at = self._matcher.num_tokens
            raise RequestFailedError(f"{self.spec.field}: token {token_id} at {at} of the answer is not of its shape")

    def _ends_here(self) -> bool:
        may_end = self._min_tokens is not None and self._matcher.num_tokens >= self._min_tokens
        return not may_end and self._matcher.is_complete


def _may_be_drawn(token_id: int, params: SamplingParams) -> bool:
    """Whether the parameters leave room for an end token, `min_tokens` aside."""
    allowed = params.allowed_token_ids
    return (allowed is None or token_id in allowed) and (token_id,) not in params.bad_words_token_ids
