"""Steps as the planner prices them, against the bounds of the benchmark that measures them, and against the formula."""

from dataclasses import replace
from pathlib import Path

import pytest

from octavo.bench import bounds
from octavo.execution.loader import open_checkpoint
from octavo.execution.loader.tiny.spec import TinyModel
from octavo.execution.loader.tiny.write import write_tiny_model
from octavo.execution.quant import TensorType
from octavo.execution.weights import load_model
from octavo.model.cost import StepShape
from octavo.planning.deployment import deploy
from octavo.planning.from_program import shape_of_program
from octavo.planning.hardware import Device, HardwareProfile, hardware_named
from octavo.planning.kv import FORMATS
from octavo.planning.models import PricedModel, shipped_model
from octavo.planning.step_work import decode_step, prefill_step, step_bound_s, step_work
from octavo.planning.weights import WeightFormat
from octavo.planning.workload import Parallel, Workload
from octavo.platform.peaks import Peaks

STEPS = (prefill_step(100), decode_step(1, 100), decode_step(5, 60), decode_step(3, 60, 2))
PEAKS = Peaks(threads=1, isa="portable", read_bytes_per_s=1e9, int8_ops_per_s=4e10, float_ops_per_s=2e10)
MACHINE = HardwareProfile(
    name="small",
    num_devices=1,
    device=Device(
        name="one core",
        memory_bytes=1e9,
        memory_bytes_per_s=PEAKS.read_bytes_per_s,
        flops_per_s={"int8": PEAKS.int8_ops_per_s, "fp32": PEAKS.float_ops_per_s},
    ),
)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3"])
@pytest.mark.parametrize("step", STEPS)
def test_planned_and_measured_steps_have_one_bound(architecture: str, step: StepShape, tmp_path: Path) -> None:
    tiny = TinyModel(architecture=architecture, tensor_type=TensorType.Q8_0)  # type: ignore[arg-type]
    program, weights = load_model(open_checkpoint([write_tiny_model(tmp_path / "tiny.gguf", tiny)]))
    measured = bounds.step_work(program, step, weights, kv_value_bytes=2)
    shape = shape_of_program(program, "tiny", architecture)
    planned = step_work(shape, step, 34 / 32, FORMATS["fp16"])
    assert planned.linear_flops == measured.int8_ops
    assert planned.other_flops == measured.float_ops
    # norms and biases are float32 vectors in the file, and as wide as matrices in the planner's mean
    assert planned.memory_bytes == pytest.approx(measured.memory_bytes, rel=0.05)
    model = PricedModel(shape, WeightFormat("q8", 8.5, ("int8",)))
    bound_s = step_bound_s(deploy(model, MACHINE, Parallel(), Workload(prompt_tokens=9, output_tokens=9)), step)
    assert bound_s == pytest.approx(bounds.bound(measured, PEAKS).seconds, rel=0.05)


@pytest.mark.parametrize("step", STEPS)
def test_the_formula_counts_matrices_and_attention_as_the_program_does(step: StepShape) -> None:
    """It leaves out norms, rotations, activations and the softmax."""
    shape = shipped_model("llama-3-8b").shape
    program = step_work(shape, step, 2, FORMATS["bf16"])
    formula = step_work(replace(shape, program=None), step, 2, FORMATS["bf16"])
    assert formula.linear_flops == program.linear_flops
    assert formula.weight_bytes == program.weight_bytes
    assert formula.kv_bytes == program.kv_bytes
    assert 0 < formula.other_flops < program.other_flops


def test_experts_are_read_by_the_tokens_that_meet_them() -> None:
    shape, kv_format = shipped_model("mixtral-8x7b").shape, FORMATS["bf16"]
    read = [step_work(shape, decode_step(batch, 100), 2, kv_format).weight_bytes for batch in (1, 4, 1000)]
    experts = 2 * sum(matrix.num_parameters for matrix in shape.matrices() if matrix.num_experts == 8)
    assert read[0] == pytest.approx(read[2] - experts * 3 / 4, rel=1e-3)
    assert read[1] == pytest.approx(read[2] - experts * (3 / 4) ** 4, rel=1e-3)


def test_every_rank_reads_all_latent_vectors() -> None:
    machine, cut = hardware_named("h100x8"), Parallel(tp=8)
    short, long = (
        step_bound_s(deploy(shipped_model("deepseek-v3"), machine, cut, Workload()), decode_step(1, context))
        for context in (1000, 2000)
    )
    assert long - short == pytest.approx(1000 * 61 * 576 * 2 / 3.35e12)


def test_ranks_shorten_a_step_and_stages_do_not() -> None:
    model, machine = shipped_model("llama-3-70b"), hardware_named("h100x8")
    cuts = (Parallel(tp=1), Parallel(tp=4), Parallel(tp=4, pp=2))
    one, four, staged = (step_bound_s(deploy(model, machine, cut, Workload()), decode_step(1, 2350)) for cut in cuts)
    assert one == pytest.approx(4 * four)
    assert staged == four
