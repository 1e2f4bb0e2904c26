"""Configuration: one frozen dataclass per room, validated at construction. Flags carry the same names."""

import os
import re
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from octavo.errors import ConfigError
from octavo.kv.spec import KVDtype
from octavo.sizes import parse_share, parse_size
from octavo.speculative_config import in_our_words


def _require(ok: bool, name: str, value: object, problem: str) -> None:
    if not ok:
        raise ConfigError(name, value, problem)


def choices(kind: Any) -> tuple[str, ...]:
    """The values of a field's type that is an enum or a `Literal`; of other types none."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(member.value for member in kind)
    return ()


def default_of(config: type, name: str) -> object:
    """What a field of a config dataclass is if nothing is said."""
    return next(known.default for known in fields(config) if known.name == name)


def _one_of(known: tuple[str, ...]) -> str:
    return f"must be one of {', '.join(known)}"


Quantization = Literal[
    "q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0", "iq4_nl", "q3_k", "q2_k", "f16", "bf16", "f32"
]
"""Types that models are quantised to; `octavo.execution.quant.recipe.TYPES` are the same."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which model, and how its words are handled."""

    model: str = "smollm2-135m"
    """Alias, GGUF file, Hugging Face folder, or hub name."""
    served_model_name: tuple[str, ...] = ()
    """Names the API answers to; default: the model's name."""
    max_model_len: int | None = None
    """Longest prompt + output in tokens; None: the largest that the model and the KV memory allow."""
    chat_template: str | None = None
    """A jinja template (text or path) in place of the model's own."""
    quantization: Quantization | None = None
    """Type to quantise the weights to while the model loads, as `octavo quantize --to` would write them; None: they
    are computed with as they are stored."""
    skip_tokenizer_init: bool = False
    """Token ids in, token ids out; no tokenizer is loaded."""
    seed: int | None = None
    """Seed for requests that bring none; None: each draws its own."""
    max_logprobs: int = 20
    """Most logprobs a request may ask for."""

    def __post_init__(self) -> None:
        ok = self.max_model_len is None or self.max_model_len >= 2
        _require(ok, "max_model_len", self.max_model_len, "must be at least 2 tokens (one in, one out)")
        _require(0 <= self.max_logprobs <= 1024, "max_logprobs", self.max_logprobs, "must be in [0, 1024]")
        ok = self.seed is None or 0 <= self.seed < 2**63
        _require(ok, "seed", self.seed, "must be in [0, 2^63 - 1], or left out for a new one per request")
        named = all(self.served_model_name)
        _require(named, "served_model_name", self.served_model_name, "must not hold an empty name")


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    """KV memory."""

    block_size: int = 16
    """Tokens per block, a power of two."""
    kv_cache_memory_bytes: int | None = None
    """Bytes for KV blocks; None: a fraction of the free memory."""
    num_kv_blocks: int | None = None
    """Exact number of blocks (tests, comparisons); wins over kv_cache_memory_bytes."""
    kv_cache_dtype: KVDtype = KVDtype.FP16
    """Number format of cached K and V; int8 and fp8 (e4m3) take about half the bytes of fp16."""
    enable_prefix_caching: bool = True
    """Reuse the KV blocks of equal prompt prefixes."""
    isolate_tenants: bool = False
    """Requests of different API keys never share cached prefixes, so that none can tell by its speed what others have
    asked."""
    sub_block_match: bool = True
    """Prefix hits may end inside a block: the part that is the same is copied."""
    kv_host_memory_bytes: int | None = None
    """Main memory that keeps KV blocks which the cache lets go, for when they are wanted again; None: none."""
    kv_disk_path: str | None = None
    """Folder in which KV blocks are kept on disk, also after a restart; needs a size; None: none."""
    kv_disk_size_bytes: int | None = None
    """Most bytes that all engines together may take in the folder of blocks on disk, e.g. 10GiB; goes with it."""
    kv_lease_s: float = 10.0
    """Seconds that moving KV blocks to or from host memory or disk may take; then requests go on without."""
    max_pinned_share: float = 0.5
    """Most of the KV memory that sessions hold between their requests, 0 to 1; less if need be, so that the longest
    request always fits beside it; 0: no sessions."""
    max_pinned_tokens_per_key: int = 0
    """Most tokens that the sessions of one API key hold; 0: no limit of its own."""

    def __post_init__(self) -> None:
        known = choices(KVDtype)
        _require(self.kv_cache_dtype in known, "kv_cache_dtype", self.kv_cache_dtype, _one_of(known))
        object.__setattr__(self, "kv_cache_dtype", KVDtype(self.kv_cache_dtype))  # a plain string is fine
        power = 1 <= self.block_size <= 2**16 and self.block_size & (self.block_size - 1) == 0
        _require(power, "block_size", self.block_size, "must be a power of two up to 65536, such as 16")
        enough = self.num_kv_blocks is None or self.num_kv_blocks >= 2
        _require(enough, "num_kv_blocks", self.num_kv_blocks, "must be at least 2 (one null block, one usable)")
        positive = self.kv_cache_memory_bytes is None or self.kv_cache_memory_bytes > 0
        _require(positive, "kv_cache_memory_bytes", self.kv_cache_memory_bytes, "must be positive, e.g. 2GiB")
        self._check_tiers()
        _require(0 <= self.max_pinned_share <= 1, "max_pinned_share", self.max_pinned_share, "must be in [0, 1]")
        tokens = self.max_pinned_tokens_per_key
        _require(0 <= tokens <= 2**40, "max_pinned_tokens_per_key", tokens, "must be 0 (no limit) or positive")

    def _check_tiers(self) -> None:
        host, path, size = self.kv_host_memory_bytes, self.kv_disk_path, self.kv_disk_size_bytes
        _require(host is None or host > 0, "kv_host_memory_bytes", host, "must be positive, e.g. 2GiB, or left out")
        _require(size is None or size > 0, "kv_disk_size_bytes", size, "must be positive, e.g. 10GiB")
        _require(path != "", "kv_disk_path", path, "must name a folder, or be left out")
        _require(size is None or path is not None, "kv_disk_size_bytes", size, "has no effect without kv_disk_path")
        _require(path is None or size is not None, "kv_disk_path", path, "needs a bound: give kv_disk_size_bytes, too")
        wanted = host is not None or path is not None
        problem = "must be on for kv_host_memory_bytes and kv_disk_path to have any effect"
        _require(self.enable_prefix_caching or not wanted, "enable_prefix_caching", False, problem)
        _require(0 < self.kv_lease_s <= 3600, "kv_lease_s", self.kv_lease_s, "must be in (0, 3600] seconds")


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """Who runs, and how much."""

    max_num_seqs: int = 0
    """Most requests running at one time; 0: 32 per thread, at least 64 and at most 256."""
    max_num_batched_tokens: int = 0
    """Token budget of a step; 0: what takes about half a second with this model on this machine."""
    long_prefill_token_threshold: int = 0
    """Most prompt tokens of one request per step while others are present; 0: no limit."""
    max_num_queued_reqs: int = 4096
    """Bound of the waiting queue; beyond it requests are refused (429)."""
    watermark: float = 0.0
    """Share of blocks kept free when a waiting request is admitted while others run."""
    scheduling_policy: str = "fcfs"
    """Order of the waiting queue: `fcfs`; `priority` by (priority, arrival, id); `prefix`, longest cached prefix with
    ageing; or one that a plug-in brings."""
    prefix_ageing: float = 0.03
    """Under `prefix`: cached tokens that weigh as much as one token computed since arrival. More is fairer."""
    priority_eviction: bool = True
    """Under `priority`: a waiting request evicts running ones of lower priority if places or blocks are short."""
    preemption_victim: str = "auto"
    """Who yields when blocks run out: `last` admitted, `least_urgent`, `cheapest` to recompute per block; `auto`: as
    the policy prefers."""
    admission_conservativeness: float = 0.5
    """How much is foreseen before a request is admitted: 0, only that its known tokens fit; 1, all that the running
    ones may come to hold, so that none is preempted; between: answers as long as that quantile of those seen."""
    max_bypasses: int = 16
    """How many may overtake a waiting request that does not fit before it holds the line; 0: it does at once."""
    max_running_per_key: int = 0
    """Most requests of one API key running at one time; 0: no limit."""
    fair_share: bool = False
    """Admit next whose API key has had least work done, by weight, before the policy's order counts."""
    fair_weights: tuple[str, ...] = ()
    """TENANT=WEIGHT for `fair_share`, others weigh 1; a tenant is the first 32 hex digits of its API key's sha256."""
    async_scheduling: bool = False
    """Plan each step while the one before it runs: somewhat more tokens per second, the first one a step later."""
    request_ledger: bool = True
    """Keep an account of where each request's time goes and of what runs for it. Costs next to nothing."""

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            _require(0 <= getattr(self, name) <= 2**24, name, getattr(self, name), "must be in [1, 16777216], or 0")
        queue = self.max_num_queued_reqs
        _require(1 <= queue <= 2**24, "max_num_queued_reqs", queue, "must be in [1, 16777216]")
        threshold = self.long_prefill_token_threshold
        _require(threshold >= 0, "long_prefill_token_threshold", threshold, "must be 0 (off) or positive")
        _require(0 <= self.watermark < 1, "watermark", self.watermark, "must be in [0, 1)")
        share = self.admission_conservativeness
        _require(0 <= share <= 1, "admission_conservativeness", share, "must be in [0, 1]")
        ageing = self.prefix_ageing
        _require(0 < ageing <= 1e6, "prefix_ageing", ageing, "must be in (0, 1000000]: without ageing requests starve")
        for name in ("max_bypasses", "max_running_per_key"):
            _require(0 <= getattr(self, name) <= 2**24, name, getattr(self, name), "must be in [0, 16777216]")
        idle = bool(self.fair_weights) and not self.fair_share
        _require(not idle, "fair_weights", self.fair_weights, "have no effect without fair_share")


MODEL_KINDS = ("draft", "eagle")
"""What may stand before the colon in `speculation`: kinds of models that guess."""


@dataclass(frozen=True, kw_only=True)
class SpeculationConfig:
    """Tokens tried before they are known; no token is another for it."""

    speculation: str = "auto"
    """Who guesses what comes next in an answer, so that several tokens may come of one step: `ngram`, from the last
    place where the answer or its prompt went alike; `suffix`, from all such places, and from earlier answers of the
    same API key; `draft:MODEL`, a smaller model with the same tokenizer, named like `model`; `eagle:FOLDER`, an EAGLE
    head that was made for the model; `auto`, as `suffix`, or nobody if there is no memory for that, or the executor is
    `reference`; `off`, nobody."""
    num_speculative_tokens: int | None = None
    """Guesses for each request in a step; left out: as many as make answers faster, which may be none."""
    prompt_lookup_min: int = 2
    """For `ngram`: fewest tokens that must have stood before for what followed them to be guessed."""
    prompt_lookup_max: int = 5
    """For `ngram`: most that are looked for."""
    speculative_config: dict[str, Any] | None = None
    """Speculation in vLLM's words, beside a `speculation` that leaves it open (`auto`), with the keys method, model,
    num_speculative_tokens, prompt_lookup_min and prompt_lookup_max: `{"method": "ngram", "num_speculative_tokens": 5}`.
    """

    @property
    def model_name(self) -> str:
        """Of the model that guesses, as `KIND:MODEL` names it; empty: none does."""
        kind, _, name = self.speculation.partition(":")
        return name if kind in MODEL_KINDS else ""

    def __post_init__(self) -> None:
        self._take_over_speculative_config()
        count = self.num_speculative_tokens
        ok = count is None or 1 <= count <= 128
        _require(ok, "num_speculative_tokens", count, "must be in [1, 128], or left out for as many as pay")
        _require(bool(self.speculation), "speculation", self.speculation, "must not be empty; `off` is for none")
        is_obeyed = count is None or self.speculation != "off"
        _require(
            is_obeyed,
            "num_speculative_tokens",
            count,
            "goes with speculation, which is off; say who guesses (`speculation`: auto, ...), or leave it out",
        )
        self._check_lookup()

    def _take_over_speculative_config(self) -> None:
        """From here on the fields that it stands for say what it says, and it is None."""
        given = self.speculative_config
        if given is None:
            return
        said_once = self.speculation == default_of(type(self), "speculation")
        _require(said_once, "speculative_config", given, "`speculation` says who guesses, too; give one of them")
        for name, value in in_our_words(given).items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "speculative_config", None)

    def _check_lookup(self) -> None:
        least, most = self.prompt_lookup_min, self.prompt_lookup_max
        _require(1 <= most <= 32, "prompt_lookup_max", most, "must be in [1, 32]")
        _require(1 <= least <= most, "prompt_lookup_min", least, f"must be in [1, {most}], the prompt_lookup_max")
        for name, value in (("prompt_lookup_min", least), ("prompt_lookup_max", most)):
            is_obeyed = self.speculation == "ngram" or value == default_of(type(self), name)
            _require(
                is_obeyed, name, value, "goes with speculation ngram alone; leave it out, or set `speculation` to ngram"
            )


@dataclass(frozen=True, kw_only=True)
class ExecutionConfig:
    """How a step is computed."""

    executor: Literal["native", "reference"] = "native"
    """`reference` is the slow NumPy oracle."""
    threads: int | None = None
    """Compute threads; None: the cores this process may use."""
    isa: Literal["auto", "amx", "avx512", "avx2", "portable"] = "auto"
    """Kernel path; `auto` takes the best this CPU has. All give the same bits."""
    logits_processors: tuple[str, ...] = ()
    """Plug-ins by which requests may have their logits edited, in the order in which they apply."""
    weights: Literal["private", "shared"] = "private"
    """Where packed weights are: `private`, in memory of the engine's own; `shared`, in a file of the cache folder that
    all engines of the machine map, so that they hold the weights once and only the first has to pack them."""
    max_memory: int | str | None = None
    """Most memory that the engine takes, all in all: a size such as `8GiB`, or a share such as `80%` of what machine
    and container have; KV blocks get what the rest leaves of it. None: half of what is free becomes KV blocks at most.
    """
    profile: str | None = None
    """Where traces of steps go. A name that ends in .json or .json.gz: one of all steps from the start on, as far as it
    has room. Else a folder, in which each profile that is asked for has a file of its own."""

    def __post_init__(self) -> None:
        _require(self.profile != "", "profile", self.profile, "must name a file or a folder")
        ok = self.threads is None or 1 <= self.threads <= 256
        _require(ok, "threads", self.threads, "must be in [1, 256], or left out for all usable cores")
        _require(
            all(self.logits_processors), "logits_processors", self.logits_processors, "must not hold an empty name"
        )
        native = self.executor == "native" or self.weights == "private"
        _require(native, "weights", self.weights, "must be private for the reference executor, which packs none")
        self.max_memory_bytes(total_bytes=1 << 40)

    def max_memory_bytes(self, total_bytes: int) -> int | None:
        """`max_memory` in bytes, of a machine that has so many; None: nothing is said.

        Raises:
            ConfigError: it is neither a size nor a share.
        """
        if self.max_memory is None:
            return None
        share = parse_share(self.max_memory)
        try:
            limit = parse_size(self.max_memory) if share is None else int(share * total_bytes)
        except ValueError:
            limit = 0
        ok = limit > 0 and (share is None or share <= 1)
        _require(ok, "max_memory", self.max_memory, "must be a size such as 8GiB, or a share such as 80%")
        return limit


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """The HTTP side."""

    host: str = "127.0.0.1"
    """Address to listen on; only this machine by default."""
    port: int = 8000
    """TCP port; 0: any free one, named in the ready line."""
    api_server_count: int = 1
    """Processes that speak HTTP, tokenise and write answers, all for one engine."""
    api_key: tuple[str, ...] = ()
    """Keys, any of which opens everything but /health, /ready and /admin; none: no key is asked for."""
    admin_key: tuple[str, ...] = ()
    """Keys that open /admin and nothing else; none: there are no admin routes."""
    api_key_file: str | None = None
    """YAML file of further keys as sha256 digests, with their limits; see docs/security.md."""
    key_requests_per_minute: int = 0
    """Requests for work (any POST) that an API key may begin in any 60 seconds, if the key file says nothing else; 0:
    no limit. Without keys all clients together count as one."""
    key_tokens_per_minute: int = 0
    """Prompt and output tokens of an API key in any 60 seconds before its next request is refused; 0: no limit."""
    key_concurrent_requests: int = 0
    """Requests of an API key that may be in progress at one time; 0: no limit."""
    open_metrics: bool = False
    """Whether /metrics answers without a key."""
    ssl_certfile: str | None = None
    """PEM file of the certificate and its chain, the key too if it is not given; then the server speaks TLS only."""
    ssl_keyfile: str | None = None
    """PEM file of the certificate's private key."""
    ssl_ca_certs: str | None = None
    """PEM file of authorities; clients must show a certificate that one of them signed (mutual TLS)."""
    allowed_origins: tuple[str, ...] = ()
    """Web pages whose scripts may use the server, such as https://chat.example; * for all; by default none may."""
    max_connections: int = 0
    """Connections that one API process holds at one time; 0: as many as it may open files, less 128."""
    receive_timeout: float = 60.0
    """Seconds in which a request's headers, and then its body, must have arrived."""
    shutdown_timeout: float = 30.0
    """Seconds that running requests get to finish after SIGTERM; 0: they are ended at once."""
    engine_timeout: float = 300.0
    """Seconds without a sign of life after which the engine counts as dead; more than the longest step takes."""
    max_body_bytes: int = 16 * 2**20
    """Largest request body; beyond it 413."""
    access_log: bool = False
    """A line in the log for each request: path, status, seconds, ids, token counts; none of its content."""
    metrics_prefix: str = "vllm:"
    """Prefix of the metrics that carry vLLM's names."""
    goodput: tuple[str, ...] = ()
    """Promises by which metrics judge every answer, such as chat=ttft:300,tpot:60,e2el:9000, in milliseconds; several
    classes are several flags."""
    otlp_traces_endpoint: str | None = None
    """URL of an OpenTelemetry collector that gets a trace of each request, such as http://localhost:4318; needs
    octavo[otel]. None: there are no traces."""
    response_store_size: int = 1000
    """Most responses of /v1/responses that are kept to be read again and gone on from; 0: none."""
    response_store_bytes: int = 64 * 2**20
    """Most bytes that they take together; beyond it the oldest goes, of the key that has most."""
    response_store_age_s: float = 86400.0
    """Seconds for which a response is kept."""
    tool_call_parser: str | None = None
    """Format in which the model writes tool calls; None: as the chat template tells."""
    reasoning_parser: str | None = None
    """Format in which the model marks its reasoning; `none`: it does not; None: as the chat template tells."""
    trust_request_chat_template: bool = False
    """Requests may bring a chat template of their own."""

    def __post_init__(self) -> None:
        _require(0 <= self.port <= 65535, "port", self.port, "must be in [0, 65535]")
        count = self.api_server_count
        _require(
            1 <= count <= 64,
            "api_server_count",
            count,
            "must be in [1, 64]; one process is enough for about 10,000 tokens a second",
        )
        _require(all(self.api_key), "api_key", "", "must not be empty; leave the flag out to ask for no key")
        _require(all(self.admin_key), "admin_key", "", "must not be empty; leave the flag out for no admin routes")
        for name in ("key_requests_per_minute", "key_tokens_per_minute", "key_concurrent_requests"):
            _require(0 <= getattr(self, name) < 2**53, name, getattr(self, name), "must be 0 (no limit) or positive")
        self._check_connections()
        finite = 0 <= self.shutdown_timeout < float("inf")
        _require(finite, "shutdown_timeout", self.shutdown_timeout, "must be 0 or more seconds")
        size = self.response_store_size
        _require(0 <= size <= 10**6, "response_store_size", size, "must be 0 (none) to 1000000")
        kept = self.response_store_bytes
        _require(
            kept >= 2**20, "response_store_bytes", kept, "must be at least 1MiB; --response-store-size 0 keeps none"
        )
        _require(
            0 < self.response_store_age_s < 1e9, "response_store_age_s", self.response_store_age_s, "must be positive"
        )
        _require(0 < self.engine_timeout < 1e6, "engine_timeout", self.engine_timeout, "must be positive seconds")
        _require(self.max_body_bytes >= 1024, "max_body_bytes", self.max_body_bytes, "must be at least 1KiB")
        fits = re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", self.metrics_prefix) is not None
        _require(fits, "metrics_prefix", self.metrics_prefix, "must be letters, digits, '_' or ':', no digit first")
        collector = self.otlp_traces_endpoint
        fits = collector is None or re.fullmatch(r"https?://[^/\s?#]+(/[^\s?#]*)?", collector) is not None
        _require(fits, "otlp_traces_endpoint", collector, "must look like http://localhost:4318")

    def _check_connections(self) -> None:
        alone = "has no effect without ssl_certfile"
        for name in ("ssl_keyfile", "ssl_ca_certs"):
            given = getattr(self, name)
            _require(given is None or self.ssl_certfile is not None, name, given, alone)
        for origin in self.allowed_origins:
            fits = origin == "*" or re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s]+", origin) is not None
            problem = "must look like https://chat.example or http://localhost:3000, without a path, or be *"
            _require(fits, "allowed_origins", origin, problem)
        _require(0 <= self.max_connections <= 2**20, "max_connections", self.max_connections, "must be in [0, 1048576]")
        _require(0 < self.receive_timeout <= 86400, "receive_timeout", self.receive_timeout, "must be in (0, 86400] s")


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """What a server's processes tell on stderr."""

    log_level: Literal["debug", "info", "warning", "error"] | None = None
    """How much to tell; None: as $OCTAVO_LOG_LEVEL says, else warning."""
    log_format: Literal["text", "json"] = "text"
    """How: `text` for people, `json` for programs, one object per line."""


@dataclass(frozen=True, kw_only=True)
class KVEventsConfig:
    """What the engine tells others of its cache."""

    kv_events_endpoint: str | None = None
    """Address to publish KV events on, such as tcp://127.0.0.1:5557 or ipc:///run/octavo/kv; None: they are off.
    Events hold the tokens of prompts. Port 0: any free one."""
    kv_events_replay_endpoint: str | None = None
    """Address that answers requests for events that were missed, and for all that is stored; None: nobody does."""
    kv_events_topic: str = ""
    """First frame of each message, such as kv@{host}:{port}@{model}; these are filled in, port with that of events."""
    kv_events_format: Literal["map", "array"] = "map"
    """How events are written: `map`, or `array` for followers from before 2026."""
    kv_events_buffer_steps: int = 10_000
    """Batches kept for those who missed some, and for each that is slow."""

    def __post_init__(self) -> None:
        for name in ("kv_events_endpoint", "kv_events_replay_endpoint"):
            _require_address(name, getattr(self, name))
        alone = self.kv_events_endpoint is None and self.kv_events_replay_endpoint is not None
        missing = "has no effect without kv_events_endpoint"
        _require(not alone, "kv_events_replay_endpoint", self.kv_events_replay_endpoint, missing)
        shared = self.kv_events_endpoint is not None and self.kv_events_endpoint == self.kv_events_replay_endpoint
        shared = shared and not str(self.kv_events_endpoint).endswith(":0")  # port 0: each gets one of its own
        twice = "must differ from kv_events_endpoint"
        _require(not shared, "kv_events_replay_endpoint", self.kv_events_replay_endpoint, twice)
        known = set(re.findall(r"[{}][^{}]*[{}]?", self.kv_events_topic)) <= {"{host}", "{port}", "{model}"}
        _require(known, "kv_events_topic", self.kv_events_topic, "may hold {host}, {port} and {model}, no other braces")
        steps = self.kv_events_buffer_steps
        _require(1 <= steps <= 10**6, "kv_events_buffer_steps", steps, "must be in [1, 1000000]")


@dataclass(frozen=True, kw_only=True)
class StepMetricsConfig:
    """What the engine tells others of its steps."""

    step_metrics_endpoint: str | None = None
    """Address to publish a record of every step on, such as tcp://127.0.0.1:20380 or ipc:///run/octavo/steps; None:
    nobody is told. Records hold counts, lengths and times, nothing of what is asked. Port 0: any free one."""
    step_metrics_topic: str = ""
    """First frame of each message."""
    step_metrics_buffer_steps: int = 1000
    """Records that wait for a follower that is slow; it loses what comes beyond."""
    step_metrics_file: str | None = None
    """File to write a record of every step to, one JSON object a line, behind what stands there; None: none."""
    step_metrics_file_bytes: int = 64 * 2**20
    """Size at which that file becomes FILE.1, in place of an earlier one, and a new one begins."""

    def __post_init__(self) -> None:
        _require_address("step_metrics_endpoint", self.step_metrics_endpoint)
        alone = self.step_metrics_endpoint is None and self.step_metrics_topic != ""
        missing = "has no effect without step_metrics_endpoint"
        _require(not alone, "step_metrics_topic", self.step_metrics_topic, missing)
        steps, size = self.step_metrics_buffer_steps, self.step_metrics_file_bytes
        _require(1 <= steps <= 10**6, "step_metrics_buffer_steps", steps, "must be in [1, 1000000]")
        _require(self.step_metrics_file != "", "step_metrics_file", "", "must name a file, or be left out")
        _require(size >= 2**16, "step_metrics_file_bytes", size, "must be at least 64KiB")


def _require_address(name: str, address: str | None) -> None:
    """Refuses what is no address to listen on, and what would open a port to the world without saying so."""
    if address is None or re.fullmatch(r"ipc://.+", address):
        return
    everywhere = re.fullmatch(r"tcp://(\*|\[::\]|):\d+", address) is not None
    wide = "would listen on every network; write tcp://0.0.0.0:PORT if that is meant, else tcp://127.0.0.1:PORT"
    _require(not everywhere, name, address, wide)
    parts = re.fullmatch(r"tcp://(?:\[[0-9a-fA-F:.%\w]+\]|[^\[\]:/*\s]+):(\d{1,5})", address)
    fits = parts is not None and int(parts[1]) <= 65535
    _require(fits, name, address, "must look like tcp://127.0.0.1:5557, tcp://[::1]:5557 or ipc:///run/octavo/kv")


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Everything the engine core needs; the parts belong to their rooms."""

    model: ModelConfig = field(default_factory=ModelConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    kv_events: KVEventsConfig = field(default_factory=KVEventsConfig)
    step_metrics: StepMetricsConfig = field(default_factory=StepMetricsConfig)

    def __post_init__(self) -> None:
        silent = self.kv_events.kv_events_endpoint is not None and not self.cache.enable_prefix_caching
        _require(not silent, "enable_prefix_caching", False, "must be on for kv_events_endpoint to have any effect")

    @classmethod
    def from_fields(cls, values: dict[str, object]) -> "EngineConfig":
        """Builds the tree from flat field names (flags, `LLM(...)` arguments).

        Raises:
            ConfigError: on a name no part knows, listing those that exist; on a value of another type.
        """
        known = {field.name: part for part, kind in _PARTS.items() for field in fields(kind)}
        chosen: dict[str, dict[str, object]] = {part: {} for part in _PARTS}
        for name, value in values.items():
            _require(name in known, name, value, f"unknown setting; known are {', '.join(sorted(known))}")
            chosen[known[name]][name] = _typed(name, value, get_type_hints(_PARTS[known[name]])[name])
        return cls(**{part: kind(**chosen[part]) for part, kind in _PARTS.items()})


def _typed(name: str, value: object, kind: Any) -> object:
    """The value, as a field of that type takes it (a list where a tuple is wanted, the text of an enum)."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        known = choices(kind)
        raise ConfigError(name, value, _one_of(known) if known else _type_problem(kind, str(error))) from None


def _type_problem(kind: Any, told: str) -> str:
    """In our words where the type is one that people get wrong."""
    is_mapping = any(get_origin(part) is dict for part in get_args(kind))
    return 'must be a mapping such as {"method": "ngram"}, not its text' if is_mapping else told


_PARTS: dict[str, Any] = {
    "model": ModelConfig,
    "cache": CacheConfig,
    "scheduler": SchedulerConfig,
    "execution": ExecutionConfig,
    "speculation": SpeculationConfig,
    "kv_events": KVEventsConfig,
    "step_metrics": StepMetricsConfig,
}
