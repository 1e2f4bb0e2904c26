"""The engine core's own figures as metrics, read from it at each scrape."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from octavo.engine.output import EngineInfo
from octavo.request.control import DraftFigures, EngineLoad, ExpertFigures
from octavo.request.tally import Tally

VLLM_COUNTERS = {
    "prompt_tokens": "prompt_tokens",
    "generation_tokens": "generation_tokens",
    "prefix_queries": "prefix_cache_queries",
    "preemptions": "num_preemptions",
    "drafts": "spec_decode_num_drafts",
    "draft_tokens": "spec_decode_num_draft_tokens",
    "accepted_draft_tokens": "spec_decode_num_accepted_tokens",
    "cached_tokens": "prompt_tokens_cached",
}
"""Counter of the engine core -> vLLM's name, which follows the prefix."""
OUR_COUNTERS = {"recomputed_tokens": "recomputed_tokens", "stalls": "stalls"}
"""Counter of the engine core -> its name behind `octavo:`. Any other appears as `octavo:engine_<name>`."""
STEP_PARTS = ("schedule", "prepare", "execute", "sample", "draft", "update", "publish")
"""Of these, the counters `<part>_s` are one metric."""
SOURCES = {"host": "host", "disk": "disk"}
"""Tier -> vLLM's name of it."""

Labels = Mapping[str, str]


def labels_of(info: EngineInfo) -> dict[str, str]:
    """Of all metrics of an engine; vLLM counts engines in `engine`, and here is one."""
    return {"model_name": info.served_model_names[0], "engine": "0"}


class EngineFigures(Collector):
    """As of the last `load`."""

    def __init__(self, info: EngineInfo, prefix: str) -> None:
        self._info = info
        self._prefix = prefix
        self._labels = labels_of(info)
        self.load: EngineLoad | None = None
        """None: the engine did not answer."""

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus-client at each scrape."""
        yield self._gauge("octavo:engine_up", "1 while the engine core answers.", self.load is not None)
        info = self._info
        cache = info.cache_config | {
            "block_size": str(info.block_size),
            "num_gpu_blocks": str(info.num_blocks),
            "cache_dtype": info.kv_dtype,
            "kv_bytes_per_token": str(info.kv_bytes_per_token),
        }
        yield self._gauge(self._prefix + "cache_config_info", "The KV cache's configuration.", 1, cache)
        if self.load is not None:
            yield from self._of_requests(self.load)
            yield from self._of_blocks(self.load)
            yield from self._of_router(self.load)
            yield from self._of_tiers(self.load)
            yield from self._of_prompts(self.load)
            if self.load.drafts is not None:
                yield from self._of_drafts(self.load.drafts)
            if self.load.experts:
                yield from self._of_experts(self.load.experts)
            yield from self._of_steps(self.load)
            yield from self._other_counters(self.load.counters)

    def _of_requests(self, load: EngineLoad) -> Iterator[Metric]:
        prefix, deferred = self._prefix, load.num_waiting_for_kv + load.num_waiting_for_grammar
        yield self._gauge(prefix + "num_requests_running", "Requests in the running batch.", load.num_running)
        yield self._gauge(prefix + "num_requests_waiting", "Requests waiting to run.", load.num_waiting)
        yield self._gauges(
            prefix + "num_requests_waiting_by_reason",
            "Of these: for a place, blocks or budget; or for KV or a grammar.",
            "reason",
            {"capacity": load.num_waiting - deferred, "deferred": deferred},
        )
        if load.tiers:
            stages = {"in_progress": load.num_waiting_for_kv}
            text = "Requests waiting for blocks from a tier."
            yield self._gauges(prefix + "num_requests_kv_fetch_by_stage", text, "stage", stages)
        paused = {mode: load.paused == mode for mode in ("abort", "wait", "keep", "drain")}
        yield self._gauges("octavo:engine_paused", "1 for the kind of pause that there is.", "mode", paused)

    def _of_blocks(self, load: EngineLoad) -> Iterator[Metric]:
        used = load.num_blocks - load.num_free_blocks
        share = used / load.num_blocks if load.num_blocks else 0.0
        yield self._gauge(self._prefix + "kv_cache_usage_perc", "Share of KV blocks held, 0 to 1.", share)
        states = {
            "held": used,
            "free": load.num_free_blocks,
            "cached": load.num_cached_blocks,
            "pinned": load.num_pinned_blocks,
        }
        yield self._gauges("octavo:kv_blocks", "KV blocks by state.", "state", states)

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
        tiers = load.tiers
        blocks, used = {t.tier: t.num_blocks for t in tiers}, {t.tier: t.used_bytes for t in tiers}
        yield self._gauges("octavo:tier_blocks", "KV blocks in a tier.", "tier", blocks)
        yield self._gauges("octavo:tier_used_bytes", "Bytes that these take.", "tier", used)
        capacity = {t.tier: t.capacity_bytes for t in tiers}
        yield self._gauges("octavo:tier_capacity_bytes", "Bytes that a tier may take.", "tier", capacity)

    def _of_prompts(self, load: EngineLoad) -> Iterator[Metric]:
        """Where the tokens of prompts have come from. In vLLM's names the prefix cache is the device's own."""
        prefix, counters = self._prefix, load.counters
        cached, prompts = counters.get("cached_tokens", 0.0), counters.get("prompt_tokens", 0.0)
        loaded = {SOURCES[t.tier]: counters.get(f"{t.tier}_loaded_tokens", 0.0) for t in load.tiers}
        outside = sum(loaded.values())
        yield self._counter(prefix + "prefix_cache_hits", "Prompt tokens found on the device.", cached - outside)
        sources = {"local_compute": prompts - cached, "local_cache_hit": cached - outside}
        if load.tiers:
            queries = counters.get("prefix_queries", 0.0) - cached + outside
            text = "Prompt tokens looked up in tiers: not found on the device."
            yield self._counter(prefix + "external_prefix_cache_queries", text, queries)
            yield self._counter(prefix + "external_prefix_cache_hits", "Of these, tokens that were loaded.", outside)
            sources["external_kv_transfer"] = outside
        yield self._counters(prefix + "prompt_tokens_by_source", "Prompt tokens by where from.", "source", sources)
        text = "Cached prompt tokens by where they lay."
        by_source = {"device": cached - outside, **loaded}
        yield self._counters(prefix + "prompt_tokens_cached_by_source", text, "source", by_source)

    def _of_drafts(self, drafts: DraftFigures) -> Iterator[Metric]:
        length = drafts.mean_acceptance_length
        yield self._gauge("octavo:mean_acceptance_length", "Tokens per step of a request with drafts.", length)
        counters = {
            f"{self._prefix}spec_decode_num_accepted_tokens_per_pos": ("Right", drafts.accepted_by_position),
            "octavo:draft_tokens_per_pos": ("Run", drafts.draft_tokens_by_position),
        }
        for name, (text, counts) in counters.items():
            by_position = {str(position): count for position, count in enumerate(counts)}
            yield self._counters(name, f"{text} draft tokens by position in their draft.", "position", by_position)

    def _of_experts(self, experts: Sequence[ExpertFigures]) -> Iterator[Metric]:
        """By layer: experts of two layers have nothing in common but their number, and a model has thousands."""
        met = {str(figures.layer): figures.num_meetings for figures in experts}
        yield self._counters("octavo:expert_tokens", "Meetings of a token and an expert.", "layer", met)
        uneven = {str(figures.layer): figures.imbalance for figures in experts}
        known = {layer: imbalance for layer, imbalance in uneven.items() if imbalance is not None}
        text = "Tokens of a layer's busiest expert over the mean of its experts, since start."
        yield self._gauges("octavo:expert_imbalance", text, "layer", known)

    def _of_steps(self, load: EngineLoad) -> Iterator[Metric]:
        spent = {part: load.counters[f"{part}_s"] for part in STEP_PARTS if f"{part}_s" in load.counters}
        yield self._counters("octavo:step_part_seconds", "Time of steps by their parts.", "part", spent)
        histograms = {
            "iteration_tokens": (self._prefix + "iteration_tokens_total", "Tokens of a step."),
            "step_duration_seconds": ("octavo:step_duration_seconds", "Wall time of a step."),
        }
        for name, counted in load.tallies.items():
            yield self._histogram(*histograms[name], counted)

    def _other_counters(self, counters: Mapping[str, float]) -> Iterator[Metric]:
        parts = {f"{part}_s" for part in STEP_PARTS}
        for name, value in counters.items():
            if name in VLLM_COUNTERS:
                yield self._counter(self._prefix + VLLM_COUNTERS[name], f"Engine counter {name}.", value)
            elif name not in parts:
                ours = OUR_COUNTERS.get(name, f"engine_{name}")
                yield self._counter(f"octavo:{ours}", f"Engine counter {name}.", value)

    def _gauge(self, name: str, text: str, value: float, extra: Labels | None = None) -> Metric:
        labels = {**self._labels, **(extra or {})}
        gauge = GaugeMetricFamily(name, text, labels=[*labels])
        gauge.add_metric([*labels.values()], value)
        return gauge

    def _gauges(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        """One per value of a label."""
        gauge = GaugeMetricFamily(name, text, labels=[*self._labels, label])
        for value_of_label, value in values.items():
            gauge.add_metric([*self._labels.values(), value_of_label], value)
        return gauge

    def _counter(self, name: str, text: str, value: float) -> Metric:
        counter = CounterMetricFamily(name, text, labels=[*self._labels])
        counter.add_metric([*self._labels.values()], value)
        return counter

    def _counters(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        """One per value of a label."""
        counter = CounterMetricFamily(name, text, labels=[*self._labels, label])
        for value_of_label, value in values.items():
            counter.add_metric([*self._labels.values(), value_of_label], value)
        return counter

    def _histogram(self, name: str, text: str, counted: Tally) -> Metric:
        family = HistogramMetricFamily(name, text, labels=[*self._labels])
        family.add_metric([*self._labels.values()], cumulated(counted.bounds, counted.counts), counted.total)
        return family


def cumulated(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Counts by range as Prometheus wants them: each with all below it.

    Args:
        counts: one more than bounds: what lies above them all.
    """
    below, buckets = 0, []
    for bound, count in zip([*bounds, inf], counts, strict=True):
        below += count
        buckets.append((floatToGoString(bound), float(below)))  # type: ignore[no-untyped-call]
    return buckets
