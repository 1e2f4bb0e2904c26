"""How fast steps are, as moving averages over the last ones of their kind."""

from octavo.kv.speed import PrefillSpeed
from octavo.scheduling.plan import StepPlan, StepTimings

_KEEP = 0.9
"""Weight of all decode steps before, against that of the newest."""


class StepRates:
    """What a router foretells waits with. Steps that decode and prefill at one time count as neither unless prompts
    are by far the most of them. Drafts make no prefill of a step that decodes; it takes as long as it takes."""

    def __init__(self) -> None:
        self._decode_s: float | None = None
        self._prefill = PrefillSpeed()

    def measured(self, plan: StepPlan, timings: StepTimings) -> None:
        """A step has run."""
        seconds, num_tokens = timings.total_s, plan.num_known_tokens
        if num_tokens > len(plan.request_ids):
            self._prefill.measured(num_tokens, len(plan.request_ids), seconds)
        elif not plan.new_requests:
            known = self._decode_s
            self._decode_s = seconds if known is None else _KEEP * known + (1 - _KEEP) * seconds

    @property
    def decode_step_s(self) -> float | None:
        """Seconds of a step in which every request runs one token, and its drafts; None: there was none."""
        return self._decode_s

    @property
    def prefill_tokens_per_s(self) -> float | None:
        """Prompt tokens per second; None: not known."""
        seconds = self._prefill.seconds(1)
        return None if seconds is None else 1 / seconds
