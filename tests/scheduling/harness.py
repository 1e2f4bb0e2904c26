"""Drives the real scheduler with the scripted executor, checking the laws of the KV memory after every step."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any

from octavo.config import SchedulerConfig
from octavo.engine.grammar_desk import GrammarDesk
from octavo.engine.transfer_desk import TransferDesk
from octavo.engine.waker import Waker
from octavo.execution.protocols import Bytes
from octavo.execution.scripted import (
    CompletionScript,
    DraftScript,
    FaultScript,
    ScriptedExecutor,
    TokenScript,
    never_complete,
    no_drafts,
    no_faults,
)
from octavo.execution.scripted_grammars import FateOfGrammar, ScriptedGrammars, compiled_in_a_tick
from octavo.execution.scripted_store import FateScript, ScriptedStore, all_goes_well
from octavo.kv.manager import KVManager
from octavo.kv.pins import Pins
from octavo.kv.record import BlockRecord, Tier
from octavo.kv.spec import AttentionSpec, KVDtype, KVLayout, lay_out
from octavo.kv.tier_book import TierSettings
from octavo.kv.tiers import Tiers
from octavo.kv.transfer import BlockName
from octavo.request.outputs import FinishReason, RequestOutput
from octavo.request.params import SamplingParams
from octavo.request.pin import PinRequest
from octavo.request.pooling import PoolingParams
from octavo.request.request import GenerateRequest
from octavo.scheduling.draft_counts import FixedDraftCounts
from octavo.scheduling.plan import NewRequestData, StepPlan, StepResult
from octavo.scheduling.request_state import RequestStatus
from octavo.scheduling.scheduler import Scheduler
from tests.scheduling.closed_ledger import check_closed
from tests.scheduling.draft_account import DraftAccount

FULL = AttentionSpec(num_kv_heads=1, head_dim=4)
WINDOWED = AttentionSpec(num_kv_heads=1, head_dim=4, window=8)
VOCAB_SIZE = 1000


def make_layout(num_blocks: int, *, block_size: int = 4, layers: tuple[AttentionSpec, ...] = (FULL,)) -> KVLayout:
    """A layout with `num_blocks` usable blocks."""
    return lay_out(layers, num_blocks=num_blocks + 1, block_size=block_size, dtype=KVDtype.FP32)


def make_request(
    request_id: str,
    prompt: int | Sequence[int],
    max_tokens: int = 4,
    *,
    eos: tuple[int, ...] = (),
    priority: int = 0,
    cache_salt: str | None = None,
    arrival_s: float = 0.0,
    tenant: str = "",
    session: str | PinRequest | None = None,
    pooling: PoolingParams | None = None,
    **params: Any,
) -> GenerateRequest:
    """A request; a prompt given as a length is filled with tokens of its own."""
    if isinstance(prompt, int):
        start = sum(ord(c) * 131**i for i, c in enumerate(request_id)) % 100_000
        prompt = range(start, start + prompt)
    params.setdefault("seed", 0)
    return GenerateRequest(
        request_id=request_id,
        prompt_token_ids=list(prompt),
        params=SamplingParams(max_tokens=max_tokens, **params),
        eos_token_ids=eos,
        priority=priority,
        cache_salt=cache_salt,
        arrival_s=arrival_s,
        tenant=tenant,
        pin=PinRequest(session_id=session) if isinstance(session, str) else session,
        pooling=pooling,
    )


def as_token(vector: bytes) -> int:
    """The vector of a pooled request as the one token that it stands for."""
    return int.from_bytes(vector, "little")


PLAIN = {"max_num_batched_tokens": 32, "max_num_seqs": 8, "admission_conservativeness": 0.0, "max_bypasses": 0}
"""The plainest rules: only what is known now counts, and nobody overtakes. Tests of the others name them."""


class AlwaysAwake(Waker):
    """Has stores asked each time; holds no pipe."""

    def __init__(self) -> None:
        pass

    def take(self) -> bool:
        return True

    def close(self) -> None:
        pass


class Engine:
    """Scheduler, KV manager and scripted executor in one loop with a clock that counts steps."""

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        layers: tuple[AttentionSpec, ...] = (FULL,),
        max_model_len: int = 128,
        caching: bool = True,
        sub_block_match: bool = False,
        script: TokenScript | None = None,
        faults: FaultScript = no_faults,
        max_pinned_share: float = 0.5,
        max_pinned_tokens: int = 0,
        tiers: dict[Tier, int] | None = None,
        fates: FateScript = all_goes_well,
        lease_s: float = 20.0,
        found: dict[BlockName, tuple[BlockRecord, Bytes]] | None = None,
        grammars: FateOfGrammar = compiled_in_a_tick,
        completes: CompletionScript = never_complete,
        drafts: DraftScript = no_drafts,
        num_drafts: int = 0,
        **config: Any,
    ) -> None:
        """
        Args:
            tiers: tier -> blocks that fit there, the fastest first; None: the engine knows of none.
            found: what lies in the slowest tier at start.
            fates, lease_s: of transfers; one tick of their stores is one second, and one step.
            grammars: what becomes of these; a tick is the same.
            completes, drafts: see `ScriptedExecutor`.
            num_drafts: most of a request in a step.
        """
        self.config = SchedulerConfig(**{**PLAIN, **config})
        layout = make_layout(num_blocks, block_size=block_size, layers=layers)
        self.manager = KVManager(
            layout,
            enable_prefix_caching=caching,
            sub_block_match=sub_block_match,
            max_step_tokens=self.config.max_num_batched_tokens,
            fingerprint="test",
        )
        self.pins = Pins(
            self.manager, max_model_len, max_share=max_pinned_share, max_tokens_per_tenant=max_pinned_tokens
        )
        self.grammars = ScriptedGrammars(grammars)
        self.grammar_desk = GrammarDesk(self.grammars, AlwaysAwake())
        self.executor = ScriptedExecutor(
            layout,
            vocab_size=VOCAB_SIZE,
            script=script,
            faults=faults,
            max_num_seqs=self.config.max_num_seqs,
            max_num_batched_tokens=self.config.max_num_batched_tokens,
            max_in_flight=2 if self.config.async_scheduling else 1,
            completes=completes,
            drafts=drafts,
            has_grammar=self.grammars.is_kept,
        )
        self.stores = self._make_stores(tiers or {}, fates, found or {})
        self.desk = TransferDesk(list(self.stores.values()), AlwaysAwake())
        self.tiers = None if tiers is None else Tiers(self.manager, self._tier_settings(), lease_s=lease_s)
        self.scheduler = Scheduler(
            self.config,
            self.manager,
            max_model_len,
            pins=self.pins,
            tiers=self.tiers,
            compiles_grammars=True,
            draft_counts=FixedDraftCounts(num_drafts, most_per_step=64) if num_drafts else None,
        )
        self.account = DraftAccount()
        self.now_s = 0.0
        self.plans: list[StepPlan] = []
        self.in_flight: deque[StepPlan] = deque()
        """Plans that `plan_ahead` made and `land` has not run yet."""
        self.discarded: Counter[str] = Counter()
        """Request id -> tokens that came after its stop."""
        self.tokens: dict[str, list[int]] = defaultdict(list)
        self.outputs: dict[str, list[RequestOutput]] = defaultdict(list)
        self.finished: dict[str, FinishReason] = {}

    def _make_stores(
        self, tiers: dict[Tier, int], fates: FateScript, found: dict[BlockName, tuple[BlockRecord, Bytes]]
    ) -> dict[Tier, ScriptedStore]:
        block_bytes = self.executor.block_bytes(0)
        stores = {
            tier: ScriptedStore(tier, count * block_bytes, self.executor, fates=fates) for tier, count in tiers.items()
        }
        if found:
            list(stores.values())[-1].blocks |= found
        return stores

    def _tier_settings(self) -> list[TierSettings]:
        return [
            TierSettings(store.tier, store.capacity_bytes, store.num_bytes, store.inventory())
            for store in self.stores.values()
        ]

    def add(self, *requests: GenerateRequest) -> None:
        for request in requests:
            self.scheduler.add(request, self.now_s)
            self.account.arrived(request.request_id)

    def plan(self) -> StepPlan:
        """Schedules without executing."""
        plan = self._schedule()
        assert plan is not None
        self.plans.append(plan)
        return plan

    def _schedule(self) -> StepPlan | None:
        self._see_to_grammars()
        self.scheduler.take_in(self.desk.poll(), self.now_s)
        self.check()
        plan = self.scheduler.schedule(self.now_s)
        if plan is not None:
            self.account.issued(plan)
        orders = self.scheduler.transfer_orders(self.now_s)
        if orders is not None:
            self.desk.obey(orders)
        self.check()
        return plan

    def _see_to_grammars(self) -> None:
        self._pass_on_grammar_orders()
        self._note(self.scheduler.take_in_ready(self.grammar_desk.poll(self.now_s), self.now_s))

    def _pass_on_grammar_orders(self) -> None:
        orders = self.scheduler.grammar_orders()
        if orders is not None:
            self.grammar_desk.obey(orders, self.in_flight[-1].step if self.in_flight else None, self.now_s)

    def check(self) -> None:
        """All laws, and the figures that are kept up to date against those counted anew."""
        self.manager.check()
        self.pins.check()
        if self.tiers is not None:
            self.tiers.check()
        self._check_figures()

    def _check_figures(self) -> None:
        load, requests = self.scheduler.load(), self.scheduler._requests.values()
        waiting = [request for request in requests if request.status is not RequestStatus.RUNNING]
        for status, count in (
            (RequestStatus.WAITING_FOR_GRAMMAR, load.num_waiting_for_grammar),
            (RequestStatus.WAITING_FOR_KV, load.num_waiting_for_kv),
        ):
            assert sum(request.status is status for request in requests) == count
        assert load.num_waiting_tokens == sum(len(request.token_ids) for request in waiting)
        assert load.num_running_tokens + load.num_waiting_tokens == sum(len(request.token_ids) for request in requests)
        assert load.num_tokens_to_run >= load.num_running - len(self.in_flight)
        if load.num_waiting_cached_tokens is not None:
            parked = (RequestStatus.WAITING_FOR_KV, RequestStatus.WAITING_FOR_GRAMMAR)
            followed = [request for request in waiting if request.status not in parked]
            assert load.num_waiting_cached_tokens == sum(request.num_hit_tokens for request in followed)

    def _check_account(self) -> None:
        """What became of drafts, in total and of each request that lives."""
        self.account.check(self.scheduler.load())
        for request in self.scheduler._requests.values():
            if request.request.pooling is None:
                self.account.check_ledger(request.request_id, request.ledger())

    def let_time_pass(self) -> None:
        """One second, in which stores and compilers work."""
        self.now_s += 1.0
        self.grammars.tick()
        for store in self.stores.values():
            store.tick()

    def finish(self, plan: StepPlan) -> list[RequestOutput]:
        """Executes a plan and hands its result in."""
        result = self.executor.execute(plan)
        for request_id, token_ids in zip(plan.request_ids, result.token_ids, strict=True):
            ended = self.finished.get(request_id) in ("stop", "repetition")
            self.discarded[request_id] += len(token_ids) if ended else 0
        outputs = self.scheduler.update(plan, result, self.now_s)
        self.account.landed(plan, result, outputs)
        self.desk.landed(plan.step)
        self.grammar_desk.landed(plan.step)
        self._pass_on_grammar_orders()
        self.let_time_pass()
        self.check()
        self._check_account()
        self._note(outputs)
        return outputs

    def _note(self, outputs: list[RequestOutput]) -> None:
        for output in outputs:
            assert output.request_id not in self.finished, "an output after the last one"
            self.outputs[output.request_id].append(output)
            self.tokens[output.request_id] += (
                output.new_token_ids if output.vector is None else [as_token(output.vector)]
            )
            if output.finish_reason is not None:
                self.finished[output.request_id] = output.finish_reason
                if output.stats is not None:
                    check_closed(output.stats, output.finish_reason)
                if output.vector is None and output.stats is not None:
                    self.account.check_ledger(output.request_id, output.stats)

    def plan_ahead(self) -> bool:
        """Schedules without executing, if that may be and there is something; whether it was."""
        if len(self.in_flight) == self.scheduler.max_in_flight:
            return False
        plan = self._schedule()
        if plan is not None:
            self.plans.append(plan)
            self.in_flight.append(plan)
        return plan is not None

    def land(self) -> dict[str, int]:
        """Executes the oldest plan in flight and hands its result in; returns request id -> tokens scheduled."""
        plan = self.in_flight.popleft()
        self.finish(plan)
        return dict(zip(plan.request_ids, plan.num_scheduled_tokens, strict=True))

    def step(self) -> dict[str, int]:
        """One whole step, with those behind it planned as far ahead as the scheduler does; if all wait for KV, a second
        in which nothing runs."""
        while self.plan_ahead():
            pass
        if self.in_flight:
            return self.land()
        is_waiting = self.num_waiting_for_kv or self.scheduler.load().num_waiting_for_grammar
        assert is_waiting or not self.scheduler.has_work, "nothing runs, and nobody waits for KV or a grammar"
        self.let_time_pass()
        return {}

    def drain(self) -> None:
        """Lets all transfers end, and all that is to be stored be stored."""
        for _ in range(1000):
            while self.plan_ahead():
                self.land()
            if self.tiers is None or not (self.tiers._transfers or self.tiers._removals):
                return
            self.let_time_pass()
        raise AssertionError("transfers do not end")

    def run(self, max_steps: int = 10_000) -> None:
        """Steps until there is no work."""
        for _ in range(max_steps):
            if not (self.scheduler.has_work or self.in_flight):
                return
            self.step()
        raise AssertionError(f"not done after {max_steps} steps")

    def generate(self, *requests: GenerateRequest) -> list[list[int]]:
        """Runs requests to their end; returns their tokens."""
        self.add(*requests)
        self.run()
        return [self.tokens[request.request_id] for request in requests]

    def stats(self, request_id: str) -> Any:
        """The ledger of a finished request."""
        return self.outputs[request_id][-1].stats

    @property
    def num_waiting_for_kv(self) -> int:
        return self.scheduler.load().num_waiting_for_kv

    @property
    def num_running(self) -> int:
        return self.scheduler.load().num_running

    @property
    def num_waiting(self) -> int:
        return self.scheduler.load().num_waiting

    @property
    def num_queue_entries(self) -> int:
        """Entries that the waiting queue keeps, those that count no longer included."""
        return sum(len(lane._heap) for lane in self.scheduler._waiting._lanes)

    @property
    def counters(self) -> dict[str, float]:
        return self.scheduler.load().counters


def run_unexecuted(scheduler: Scheduler) -> Iterator[StepPlan]:
    """Steps until there is no work, with token 1 for whoever is through its known tokens, and yields the plans before
    they land. For runs too long for the scripted executor and its checks."""
    num_known: dict[str, int] = {}
    now_s = 0.0
    while (plan := scheduler.schedule(now_s)) is not None:
        num_known.update({new.request_id: len(new.token_ids) for new in plan.new_requests})
        yield plan
        tokens = []
        for name, computed, count in zip(
            plan.request_ids, plan.num_computed_tokens, plan.num_scheduled_tokens, strict=True
        ):
            is_through = computed + count == num_known[name]
            num_known[name] += is_through
            tokens.append((1,) if is_through else ())
        now_s += 1.0
        for output in scheduler.update(plan, StepResult(step=plan.step, token_ids=tuple(tokens)), now_s):
            if output.finish_reason is not None:
                del num_known[output.request_id]


def alone(request: GenerateRequest, max_model_len: int = 128) -> list[int]:
    """The tokens (or the vector) a request gets with an executor of its own, whole prompt in one chunk, without any
    scheduler."""
    layout = make_layout(1, block_size=max_model_len)
    executor = ScriptedExecutor(layout, vocab_size=VOCAB_SIZE)
    known, num_computed, step = list(request.prompt_token_ids), 0, 0
    limit = min(len(known) + (request.params.max_tokens or max_model_len), max_model_len)
    stops = {*request.eos_token_ids, *request.params.stop_token_ids}
    data = NewRequestData(
        request_id="alone",
        token_ids=known[:],
        num_prompt_tokens=len(known),
        params=request.params,
        eos_token_ids=request.eos_token_ids,
        block_ids=((1,),),
        pooling=request.pooling,
    )
    while len(known) < limit and not (step and known[-1] in stops):
        plan = StepPlan(
            step=step,
            request_ids=("alone",),
            num_scheduled_tokens=(len(known) - num_computed,),
            num_computed_tokens=(num_computed,),
            new_block_ids=(((),),),
            new_requests=() if step else (data,),
        )
        num_computed, step = len(known), step + 1
        result = executor.execute(plan)
        if request.pooling is not None:
            return [as_token(result.vectors["alone"])]
        known += result.token_ids[0]
    return known[len(request.prompt_token_ids) :]
