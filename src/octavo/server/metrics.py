"""Prometheus metrics: vLLM's names where vLLM has the figure, `octavo:` for what only Octavo counts.

Per-request figures are taken where the answer leaves; the engine's own figures are read at each scrape, so that no
gauge can go stale.
"""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from octavo.engine.output import EngineInfo, GenerationDelta
from octavo.request.control import DraftFigures, EngineLoad
from octavo.request.outputs import FinishReason, RequestStats
from octavo.request.params import SamplingParams
from octavo.server.access_log import FIGURES, RequestFigures
from octavo.server.metric_totals import Exposition, Figures, snapshot
from octavo.server.quick_histogram import QuickHistogram
from octavo.server.tracing.request_trace import current_trace

TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
)
ITL_BUCKETS = (
    *(0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 20, 40, 80),
)
LATENCY_BUCKETS = (
    *(0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60),
    *(120, 240, 480, 960, 1920, 7680),
)
COUNT_BUCKETS = (0, 1, 2, 3, 5, 10, 20)

ENGINE_COUNTERS = {
    "prompt_tokens": "prompt_tokens",
    "generation_tokens": "generation_tokens",
    "prefix_queries": "prefix_cache_queries",
    "cached_tokens": "prefix_cache_hits",
    "preemptions": "num_preemptions",
    "drafts": "spec_decode_num_drafts",
    "draft_tokens": "spec_decode_num_draft_tokens",
    "accepted_draft_tokens": "spec_decode_num_accepted_tokens",
}
"""Counter of the engine core -> vLLM's name. Any other counter of the core appears as `octavo:engine_<name>`."""


def token_buckets(limit: int) -> list[float]:
    """1, 2, 5, 10, 20, 50, ... up to `limit`."""
    steps = (digit * 10**power for power in range(10) for digit in (1, 2, 5))
    return [float(step) for step in steps if step < limit] + [float(limit)]


class ServerMetrics:
    """All metrics of one API process, in a registry of its own, and the engine's."""

    def __init__(self, info: EngineInfo, prefix: str, clock: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        """What this process has counted: its siblings' is added to it."""
        self.engine = EngineFigures(info, prefix)
        self.clock = clock
        self.http = HttpMetrics(self.registry)
        labels = {"model_name": info.served_model_names[0]}

        def histogram(name: str, text: str, buckets: tuple[float, ...] | list[float]) -> Histogram:
            made = Histogram(prefix + name, text, list(labels), buckets=buckets, registry=self.registry)
            return made.labels(**labels)

        tokens = token_buckets(info.max_model_len)
        self.ttft = histogram("time_to_first_token_seconds", "Arrival to first token.", TTFT_BUCKETS)
        itl = prefix + "inter_token_latency_seconds"
        self.itl = QuickHistogram(itl, "Time per token between two deltas.", labels, ITL_BUCKETS, self.registry)
        self.tpot = histogram("request_time_per_output_token_seconds", "Mean over a request.", ITL_BUCKETS)
        self.e2e = histogram("e2e_request_latency_seconds", "Arrival to end.", LATENCY_BUCKETS)
        self.queue = histogram("request_queue_time_seconds", "Waiting to be scheduled.", LATENCY_BUCKETS)
        self.prefill = histogram("request_prefill_time_seconds", "Scheduled to first token.", LATENCY_BUCKETS)
        self.decode = histogram("request_decode_time_seconds", "First to last token.", LATENCY_BUCKETS)
        self.inference = histogram("request_inference_time_seconds", "Scheduled to last token.", LATENCY_BUCKETS)
        self.prompt_tokens = histogram("request_prompt_tokens", "Prompt tokens.", tokens)
        self.output_tokens = histogram("request_generation_tokens", "Generated tokens.", tokens)
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
        recomputed = Counter(
            "octavo:recomputed_tokens", "Tokens run again after preemption.", list(labels), registry=self.registry
        )
        self.recomputed = recomputed.labels(**labels)

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
        self.preemptions.observe(stats.num_preemptions)
        self.computed.observe(max(0, stats.num_prompt_tokens - stats.num_cached_tokens))
        self.recomputed.inc(stats.num_recomputed_tokens)
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
        self._num_tokens: dict[tuple[int, int], int] = {}
        self._ended: set[tuple[int, int]] = set()
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
                self._metrics.itl.observe((now - self._last_token[choice]) / count)
            else:
                self._first_token[choice] = now
                self._metrics.ttft.observe(now - self._arrival)
            self._last_token[choice] = now
            self._num_tokens[choice] = self._num_tokens.get(choice, 0) + count
        if delta.choice.finish_reason is not None:
            self._end(choice, delta, now)

    def _end(self, choice: tuple[int, int], delta: GenerationDelta, now: float) -> None:
        metrics, tokens, reason = self._metrics, self._num_tokens.get(choice, 0), delta.choice.finish_reason
        self._ended.add(choice)
        if reason is not None:
            metrics.finished[reason].inc()
            self._trace.ended(choice, reason, delta.choice.stats)
        metrics.e2e.observe(now - self._arrival)
        metrics.prompt_tokens.observe(len(delta.prompt_token_ids))
        metrics.output_tokens.observe(tokens)
        if tokens > 1:
            metrics.tpot.observe((now - self._first_token[choice]) / (tokens - 1))
        if delta.choice.stats is not None:
            metrics.observe_stats(delta.choice.stats)

    def close(self, reason: FinishReason) -> None:
        """Counts choices that did not come to an end of their own under `reason`; idempotent."""
        missing, self._num_choices = self._num_choices - len(self._ended), len(self._ended)
        self._metrics.finished[reason].inc(missing)
        self._figures.end(reason, missing)
        self._trace.others_ended(reason)

    def reject(self, reason: str) -> None:
        """The engine did not take the request: it counts as rejected, and none of its choices as ended."""
        self._metrics.rejected(reason).inc()
        self._num_choices = len(self._ended)
        self._trace.refused()


class HttpMetrics:
    """One figure per HTTP answer."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter("http_requests", "Answers.", ["handler", "method", "status"], registry=registry)
        self._seconds = Histogram(
            "http_request_duration_seconds",
            "Time to the last byte.",
            ["handler", "method"],
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.in_flight = Gauge("octavo:http_requests_in_flight", "Requests being answered.", registry=registry)

    def observe(self, handler: str, method: str, status: int | None, seconds: float) -> None:
        """Counts one answer; status None: the client went away before it (nginx writes 499 for that)."""
        family = f"{status // 100}xx" if status is not None else "499"
        self._requests.labels(handler=handler, method=method, status=family).inc()
        self._seconds.labels(handler=handler, method=method).observe(seconds)


class EngineFigures(Collector):
    """The engine core's own figures, as of the last `load`."""

    def __init__(self, info: EngineInfo, prefix: str) -> None:
        self._info = info
        self._prefix = prefix
        self._labels = {"model_name": info.served_model_names[0]}
        self.load: EngineLoad | None = None
        """None: the engine did not answer."""

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus-client at each scrape."""
        info = self._info
        yield self._gauge("octavo:engine_up", "1 while the engine core answers.", self.load is not None)
        cache = {
            "block_size": str(info.block_size),
            "num_gpu_blocks": str(info.num_blocks),
            "kv_bytes_per_token": str(info.kv_bytes_per_token),
        }
        yield self._gauge(self._prefix + "cache_config_info", "The KV cache's configuration.", 1, cache)
        if self.load is not None:
            yield from self._of_load(self.load)

    def _of_load(self, load: EngineLoad) -> Iterator[Metric]:
        prefix, used = self._prefix, load.num_blocks - load.num_free_blocks
        share = used / load.num_blocks if load.num_blocks else 0.0
        yield self._gauge(prefix + "num_requests_running", "Requests in the running batch.", load.num_running)
        yield self._gauge(prefix + "num_requests_waiting", "Requests waiting to run.", load.num_waiting)
        yield self._gauge(prefix + "kv_cache_usage_perc", "Share of KV blocks held, 0 to 1.", share)
        blocks = GaugeMetricFamily("octavo:kv_blocks", "KV blocks by state.", labels=[*self._labels, "state"])
        states = {
            "held": used,
            "free": load.num_free_blocks,
            "cached": load.num_cached_blocks,
            "pinned": load.num_pinned_blocks,
        }
        for state, count in states.items():
            blocks.add_metric([*self._labels.values(), state], count)
        yield blocks
        yield from self._of_router(load)
        yield from self._of_tiers(load)
        if load.drafts is not None:
            yield from self._of_drafts(load.drafts)
        for name, value in load.counters.items():
            known = ENGINE_COUNTERS.get(name)
            full = f"octavo:engine_{name}" if known is None else prefix + known
            counter = CounterMetricFamily(full, f"Engine counter {name}.", labels=list(self._labels))
            counter.add_metric(list(self._labels.values()), value)
            yield counter

    def _of_router(self, load: EngineLoad) -> Iterator[Metric]:
        """What a router foretells waits with; what is not known yet is left out."""
        gauges = {
            "sessions": ("Sessions that live.", load.num_sessions),
            "requests_waiting_for_kv": ("Waiting requests whose blocks are being loaded.", load.num_waiting_for_kv),
            "requests_waiting_for_grammar": (
                "Waiting requests whose grammar is being compiled.",
                load.num_waiting_for_grammar,
            ),
            "waiting_tokens": ("Known tokens of waiting requests, cached or not.", load.num_waiting_tokens),
            "running_tokens": ("Known tokens of running requests.", load.num_running_tokens),
            "tokens_to_run": ("Tokens of running requests that no planned step runs.", load.num_tokens_to_run),
            "decode_step_seconds": ("A step of one token per request, moving average.", load.decode_step_s),
            "prefill_tokens_per_second": ("In steps of prompts, moving average.", load.prefill_tokens_per_s),
        }
        for name, (text, value) in gauges.items():
            if value is not None:
                yield self._gauge(f"octavo:{name}", text, value)

    def _of_tiers(self, load: EngineLoad) -> Iterator[Metric]:
        labels = [*self._labels, "tier"]
        blocks = GaugeMetricFamily("octavo:tier_blocks", "KV blocks in a tier.", labels=labels)
        used = GaugeMetricFamily("octavo:tier_used_bytes", "Bytes that these take.", labels=labels)
        capacity = GaugeMetricFamily("octavo:tier_capacity_bytes", "Bytes that a tier may take.", labels=labels)
        for tier in load.tiers:
            where = [*self._labels.values(), tier.tier]
            blocks.add_metric(where, tier.num_blocks)
            used.add_metric(where, tier.used_bytes)
            capacity.add_metric(where, tier.capacity_bytes)
        yield from (blocks, used, capacity)

    def _of_drafts(self, drafts: DraftFigures) -> Iterator[Metric]:
        length, labels = drafts.mean_acceptance_length, [*self._labels, "position"]
        yield self._gauge("octavo:mean_acceptance_length", "Tokens per step of a request with drafts.", length)
        counters = {
            f"{self._prefix}spec_decode_num_accepted_tokens_per_pos": ("Right", drafts.accepted_by_position),
            "octavo:draft_tokens_per_pos": ("Run", drafts.draft_tokens_by_position),
        }
        for name, (text, counts) in counters.items():
            counter = CounterMetricFamily(name, f"{text} draft tokens by position in their draft.", labels=labels)
            for position, count in enumerate(counts):
                counter.add_metric([*self._labels.values(), str(position)], count)
            yield counter

    def _gauge(self, name: str, text: str, value: float, extra: dict[str, str] | None = None) -> Metric:
        labels = self._labels | (extra or {})
        gauge = GaugeMetricFamily(name, text, labels=list(labels))
        gauge.add_metric(list(labels.values()), value)
        return gauge
