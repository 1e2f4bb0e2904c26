"""Composes an engine core from a model's files: program, KV memory, executor, sampler, scheduler."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from octavo import _native
from octavo.config import CacheConfig, EngineConfig
from octavo.decoding.sampler import NativeSampler
from octavo.decoding.speculation.build import Surroundings
from octavo.engine.core import EngineCore
from octavo.engine.executors import Executors, ExecutorSizes, Loaded
from octavo.engine.fingerprint import Computed, numerics_fingerprint, weights_name
from octavo.engine.grammar_desk import GrammarDesk
from octavo.engine.grammars import StructuredOutput, load_tokenizer, with_grammars
from octavo.engine.kv_publisher import KVPublisher
from octavo.engine.kv_sockets import EventSockets, bind_sockets
from octavo.engine.kv_tiers import open_tiers
from octavo.engine.ledger_prices import LedgerPrices, ledger_prices
from octavo.engine.load_progress import LoadProgress
from octavo.engine.logits_processors import load_processors
from octavo.engine.machine_rates import kept_rates
from octavo.engine.memory import MemoryPlan
from octavo.engine.memory_budget import Models, share_out_memory
from octavo.engine.memory_ledger import MemoryLedger
from octavo.engine.output import EngineInfo
from octavo.engine.policies import scheduling_policy
from octavo.engine.quantization import quantised_at_load, quantised_name
from octavo.engine.second_model import FirstModel, SecondModel, load_second
from octavo.engine.speculation import draft_counts_of, proposer_of, readings, require_known
from octavo.engine.start_log import PhaseTimes, warn_of_threads
from octavo.engine.step_size import with_step_size
from octavo.engine.step_telemetry.open import open_recorder
from octavo.engine.step_telemetry.recorder import StepRecorder
from octavo.engine.traces import TraceFile, file_of, require_writable
from octavo.engine.transfer_desk import TransferDesk
from octavo.engine.weight_places import weight_places
from octavo.errors import ConfigError, OutOfMemoryError
from octavo.execution.loader import Checkpoint, open_checkpoint
from octavo.execution.native.footprint import StepLimits
from octavo.execution.protocols import ProgramExecutor, Proposer, Sampler
from octavo.execution.runner import Runner
from octavo.execution.weights import load_model, weight_bytes
from octavo.hub.cache import default_root
from octavo.hub.files import ModelFiles
from octavo.kv.manager import KVManager
from octavo.kv.pins import Pins
from octavo.kv.spec import bytes_per_token
from octavo.kv.tiers import Tiers
from octavo.model.program import Program
from octavo.platform.cpu import CpuMachine, describe_machine
from octavo.scheduling.draft_counts import DraftCounts
from octavo.scheduling.scheduler import Scheduler
from octavo.text.gguf_metadata import num_tokens

if TYPE_CHECKING:
    from octavo.text.tokenizer import Tokenizer

Instrument = Callable[[ProgramExecutor, Sampler], tuple[ProgramExecutor, Sampler]]
"""Puts something between the runner and what it drives."""


def as_they_are(executor: ProgramExecutor, sampler: Sampler) -> tuple[ProgramExecutor, Sampler]:
    """No `Instrument`."""
    return executor, sampler


def build_core(
    config: EngineConfig,
    files: ModelFiles,
    clock: Callable[[], float],
    instrument: Instrument = as_they_are,
    tokenizer: Tokenizer | None = None,
) -> tuple[EngineCore, EngineInfo]:
    """Loads a model and sets an engine core up around it.

    Args:
        instrument: for whoever wants to see or disturb what happens below the runner.
        tokenizer: of the model, if this process has it already; else it is loaded when a grammar needs it.

    Raises:
        ModelFileError, UnsupportedModelError: the files are not what Octavo can run.
        ConfigError, OutOfMemoryError: a setting cannot work with this model or machine.
    """
    require_writable(config.execution.profile)
    sockets = bind_sockets(config.kv_events)  # before a model is loaded in vain
    with contextlib.ExitStack() as unless_built:
        if sockets is not None:
            unless_built.callback(sockets.close)
        steps = open_recorder(config.step_metrics)
        unless_built.callback(steps.recorder.close)
        core, info = _build(config, files, clock, instrument, tokenizer, sockets, steps.recorder)
        unless_built.pop_all()
        file = file_of(config.execution.profile)
        if file is not None:
            core.trace_file = TraceFile(file, info.served_model_names[0], core.profiler)
        named = config.model.quantization or ""
        return core, replace(
            info, step_metrics=steps.info, cache_config=_cache_config(config.cache), quantization=named
        )


def memory_of(config: EngineConfig, files: ModelFiles) -> MemoryLedger:
    """What an engine would take on this machine as it is now. Headers are read, weights are not.

    Raises:
        ConfigError, ModelError, OutOfMemoryError: as `build_core`.
    """
    checkpoint, machine = open_checkpoint(files.files), describe_machine()
    threads, isa = _threads(config, machine.usable_cores), _native.resolve_isa(config.execution.isa)
    first = _load(config, checkpoint, threads)
    second = load_second(FirstModel(config, files, first, first.program.vocab_size))
    models = _models(first if second is None else second.first, checkpoint, second)
    programs = _programs(models.first, models.beside)
    config = replace(config, scheduler=with_step_size(config.scheduler, programs, threads, isa))
    return _share_out(config, models, threads).ledger


def _build(
    config: EngineConfig,
    files: ModelFiles,
    clock: Callable[[], float],
    instrument: Instrument,
    tokenizer: Tokenizer | None,
    sockets: EventSockets | None,
    recorder: StepRecorder,
) -> tuple[EngineCore, EngineInfo]:
    policy = scheduling_policy(config.scheduler)
    require_known(config.speculation)
    times = PhaseTimes(clock())
    checkpoint = open_checkpoint(files.files)
    times.mark("open", clock())
    machine = describe_machine()
    threads, isa = _threads(config, machine.usable_cores), _native.resolve_isa(config.execution.isa)
    first = _load(config, checkpoint, threads)
    program = first.program
    valid_vocab_size = min(program.vocab_size, _tokenizer_size(config, files, checkpoint, program))
    processors = load_processors(config.execution.logits_processors, valid_vocab_size)
    second = load_second(FirstModel(config, files, first, valid_vocab_size))
    first, beside = (first, None) if second is None else (second.first, second.loaded)
    times.mark("program", clock())
    config = replace(config, scheduler=with_step_size(config.scheduler, _programs(first, beside), threads, isa))
    shares = _share_out(config, _models(first, checkpoint, second), threads)
    config, memory = shares.config, shares.memory
    sizes = _sizes(config, memory, threads, isa, shares.num_drafts)
    executors = _executors(config, files, sizes, first, second, clock)
    times.mark("pack", clock())
    native = NativeSampler(executors.pool, program.vocab_size, valid_vocab_size, isa, processors)
    instrumented, plain = instrument(executors.model, native)
    guided = _with_grammars(plain, config, files, tokenizer, valid_vocab_size)
    grammars, sampler = (None, plain) if guided is None else guided
    runner = _runner(sizes, instrumented, sampler, _proposer(config, guided, second, executors), executors, clock)
    fingerprint = _fingerprint(config, memory, files, first, second)
    manager, pins = _kv(config, memory, fingerprint)
    tiers, desk, found_tiers = open_tiers(config.cache, executors.model, manager, fingerprint)
    parts = (config.scheduler, manager, memory.max_model_len, policy, pins, tiers)
    scheduler = Scheduler(*parts, compiles_grammars=grammars is not None, draft_counts=shares.draft_counts)
    names = config.model.served_model_name or (files.name,)
    publisher = None if sockets is None else _publisher(sockets, config, names[0], manager, tiers)
    times.mark("rest", clock())
    info = EngineInfo(
        model=files.name,
        served_model_names=names,
        architecture=program.notes["family"],
        max_model_len=memory.max_model_len,
        vocab_size=valid_vocab_size,
        eos_token_ids=(),
        hidden_size=program.buffers[program.outputs["hidden"]].width,
        block_size=memory.layout.block_size,
        num_blocks=memory.layout.num_blocks,
        kv_bytes_per_token=bytes_per_token(memory.layout.groups, memory.layout.dtype),
        kv_dtype=memory.layout.dtype.value,
        kv_tiers=found_tiers,
        kv_bytes=(memory.layout.num_blocks - 1) * memory.layout.bytes_per_block,
        num_kv_tokens=memory.num_tokens,
        num_full_length_requests=memory.num_full_length_requests,
        weight_bytes=sum(weight_bytes(first.weights).values()) + _draft_bytes(second),
        max_logprobs=config.model.max_logprobs,
        max_num_seqs=config.scheduler.max_num_seqs,
        max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
        threads=threads,
        isa=isa,
        kv_root=manager.chain_root.hex(),
        async_scheduling=scheduler.max_in_flight > 1,
        kv_events=None if publisher is None else publisher.info,
        scheduling_policy=policy.name,
        reads_priority=policy.reads_priority,
        logits_processors=tuple(processors),
        speculation=config.speculation.speculation,
        draft_weight_bytes=_draft_bytes(second),
        draft_kv_bytes_per_token=memory.beside_bytes_per_token,
        memory=shares.ledger,
        start_s=times.seconds,
    )
    prices = _prices(first, memory, scheduler, machine)
    return _core(scheduler, runner, clock, (publisher, desk, grammars), recorder, executors, prices), info


@dataclass(frozen=True)
class _Shares:
    """What an engine's memory is for."""

    config: EngineConfig
    """It says who guesses."""
    draft_counts: DraftCounts | None
    memory: MemoryPlan
    ledger: MemoryLedger

    @property
    def num_drafts(self) -> int:
        """Most of a step."""
        return _most_drafts(self.draft_counts)


def _share_out(config: EngineConfig, models: Models, threads: int) -> _Shares:
    """Decides who guesses, and what memory is for what. `config` has its step size filled in.

    Raises:
        ConfigError, OutOfMemoryError: as `share_out_memory`, even if nobody guesses who need not.
    """
    *hoped_for, last = readings(config)
    for reading in hoped_for:
        with contextlib.suppress(ConfigError, OutOfMemoryError):  # what is wrong in any case, the last one tells
            return _shares_of(reading, models, threads)
    return _shares_of(last, models, threads)


def _shares_of(config: EngineConfig, models: Models, threads: int) -> _Shares:
    counts = draft_counts_of(config.speculation, config.scheduler)
    limits = _limits(config, models.first.program, threads, _most_drafts(counts))
    return _Shares(config, counts, *share_out_memory(config, models, describe_machine(), limits))


def _most_drafts(counts: DraftCounts | None) -> int:
    return 0 if counts is None else counts.most_per_step


def _core(
    scheduler: Scheduler,
    runner: Runner,
    clock: Callable[[], float],
    helpers: tuple[KVPublisher | None, TransferDesk | None, GrammarDesk | None],
    recorder: StepRecorder,
    executors: Executors,
    prices: LedgerPrices,
) -> EngineCore:
    profiler, figures = executors.profiler(), executors.expert_figures
    return EngineCore(scheduler, runner, clock, *helpers, recorder, profiler, prices, figures)


def _load(config: EngineConfig, checkpoint: Checkpoint, threads: int) -> Loaded:
    program, stored = load_model(checkpoint, config.model.max_model_len)
    return Loaded(program, quantised_at_load(config.model.quantization, program, stored, threads))


def _draft_bytes(second: SecondModel | None) -> int:
    return 0 if second is None else second.num_weight_bytes


def _models(first: Loaded, checkpoint: Checkpoint, second: SecondModel | None) -> Models:
    if second is None:
        return Models(first, None, [checkpoint])
    return Models(first, second.loaded, [checkpoint, second.checkpoint])


def _executors(
    config: EngineConfig,
    files: ModelFiles,
    sizes: ExecutorSizes,
    first: Loaded,
    second: SecondModel | None,
    clock: Callable[[], float],
) -> Executors:
    """Puts the weights where they are wanted, and says how far that is."""
    with LoadProgress(files.name, clock) as progress:
        places = weight_places(config, files, second, progress.report)
        return Executors(config, sizes, first, None if second is None else second.loaded, clock, places)


def _prices(first: Loaded, memory: MemoryPlan, scheduler: Scheduler, machine: CpuMachine) -> LedgerPrices:
    rates = kept_rates(default_root(), machine)
    return ledger_prices(first.program, first.weights, memory.layout, scheduler.reaches, rates)


def _programs(first: Loaded, beside: Loaded | None) -> list[Program]:
    return [loaded.program for loaded in (first, beside) if loaded is not None]


def _threads(config: EngineConfig, usable_cores: int) -> int:
    threads = config.execution.threads or usable_cores
    warn_of_threads(threads, usable_cores)
    return threads


def _cache_config(config: CacheConfig) -> dict[str, str]:
    """As it was asked for. No path: it is shown to whoever reads metrics."""
    settings = asdict(config)
    settings["kv_disk_path"] = "set" if config.kv_disk_path is not None else None
    return {name: str(value) for name, value in settings.items()}


def _proposer(
    config: EngineConfig, guided: StructuredOutput | None, second: SecondModel | None, executors: Executors
) -> Proposer | None:
    if second is not None and executors.second is not None:
        return second.proposer(executors.second)
    lookup = (config.speculation.prompt_lookup_min, config.speculation.prompt_lookup_max)
    around = Surroundings(forced=None if guided is None else guided.sampler, ngram_sizes=lookup)
    return proposer_of(config.speculation, around)


def _publisher(
    sockets: EventSockets, config: EngineConfig, name: str, manager: KVManager, tiers: Tiers | None
) -> KVPublisher:
    """A publisher that is told of what comes and goes."""
    publisher = KVPublisher(sockets, config.kv_events, manager.layout, name)
    manager.observe(publisher.observer)
    if tiers is not None:
        tiers.observe(publisher.observer)
    return publisher


def _runner(
    sizes: ExecutorSizes,
    executor: ProgramExecutor,
    sampler: Sampler,
    proposer: Proposer | None,
    executors: Executors,
    clock: Callable[[], float],
) -> Runner:
    return Runner(
        executor,
        sampler,
        max_num_seqs=sizes.max_seqs,
        max_model_len=sizes.max_positions,
        clock=clock,
        proposer=proposer,
        op_timer=executors.op_timer,
    )


def _kv(config: EngineConfig, memory: MemoryPlan, fingerprint: str) -> tuple[KVManager, Pins]:
    """The KV memory as it is decided about, and the sessions that hold some of it."""
    manager = KVManager(
        memory.layout,
        enable_prefix_caching=config.cache.enable_prefix_caching,
        sub_block_match=config.cache.sub_block_match,
        max_step_tokens=config.scheduler.max_num_batched_tokens,
        fingerprint=fingerprint,
        isolate_tenants=config.cache.isolate_tenants,
    )
    pins = Pins(
        manager,
        memory.max_model_len,
        max_share=config.cache.max_pinned_share,
        max_tokens_per_tenant=config.cache.max_pinned_tokens_per_key,
    )
    return manager, pins


def _with_grammars(
    sampler: Sampler, config: EngineConfig, files: ModelFiles, tokenizer: Tokenizer | None, vocab_size: int
) -> StructuredOutput | None:
    """Answers of a given shape, if there is a tokenizer: a grammar is about the bytes of tokens."""
    if config.model.skip_tokenizer_init:
        return None
    loader = partial(load_tokenizer, files) if tokenizer is None else lambda: tokenizer
    return with_grammars(sampler, loader, vocab_size)


def _fingerprint(
    config: EngineConfig, memory: MemoryPlan, files: ModelFiles, first: Loaded, second: SecondModel | None
) -> str:
    name = weights_name(files, lasting=config.cache.kv_disk_path is not None)
    name = quantised_name(name, config.model.quantization)
    model = Computed(name, first.program, first.weights)
    if second is None:
        return numerics_fingerprint(model, memory.layout, config.execution.executor)
    beside = Computed(second.weights_name, second.loaded.program, second.loaded.weights)
    return numerics_fingerprint(model, memory.layout, config.execution.executor, beside)


def _limits(config: EngineConfig, program: Program, threads: int, num_drafts: int) -> StepLimits:
    return StepLimits(
        threads=threads,
        max_tokens=config.scheduler.max_num_batched_tokens,
        max_rows=config.scheduler.max_num_seqs + num_drafts,
        max_positions=min(config.model.max_model_len or program.max_positions, program.max_positions),
    )


def _sizes(config: EngineConfig, memory: MemoryPlan, threads: int, isa: str, num_drafts: int) -> ExecutorSizes:
    return ExecutorSizes(
        layout=memory.layout,
        threads=threads,
        isa=isa,
        max_tokens=config.scheduler.max_num_batched_tokens,
        max_seqs=config.scheduler.max_num_seqs,
        max_positions=memory.max_model_len,
        num_drafts=num_drafts,
    )


def _tokenizer_size(config: EngineConfig, files: ModelFiles, checkpoint: Checkpoint, program: Program) -> int:
    """Ids that the tokenizer knows: a model's head may be padded beyond them, and padding must never be sampled."""
    if config.model.skip_tokenizer_init:
        return program.vocab_size
    if files.kind == "gguf":
        return num_tokens(checkpoint.metadata, program.vocab_size)
    from octavo.text.tokenizer import from_hf  # noqa: PLC0415  a sixth of the core's imports, for folders alone

    return from_hf(files.folder).vocab_size
