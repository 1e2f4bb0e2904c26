"""The whole ledger, as data and as a table."""

import json
from dataclasses import replace
from typing import Any

import pytest

from octavo.errors import ConfigError
from octavo.planning.deployment import Deployment, deploy
from octavo.planning.figures import Figure
from octavo.planning.hardware import hardware_named, shipped_hardware
from octavo.planning.models import shipped_model, shipped_models
from octavo.planning.report import as_json, as_table, machine_ledger
from octavo.planning.workload import Parallel, Workload

H100 = hardware_named("h100x8")
WORDS_OF_UNITS = {
    **dict.fromkeys(("bytes", "kB", "MB", "GB", "KiB", "MiB"), "bytes"),
    "GB/s": "bytes_per_s",
    "ms": "_s",
    "TFLOP": "flops",
    "TFLOP/s": "flops_per_s",
    "FLOP/B": "flops_per_byte",
    "tok/s": "tokens_per_s",
    "%": "share",
}
"""Unit that a figure is shown in -> what its key says of its base unit."""


def big(cut: Parallel | None = None, workload: Workload | None = None) -> Deployment:
    return deploy(shipped_model("llama-3-70b"), H100, cut or Parallel(), workload or Workload())


@pytest.mark.parametrize(
    ("model", "hardware"),
    [
        *((model, "h100x8") for model in shipped_models()),
        *(("smollm2-135m", machine) for machine in shipped_hardware()),
    ],
)
def test_every_model_and_every_machine_has_a_ledger(model: str, hardware: str) -> None:
    made = machine_ledger(deploy(shipped_model(model), hardware_named(hardware), Parallel(), Workload()))
    content = json.loads(json.dumps(as_json(made)))
    assert content["model"]["name"] == model
    assert all(content[key] == value for key, value in made.figures().items())
    assert all(value >= 0 for value in made.figures().values())
    assert model in as_table(made)


def test_keys_name_their_units_and_no_two_are_alike() -> None:
    figures = [figure for section in machine_ledger(big()).sections for figure in section.figures]
    keys = [figure.key for figure in figures]
    assert len(keys) == len(set(keys))
    assert not {*keys} & {"model", "hardware", "parallel", "workload", "disputes", "cited"}
    named = {figure.key: WORDS_OF_UNITS[figure.unit] for figure in figures if figure.unit in WORDS_OF_UNITS}
    assert len(named) > 40
    assert {key: word for key, word in named.items() if word not in key} == {}


def test_the_figures_of_the_promised_spelling() -> None:
    figures = machine_ledger(big()).figures()
    assert figures["kv_bytes_per_token"] == 327_680
    assert figures["weight_bytes_per_device"] == pytest.approx(17.64e9, rel=1e-3)
    assert figures["decode_bound_s"] == pytest.approx(5.2e-3, rel=1e-2)
    assert figures["all_reduces_per_step"] == 160
    assert figures["prefill_chunks"] == 5
    assert figures["request_blocks"] == 147
    assert figures["kv_pool_requests"] == 564
    assert figures["decode_with_all_reduces_s"] == pytest.approx(9.87e-3, rel=1e-2)


def test_one_device_has_no_messages_and_a_machine_without_network_no_handoff() -> None:
    alone = machine_ledger(deploy(shipped_model("llama-3-8b"), hardware_named("a100"), Parallel(), Workload()))
    assert not [key for key in alone.figures() if key.startswith(("all_reduce", "handoff", "stage"))]
    silent = replace(H100, interconnect=None)
    cut = machine_ledger(deploy(shipped_model("llama-3-8b"), silent, Parallel(), Workload()))
    assert "all_reduces_per_step" in cut.figures()
    assert "all_reduces_s" not in cut.figures()


def test_weights_that_do_not_fit_leave_no_pool_and_say_so() -> None:
    made = machine_ledger(deploy(shipped_model("llama-3-70b"), hardware_named("h100"), Parallel(), Workload()))
    assert made.figures()["kv_pool_requests"] == 0
    assert "more than the device may take" in as_table(made)


def test_disputes_are_told_both_ways() -> None:
    content = as_json(machine_ledger(big()))
    told = {dispute["key"]: dispute for dispute in content["disputes"]}
    assert told["prefill_intensity"]["figure"] == 2050
    assert told["prefill_intensity"]["instead"] == 4100
    assert told["replica_pool_share"]["instead"] == 0.5
    assert "not 4100 FLOP/B" in as_table(machine_ledger(big()))
    bytes_each = deploy(shipped_model("llama-3-70b", "int8"), H100, Parallel(), Workload())
    assert "prefill_intensity" not in {dispute.key for dispute in machine_ledger(bytes_each).disputes}


@pytest.mark.parametrize(
    ("cut", "told"),
    [
        (Parallel(tp=3), "tp=3: 64 attention heads on 8 devices with pp=1 can be cut into 1, 2, 4, 8"),
        (Parallel(tp=8, pp=2), "tp=8: 64 attention heads on 8 devices with pp=2 can be cut into 1, 2, 4"),
        (Parallel(pp=9), "pp=9: must be from 1 to 8 on h100x8"),
        (Parallel(tp=0), "tp=0"),
    ],
)
def test_cuts_that_cannot_be(cut: Parallel, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        big(cut)
    assert told in str(caught.value)


def test_experts_move_the_boundary() -> None:
    """Each of them sees a share of the tokens, and all of them are read."""
    dense, routed = (
        deploy(shipped_model(name), H100, Parallel(), Workload()) for name in ("llama-3-8b", "mixtral-8x7b")
    )
    assert dense.boundary_tokens == pytest.approx(295.2, abs=0.1)
    assert routed.boundary_tokens == pytest.approx(295.2 * 46.70 / 12.88, rel=1e-3)


def test_ranks_default_to_what_divides_the_heads() -> None:
    assert big().tp == 8
    assert big(Parallel(pp=4)).tp == 2
    assert deploy(shipped_model("smollm2-135m"), H100, Parallel(), Workload()).tp == 3


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"prompt_tokens": 0}, "prompt_tokens=0"),
        ({"batch": -1}, "batch=-1"),
        ({"drafts": -1}, "drafts=-1"),
        ({"memory_share": 0.0}, "memory_share=0.0"),
        ({"memory_share": 1.5}, "memory_share=1.5"),
        ({"image_px": 13}, "image_px=13: holds no patch"),
    ],
)
def test_workloads_that_cannot_be(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Workload(**fields)
    assert told in str(caught.value)


def test_requests_longer_than_the_model() -> None:
    with pytest.raises(ConfigError, match=r"8192 positions, output_tokens=300 .* ask for at most 7892"):
        big(workload=Workload(prompt_tokens=8000))


@pytest.mark.parametrize(
    ("figure", "shown"),
    [
        (Figure("a_bytes", 734.375 * 2**20, "MiB"), "734.4 MiB"),
        (Figure("a", 70_553_706_496, "parameters"), "70,553,706,496 parameters"),
        (Figure("a_s", 0.0000291, "ms"), "0.0291 ms"),
        (Figure("a_bytes", 16384, "bytes"), "16,384 bytes"),
        (Figure("a", 5.5, "requests"), "5.5 requests"),
        (Figure("a_share", 0.125, "%"), "12.5 %"),
    ],
)
def test_figures_for_people(figure: Figure, shown: str) -> None:
    assert figure.shown() == shown
