"""Which requests of a step prefill and which decode, from the plans alone."""

from dataclasses import dataclass
from operator import mul

from octavo.request.step_record import ScheduledFigures
from octavo.scheduling.plan import StepPlan


@dataclass(frozen=True, slots=True)
class Composition:
    """What a plan is made of."""

    scheduled: ScheduledFigures
    prefill_attention_pairs: int = 0
    num_grammar_requests: int = 0


class Composer:
    """Reads all plans, in their order. A step in which everybody decodes, as most do, costs a few passes over its
    columns."""

    def __init__(self) -> None:
        self._length_by_id: dict[str, int] = {}
        """Of requests that prefill: the tokens that they were to run from."""
        self._prompt_by_id: dict[str, int] = {}
        """Of these: tokens of the prompt."""
        self._shaped: set[str] = set()
        """Requests whose answers are of a given shape."""

    def compose(self, plan: StepPlan) -> Composition:
        """What the next plan is made of."""
        self._follow(plan)
        num_grammars = 0 if not self._shaped else len(self._shaped.intersection(plan.request_ids))
        if not self._length_by_id:
            scheduled, pairs = _all_decode(plan), 0
        else:
            scheduled, pairs = self._mixed(plan)
        return Composition(scheduled, pairs, num_grammars)

    def _follow(self, plan: StepPlan) -> None:
        for request_id in (*plan.finished_request_ids, *plan.preempted_request_ids):
            self._length_by_id.pop(request_id, None)
            self._prompt_by_id.pop(request_id, None)
            self._shaped.discard(request_id)
        for new in plan.new_requests:
            self._length_by_id[new.request_id] = len(new.token_ids)
            self._prompt_by_id[new.request_id] = new.num_prompt_tokens
            if new.params.structured_outputs is not None:
                self._shaped.add(new.request_id)

    def _mixed(self, plan: StepPlan) -> tuple[ScheduledFigures, int]:
        lengths: list[int] = []
        contexts: list[int] = []
        num_tokens = num_kv_tokens = pairs = 0
        drafts = plan.num_draft_tokens or (0,) * len(plan.request_ids)
        columns = zip(plan.request_ids, plan.num_computed_tokens, plan.num_scheduled_tokens, drafts, strict=True)
        for request_id, computed, scheduled, num_drafts in columns:
            known = scheduled - num_drafts
            if self._prefills(request_id, computed, known):
                lengths.append(self._length_by_id[request_id])
                num_tokens += known
                num_kv_tokens += computed
                pairs += known * computed + known * (known + 1) // 2
            else:
                contexts.append(computed + known)
        return ScheduledFigures(
            num_prefill_requests=len(lengths),
            sum_prefill_tokens=num_tokens,
            var_prefill_length=variance(lengths),
            sum_prefill_kv_tokens=num_kv_tokens,
            num_decode_requests=len(contexts),
            sum_decode_kv_tokens=sum(contexts),
            var_decode_kv_tokens=variance(contexts),
        ), pairs

    def _prefills(self, request_id: str, computed: int, known: int) -> bool:
        """One that does not any more is forgotten: it never does again, unless it is preempted."""
        if request_id not in self._length_by_id:
            return False
        if known > 1 or computed < self._prompt_by_id[request_id]:
            return True
        del self._length_by_id[request_id], self._prompt_by_id[request_id]
        return False


def _all_decode(plan: StepPlan) -> ScheduledFigures:
    """Everybody runs one known token, behind those computed before."""
    contexts = [computed + 1 for computed in plan.num_computed_tokens]
    return ScheduledFigures(
        num_decode_requests=len(contexts),
        sum_decode_kv_tokens=sum(contexts),
        var_decode_kv_tokens=variance(contexts),
    )


def variance(lengths: list[int]) -> float:
    """Of the whole population; exact before the one division. 0 of nobody."""
    count, total = len(lengths), sum(lengths)
    return (count * sum(map(mul, lengths, lengths)) - total * total) / (count * count) if count else 0.0
