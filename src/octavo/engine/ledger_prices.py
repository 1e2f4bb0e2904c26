"""What the work of a request costs: operations and bytes of its rows, and the least time that they take here."""

from collections.abc import Mapping, Sequence

import msgspec

from octavo.engine.machine_rates import MachineRates
from octavo.execution.weights import LoadedWeight, weight_bytes
from octavo.kv.spec import KVLayout
from octavo.model.program import Program
from octavo.model.rates import Flops, RowRates, row_rates
from octavo.request.account import WorkDone
from octavo.request.outputs import RequestStats


class LedgerPrices:
    """Prices the work in accounts; each when its request ends or is looked at, none in a step.

    Flops and bytes of K and V are a row's own. Weights are read once for all rows of a step, and each row is charged
    an equal part. A bound supposes that each step ran for the request alone: weights read whole, its own rows computed.
    How many experts a step reads is expected from its rows: of steps that ran, from their harmonic mean over the
    request's rows (`num_tokens / share`); of steps alone, from the request's rows per step.
    """

    def __init__(self, rates: RowRates, machine: MachineRates | None) -> None:
        """
        Args:
            machine: None: it was never measured, so there are no bounds.
        """
        self._rates = rates
        self._machine = machine

    def price(self, stats: RequestStats) -> RequestStats:
        """The same with prices; without an account as it is."""
        account = stats.account
        if account is None:
            return stats
        work = {phase: self._priced(done) for phase, done in account.work.items()}
        return msgspec.structs.replace(stats, account=msgspec.structs.replace(account, work=work))

    def _priced(self, done: WorkDone) -> WorkDone:
        rates = self._rates
        pairs = sum(count * flops for count, flops in zip(done.num_pairs, rates.pair_flops, strict=True))
        flops = rates.per_row.times(done.num_tokens) + rates.per_sampled.times(done.num_sampled) + Flops(floats=pairs)
        read = sum(count * size for count, size in zip(done.num_read, rates.kv_read_bytes, strict=True))
        embed_bytes = rates.embed_bytes * done.num_tokens
        kv_bytes = read + rates.kv_write_bytes * done.num_tokens
        alone_bytes = done.num_steps * rates.step_bytes(done.num_tokens / max(1, done.num_steps))
        shared_bytes = done.share * rates.step_bytes(done.num_tokens / done.share) if done.share else 0.0
        bound_s, bound_by = self._bound(flops, alone_bytes + embed_bytes + kv_bytes)
        return msgspec.structs.replace(
            done,
            flops=flops.total,
            weight_bytes=shared_bytes + embed_bytes,
            kv_bytes=kv_bytes,
            bound_s=bound_s,
            bound_by=bound_by,
        )

    def _bound(self, flops: Flops, memory_bytes: float) -> tuple[float | None, str]:
        machine = self._machine
        if machine is None:
            return None, ""
        memory_s = memory_bytes / machine.read_bytes
        arithmetic_s = flops.int8 / machine.int8_ops + flops.floats / machine.float_ops
        return max(memory_s, arithmetic_s), "memory" if memory_s >= arithmetic_s else "arithmetic"


def ledger_prices(
    program: Program,
    weights: Mapping[str, LoadedWeight],
    layout: KVLayout,
    reaches: Sequence[int | None],
    machine: MachineRates | None,
) -> LedgerPrices:
    """Those of a model.

    Args:
        reaches: as of `Scheduler.reaches`.
    """
    layer_bytes = [layout.layer_spec(layer).bytes_per_token(layout.dtype) for layer in range(len(program.cache_layers))]
    int8_weights = frozenset(name for name, weight in weights.items() if not weight.type.is_float)
    return LedgerPrices(row_rates(program, weight_bytes(weights), layer_bytes, reaches, int8_weights), machine)
