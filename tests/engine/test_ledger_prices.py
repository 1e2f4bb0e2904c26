"""What work costs, and the least time for it: by rates that were kept, or not at all."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from octavo.engine.ledger_prices import LedgerPrices
from octavo.engine.machine_rates import MachineRates, kept_rates, profile_path
from octavo.model.rates import ExpertRates, Flops, RowRates
from octavo.platform.cpu import CpuMachine
from octavo.request.account import Account, Phase, WorkDone
from octavo.request.outputs import RequestStats

RATES = RowRates(
    per_row=Flops(int8=1000, floats=10),
    per_sampled=Flops(int8=500),
    pair_flops=(4, 2),
    weight_bytes=10_000,
    embed_bytes=64.0,
    kv_read_bytes=(8, 4),
    kv_write_bytes=12,
)
MACHINE = MachineRates(read_bytes=1e4, int8_ops=1e4, float_ops=1e3)
CPU = CpuMachine(model_name="Some Processor", usable_cores=2, total_memory_bytes=1, available_memory_bytes=1)


def priced(work: WorkDone, machine: MachineRates | None = MACHINE) -> WorkDone:
    stats = RequestStats(account=Account(work={Phase.PREFILL: work}))
    account = LedgerPrices(RATES, machine).price(stats).account
    assert account is not None
    return account.work[Phase.PREFILL]


def test_rows_pairs_and_samples_have_their_prices() -> None:
    work = WorkDone(num_steps=2, num_tokens=10, num_sampled=1, share=0.5, num_pairs=[55, 40], num_read=[10, 8])
    found = priced(work)
    assert found.flops == 10 * 1010 + 500 + 55 * 4 + 40 * 2
    assert found.kv_bytes == 10 * 8 + 8 * 4 + 10 * 12
    assert found.weight_bytes == 0.5 * 10_000 + 10 * 64.0
    assert (found.num_steps, found.share) == (2, 0.5)


def test_the_bound_is_the_slower_of_memory_and_arithmetic_with_whole_weights() -> None:
    decode = WorkDone(num_steps=4, num_tokens=4, num_sampled=4, share=0.4, num_pairs=[0, 0], num_read=[0, 0])
    found = priced(decode)
    assert found.bound_by == "memory"
    assert found.bound_s == pytest.approx((4 * 10_000 + 4 * 64 + 4 * 12) / 1e4)
    prefill = WorkDone(num_steps=1, num_tokens=100, num_sampled=1, share=1.0, num_pairs=[5050, 0], num_read=[100, 0])
    found = priced(prefill)
    assert found.bound_by == "arithmetic"
    assert found.bound_s == pytest.approx((100 * 1000 + 500) / 1e4 + (100 * 10 + 5050 * 4) / 1e3)


def test_experts_are_charged_as_far_as_steps_read_them() -> None:
    """Two of eight are met by each row: alone all of them, in steps of 4 rows the share that is expected."""
    rates = replace(RATES, experts=(ExpertRates(num_experts=8, num_active=2, num_bytes=80_000),))
    work = WorkDone(num_steps=4, num_tokens=4, num_sampled=0, share=1.0, num_pairs=[0, 0], num_read=[0, 0])
    found = LedgerPrices(rates, MACHINE).price(RequestStats(account=Account(work={Phase.DECODE: work}))).account
    assert found is not None
    decode = found.work[Phase.DECODE]
    of_four = 80_000 * (1 - (6 / 8) ** 4)
    assert decode.weight_bytes == pytest.approx(10_000 + of_four + 4 * 64)
    assert decode.bound_s == pytest.approx((4 * (10_000 + 20_000) + 4 * 64 + 4 * 12) / 1e4)


def test_without_rates_there_is_no_bound() -> None:
    found = priced(WorkDone(num_steps=1, num_tokens=1, num_pairs=[1, 1], num_read=[1, 1]), machine=None)
    assert found.flops and found.bound_s is None and found.bound_by == ""


def test_what_has_no_account_stays_as_it_is() -> None:
    stats = RequestStats(num_prompt_tokens=3)
    assert LedgerPrices(RATES, MACHINE).price(stats) is stats


def write(root: Path, text: str) -> None:
    path = profile_path(root, CPU)
    path.parent.mkdir()
    path.write_text(text)


def test_rates_are_read_from_the_kept_profile(tmp_path: Path) -> None:
    assert kept_rates(tmp_path, CPU) is None
    device = {"name": "x", "memory_bytes": 1, "memory_bytes_per_s": 2e10, "flops_per_s": {"int8": 4e11, "fp32": 1e11}}
    write(tmp_path, json.dumps({"name": "cpu", "num_devices": 1, "device": device}))
    assert kept_rates(tmp_path, CPU) == MachineRates(2e10, 4e11, 1e11)


@pytest.mark.parametrize("text", ["", "{}", '{"device": {"memory_bytes_per_s": 1, "flops_per_s": {"int8": 1}}}'])
def test_a_damaged_profile_costs_the_bounds_and_nothing_else(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, text)
    with caplog.at_level(logging.WARNING):
        assert kept_rates(tmp_path, CPU) is None
    assert "no bounds" in caplog.text
