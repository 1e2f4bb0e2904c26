"""Rows that contradict their own inputs are told both ways, with the reason."""

from collections.abc import Callable

import pytest

from octavo.planning import disputes, parameters, speculation
from octavo.planning.disputes import Dispute
from octavo.planning.units import in_unit

from .conventions import as_mib_called_mb, rounded
from .rows import (
    A100,
    BIG,
    GB,
    MB,
    MEMORY,
    MS,
    OLD,
    PRINTED_RIDGE,
    PRINTED_WEIGHTS,
    PROMPT,
    REQUEST,
    REQUEST_ON_DEVICE,
    SLOW_STEP,
    STRICT_WEIGHTS,
    WEIGHTS,
    P,
    mixed_decode_bound,
)
from .test_ledger import REFERENCE

STEP_RATIO = rounded(speculation.step_ratio(SLOW_STEP, mixed_decode_bound(128)), 1)
OLD_WEIGHTS = rounded(parameters.weight_bytes(parameters.num_parameters(OLD), 16), 1, GB)
OLD_BANDWIDTH = A100.device.memory_bytes_per_s

DISPUTED: dict[str, Callable[[], Dispute]] = {
    "p1.ai_prefill": lambda: disputes.prefill_intensity(PROMPT, 2),
    "p1.ai_ratio": lambda: disputes.intensity_over_ridge(PROMPT, 2, PRINTED_RIDGE),
    "p7.spec_throughput": lambda: disputes.speculative_throughput(2.5, STEP_RATIO),
    "p7.b1_tpot": lambda: disputes.speculative_tpot(rounded(SLOW_STEP, 0, MS), 2.5),
    "p8.dp_pool": lambda: disputes.replica_pool(8, 2, 0.9 * MEMORY, rounded(WEIGHTS, 3, GB)),
    "p11.lora_flops": lambda: disputes.adapter_flops(BIG, 16, P),
    "p14.a100": lambda: disputes.weight_read(OLD_WEIGHTS, OLD_BANDWIDTH, rounded(OLD_BANDWIDTH, 1, 1e12)),
    "B4.fit": lambda: disputes.requests_that_fit(MEMORY - STRICT_WEIGHTS, REQUEST_ON_DEVICE, REQUEST),
    "B4.fit_printed": lambda: disputes.requests_that_fit(
        MEMORY - PRINTED_WEIGHTS, REQUEST_ON_DEVICE, rounded(as_mib_called_mb(REQUEST), 0, MB)
    ),
}
INCONSISTENT = {row["id"]: row for row in REFERENCE if row["status"] == "inconsistent"}


def test_every_inconsistent_row_is_told_both_ways() -> None:
    assert sorted(DISPUTED) == sorted(INCONSISTENT)


@pytest.mark.parametrize("row_id", DISPUTED)
def test_both_figures_and_the_reason(row_id: str) -> None:
    row, dispute = INCONSISTENT[row_id], DISPUTED[row_id]()
    both = [in_unit(value, row["unit"]) for value in (dispute.figure, dispute.instead)]
    assert row["value"] in [pytest.approx(value, rel=1e-9) for value in both]
    if row["tolerance"] is not None:
        assert row["printed"] in [pytest.approx(value, abs=row["tolerance"]) for value in both]
    assert both[0] != both[1]
    assert len(dispute.reason) > 30


@pytest.mark.parametrize("row_id", ["p7.spec_throughput", "p8.dp_pool", "B4.fit"])
def test_the_larger_mistakes_are_on_the_side_that_was_printed(row_id: str) -> None:
    """Throughput was said to fall, the pool to halve, few requests to fit."""
    dispute = DISPUTED[row_id]()
    assert (dispute.instead > dispute.figure) is (row_id == "p8.dp_pool")
