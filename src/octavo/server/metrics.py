"""Prometheus metrics: vLLM's names where vLLM has the figure, `octavo:` for what only Octavo counts.

Per-request figures are taken where the answer leaves; the engine's own figures are read at each scrape, so that no
gauge can go stale.
"""

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from octavo.engine.output import EngineInfo, GenerationDelta
from octavo.request.outputs import FinishReason, RequestStats
from octavo.request.params import SamplingParams
from octavo.request.slo import Promise
from octavo.server.access_log import FIGURES, RequestFigures
from octavo.server.engine_figures import EngineFigures, labels_of
from octavo.server.http_metrics import HttpMetrics
from octavo.server.metric_buckets import COUNT_BUCKETS, ITL_BUCKETS, LATENCY_BUCKETS, TTFT_BUCKETS, token_buckets
from octavo.server.metric_totals import Exposition, Figures, snapshot
from octavo.server.promises import Latencies, Promises
from octavo.server.quick_histogram import QuickHistogram
from octavo.server.tracing.request_trace import current_trace
from octavo.server.work_metrics import WorkMetrics


class ServerMetrics:
    """All metrics of one API process, in a registry of its own, and the engine's."""

    def __init__(
        self, info: EngineInfo, prefix: str, clock: Callable[[], float], promises: Sequence[Promise] = ()
    ) -> None:
        """
        Args:
            prefix: of metrics that have vLLM's names.
            clock: monotonic seconds.
            promises: by which every answer is judged.
        """
        self.registry = CollectorRegistry()
        """What this process has counted: its siblings' is added to it."""
        self.engine = EngineFigures(info, prefix)
        self.clock = clock
        self.http = HttpMetrics(self.registry)
        labels = labels_of(info)

        def histogram(name: str, text: str, buckets: tuple[float, ...] | list[float]) -> Histogram:
            made = Histogram(prefix + name, text, list(labels), buckets=buckets, registry=self.registry)
            return made.labels(**labels)

        tokens = token_buckets(info.max_model_len)
        self.ttft = histogram("time_to_first_token_seconds", "Arrival to first token.", TTFT_BUCKETS)
        itl = prefix + "inter_token_latency_seconds"
        self.itl = QuickHistogram(itl, "Time between tokens.", labels, ITL_BUCKETS, self.registry)
        self.tpot = histogram("request_time_per_output_token_seconds", "Mean over a request.", ITL_BUCKETS)
        self.e2e = histogram("e2e_request_latency_seconds", "Arrival to end.", LATENCY_BUCKETS)
        self.queue = histogram("request_queue_time_seconds", "Waiting to be scheduled.", LATENCY_BUCKETS)
        self.prefill = histogram("request_prefill_time_seconds", "Scheduled to first token.", LATENCY_BUCKETS)
        self.decode = histogram("request_decode_time_seconds", "First to last token.", LATENCY_BUCKETS)
        self.inference = histogram("request_inference_time_seconds", "Scheduled to last token.", LATENCY_BUCKETS)
        self.prompt_tokens = histogram("request_prompt_tokens", "Prompt tokens.", tokens)
        self.output_tokens = histogram("request_generation_tokens", "Generated tokens.", tokens)
        text = "Generated tokens of the longest answer to a prompt."
        self.longest_output_tokens = histogram("request_max_num_generation_tokens", text, tokens)
        self.params_n = histogram("request_params_n", "Asked number of answers.", COUNT_BUCKETS)
        self.params_max_tokens = histogram("request_params_max_tokens", "Asked limit of tokens.", tokens)
        self.preemptions = histogram("request_num_preemptions", "Preemptions.", COUNT_BUCKETS)
        self.computed = histogram("request_prefill_kv_computed_tokens", "Prompt tokens not from the cache.", tokens)
        finished = Counter(
            prefix + "request_success", "Ended choices.", [*labels, "finished_reason"], registry=self.registry
        )
        self.finished = {reason: finished.labels(**labels, finished_reason=str(reason)) for reason in FinishReason}
        rejected = Counter("octavo:requests_rejected", "Requests not run.", [*labels, "reason"], registry=self.registry)
        self.rejected: Callable[[str], Counter] = lambda reason: rejected.labels(**labels, reason=reason)
        turned_away = Counter(
            prefix + "admission_rejections",
            "Requests for which the queue had no room.",
            ["model_name", "reason"],
            registry=self.registry,
        )
        name = labels["model_name"]
        self.turned_away = turned_away.labels(model_name=name, reason="max_num_queued_reqs")
        self.promises = Promises(promises, labels, self.registry)
        self._work = WorkMetrics(prefix, labels, self.registry)

    def figures(self) -> list[Figures]:
        """What this process has counted so far."""
        return snapshot(self.registry)

    def text(self, totals: Sequence[Figures]) -> bytes:
        """Prometheus' text format of what all processes have counted, and of the engine's own figures.

        Args:
            totals: of all processes.
        """
        return generate_latest(Exposition(totals, self.engine))

    def track(self, params: SamplingParams, num_choices: int, arrival: float) -> "RequestTracker":
        """Starts the record of one HTTP request's generation."""
        return RequestTracker(self, params, num_choices, arrival)

    def observe_stats(self, stats: RequestStats) -> None:
        """Takes over the ledger of an ended choice."""
        self._work.add(stats.account)
        self.preemptions.observe(stats.num_preemptions)
        self.computed.observe(max(0, stats.num_prompt_tokens - stats.num_cached_tokens))
        start, first, end = stats.first_scheduled_s, stats.first_token_s, stats.finished_s
        if start is None:
            return
        self.queue.observe(start - stats.arrival_s)
        if first is not None:
            self.prefill.observe(first - start)
        if end is not None:
            self.inference.observe(end - start)
        if first is not None and end is not None:
            self.decode.observe(end - first)


class RequestTracker:
    """Follows the choices of one HTTP request from arrival to end, whichever way they end."""

    def __init__(self, metrics: ServerMetrics, params: SamplingParams, num_choices: int, arrival: float) -> None:
        self._metrics = metrics
        self._arrival = arrival
        self._num_choices = num_choices
        self._last_token: dict[tuple[int, int], float] = {}
        self._first_token: dict[tuple[int, int], float] = {}
        self._longest_gap: dict[tuple[int, int], float] = {}
        self._num_tokens: dict[tuple[int, int], int] = {}
        self._ended: set[tuple[int, int]] = set()
        self._lengths: list[tuple[int, int]] = []
        """Prompt and tokens of those."""
        self._figures = FIGURES.get() or RequestFigures()
        self._trace = current_trace()
        metrics.params_n.observe(params.n)
        if params.max_tokens is not None:
            metrics.params_max_tokens.observe(params.max_tokens)

    def see(self, prompt: int, delta: GenerationDelta) -> None:
        """Takes note of a delta of any choice of any prompt."""
        self._figures.see(prompt, delta)
        now, count = self._metrics.clock(), len(delta.choice.token_ids)
        choice = (prompt, delta.choice.index)
        if count:
            if choice in self._last_token:
                gap = now - self._last_token[choice]
                self._metrics.itl.observe(gap / count, count)
                if gap > self._longest_gap.get(choice, 0.0):
                    self._longest_gap[choice] = gap
            else:
                self._first_token[choice] = now
                self._metrics.ttft.observe(now - self._arrival)
                if count > 1:
                    self._metrics.itl.observe(0.0, count - 1)
            self._last_token[choice] = now
            self._num_tokens[choice] = self._num_tokens.get(choice, 0) + count
        if delta.choice.finish_reason is not None:
            self._end(choice, delta, now)

    def _end(self, choice: tuple[int, int], delta: GenerationDelta, now: float) -> None:
        metrics, tokens, reason = self._metrics, self._num_tokens.get(choice, 0), delta.choice.finish_reason
        self._ended.add(choice)
        self._lengths.append((choice[0], tokens))
        if reason is not None:
            metrics.finished[reason].inc()
            self._trace.ended(choice, reason, delta.choice.stats)
        metrics.e2e.observe(now - self._arrival)
        metrics.prompt_tokens.observe(len(delta.prompt_token_ids))
        metrics.output_tokens.observe(tokens)
        tpot = (now - self._first_token[choice]) / (tokens - 1) if tokens > 1 else None
        if tpot is not None:
            metrics.tpot.observe(tpot)
        if reason is FinishReason.ABORT or reason is FinishReason.ERROR:
            metrics.promises.break_all(reason)
        else:
            first = self._first_token.get(choice)
            ttft = None if first is None else first - self._arrival
            metrics.promises.keep(Latencies(ttft, tpot, self._longest_gap.get(choice), now - self._arrival))
        if delta.choice.stats is not None:
            metrics.observe_stats(delta.choice.stats)

    def close(self, reason: FinishReason) -> None:
        """Counts choices that did not come to an end of their own under `reason`; idempotent."""
        missing, self._num_choices = self._num_choices - len(self._ended), len(self._ended)
        self._metrics.finished[reason].inc(missing)
        self._metrics.promises.break_all(reason, missing)
        self._observe_longest()
        self._figures.end(reason, missing)
        self._trace.others_ended(reason)

    def reject(self, reason: str) -> None:
        """The engine did not take the request: it counts as rejected, and none of its choices as ended."""
        self._metrics.rejected(reason).inc()
        if reason == "queue_full":
            self._metrics.turned_away.inc()
        self._metrics.promises.break_all("rejected", self._num_choices - len(self._ended))
        self._num_choices = len(self._ended)
        self._trace.refused()

    def _observe_longest(self) -> None:
        """Once, of the answers that have come to an end."""
        longest: dict[int, int] = {}
        while self._lengths:
            prompt, tokens = self._lengths.pop()
            longest[prompt] = max(tokens, longest.get(prompt, 0))
        for tokens in longest.values():
            self._metrics.longest_output_tokens.observe(tokens)
