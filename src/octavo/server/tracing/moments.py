"""What happened to a sequence and when, from its ledger, and how long each part took. Pure. All times are seconds of
the core's clock, which on one machine is the server's, too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from octavo.request.outputs import FinishReason, RequestStats

Value = str | int | float


@dataclass(frozen=True)
class Moment:
    """An event of a span."""

    name: str
    at_s: float
    attributes: Mapping[str, Value] = field(default_factory=dict)


def moments_of(stats: RequestStats, reason: FinishReason) -> list[Moment]:
    """The events of one sequence in the order of time; of the same time in that of their meaning."""
    known = [Moment("queued", stats.arrival_s, {"octavo.prompt_tokens": stats.num_prompt_tokens})]
    if stats.first_scheduled_s is not None:
        known.append(Moment("scheduled", stats.first_scheduled_s, {"octavo.cached_tokens": stats.num_cached_tokens}))
    if stats.first_token_s is not None:
        known.append(Moment("first_token", stats.first_token_s))
    known += [Moment("preempted", at_s) for at_s in stats.preempted_s]
    if stats.finished_s is not None:
        end: dict[str, Value] = {"octavo.finish_reason": str(reason), "octavo.output_tokens": stats.num_output_tokens}
        known.append(Moment("finished", stats.finished_s, end))
    return sorted(known, key=lambda moment: moment.at_s)


@dataclass(frozen=True)
class Phases:
    """When the sequences of a request began and ended each phase, taken together: the first to begin, the last to end.
    None: none of them has come so far."""

    queued_s: float
    scheduled_s: float | None
    first_token_s: float | None
    finished_s: float | None

    def moments(self) -> list[Moment]:
        """The events of the whole request."""
        times = {
            "queued": self.queued_s,
            "scheduled": self.scheduled_s,
            "first_token": self.first_token_s,
            "finished": self.finished_s,
        }
        return [Moment(name, at_s) for name, at_s in times.items() if at_s is not None]

    def latencies(self, begin_s: float) -> dict[str, float]:
        """Seconds under the names that vLLM gives them; what is not known is left out.

        Args:
            begin_s: when the request reached the server.

        | begin -- queued -- scheduled -- first token -- finished |
        |          |-queue---|-prefill----|-decode-------|
        |                    |-inference-----------------|
        |-time to first token-------------|
        |-e2e--------------------------------------------|
        """
        spans = {
            "gen_ai.latency.time_in_queue": (self.queued_s, self.scheduled_s),
            "gen_ai.latency.time_in_model_prefill": (self.scheduled_s, self.first_token_s),
            "gen_ai.latency.time_in_model_decode": (self.first_token_s, self.finished_s),
            "gen_ai.latency.time_in_model_inference": (self.scheduled_s, self.finished_s),
            "gen_ai.latency.time_to_first_token": (begin_s, self.first_token_s),
            "gen_ai.latency.e2e": (begin_s, self.finished_s),
        }
        return {name: end - start for name, (start, end) in spans.items() if start is not None and end is not None}


def phases_of(stats: Sequence[RequestStats]) -> Phases | None:
    """Of all sequences of a request; None: there are none."""
    if not stats:
        return None
    ends = [one.finished_s for one in stats if one.finished_s is not None]
    return Phases(
        queued_s=min(one.arrival_s for one in stats),
        scheduled_s=min((one.first_scheduled_s for one in stats if one.first_scheduled_s is not None), default=None),
        first_token_s=min((one.first_token_s for one in stats if one.first_token_s is not None), default=None),
        finished_s=max(ends) if len(ends) == len(stats) else None,
    )
