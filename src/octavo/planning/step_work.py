"""What one step of a model has to do: arithmetic, weights read, KV read and written.

Programs are priced op by op, so what is counted is what runs. Other models are priced by their matrices; norms,
rotations and activations, which move nothing but what caches hold, are left out there, and latent attention is counted
as if keys and values of all heads were made.
"""

from dataclasses import dataclass
from math import prod

from octavo.model.cost import StepShape, cost, program_cost
from octavo.model.dataflow import multiplied_weight
from octavo.model.expert_use import expected_experts
from octavo.model.program import Program
from octavo.planning.deployment import Deployment
from octavo.planning.kv import KVFormat, kv_bytes_per_token_per_device, kv_bytes_per_token_per_layer
from octavo.planning.roofline import compute_bound_s, memory_bound_s
from octavo.planning.shape import Layer, Matrix, ModelShape
from octavo.visible_pairs import visible_pairs


@dataclass(frozen=True)
class StepWork:
    """Of all devices together."""

    linear_flops: int
    other_flops: int
    weight_bytes: float
    kv_bytes: float

    @property
    def flops(self) -> int:
        return self.linear_flops + self.other_flops

    @property
    def memory_bytes(self) -> float:
        return self.weight_bytes + self.kv_bytes


def prefill_step(num_tokens: int) -> StepShape:
    """A whole prompt in one step, with the logits of its last token."""
    return StepShape(scheduled=(num_tokens,), contexts=(num_tokens,), rows=1)


def decode_step(num_requests: int, context: int, num_drafts: int = 0) -> StepShape:
    """One token of each request, and drafts behind it; afterwards `context` tokens are in the cache."""
    tokens = 1 + num_drafts
    return StepShape(scheduled=(tokens,) * num_requests, contexts=(context,) * num_requests, rows=tokens * num_requests)


def step_work(shape: ModelShape, step: StepShape, bytes_per_weight: float, kv_format: KVFormat) -> StepWork:
    """The work of a step.

    Args:
        bytes_per_weight: the mean over all weights.
    """
    kv_bytes = sum(_kv_bytes(layer, step, kv_format) for layer in shape.layers)
    if shape.program is None:
        weights = _touched_parameters(shape, step) * bytes_per_weight
        return StepWork(_linear_flops(shape, step), _attention_flops(shape, step), weights, kv_bytes)
    return _program_work(shape.program, step, bytes_per_weight, kv_bytes)


def step_bound_s(deployment: Deployment, step: StepShape) -> float:
    """Least time of a step: arithmetic and memory side by side, the slower one counts. Ranks share
    arithmetic and weights evenly, KV by heads; stages run after each other, so they shorten no single step."""
    work = step_work(deployment.shape, step, deployment.bytes_per_weight, deployment.kv_format)
    arithmetic_s = compute_bound_s(work.linear_flops, deployment.linear_flops_per_s, deployment.tp)
    arithmetic_s += compute_bound_s(work.other_flops, deployment.float_flops_per_s, deployment.tp)
    kv_share = (
        kv_bytes_per_token_per_device(deployment.shape, deployment.kv_format, deployment.tp) / deployment.token_bytes
    )
    device_bytes = work.weight_bytes / deployment.tp + work.kv_bytes * kv_share
    return max(arithmetic_s, memory_bound_s(device_bytes, deployment.bytes_per_s))


def _program_work(program: Program, step: StepShape, bytes_per_weight: float, kv_bytes: float) -> StepWork:
    sizes = {weight.name: prod(weight.shape) for weight in program.weights.values()}
    costs = [(op, cost(op, program, step, sizes, kv_value_bytes=0)) for op in program.ops]
    between_ops = program_cost(program, step, dict.fromkeys(sizes, 0), kv_value_bytes=0).bytes
    values_read = sum(each.bytes for _, each in costs) - between_ops
    linear_flops = sum(each.flops for op, each in costs if multiplied_weight(op) is not None)
    other_flops = sum(each.flops for _, each in costs) - linear_flops
    return StepWork(linear_flops, other_flops, values_read * bytes_per_weight, kv_bytes)


def _kv_bytes(layer: Layer, step: StepShape, kv_format: KVFormat) -> float:
    """Each sequence's context once, as far as it can be seen, and the step's tokens written."""
    pairs = list(zip(step.scheduled, step.contexts, strict=True))
    reach = layer.cache.reach
    read = sum(context if reach is None else min(context, tokens - 1 + reach) for tokens, context in pairs)
    return (read + step.tokens) * kv_bytes_per_token_per_layer(layer.cache, kv_format)


def _linear_flops(shape: ModelShape, step: StepShape) -> int:
    layers = sum(2 * matrix.num_active_parameters * step.tokens for matrix in shape.matrices())
    return layers + 2 * shape.num_embedding_parameters * step.rows


def _attention_flops(shape: ModelShape, step: StepShape) -> int:
    sequences = list(zip(step.scheduled, step.contexts, strict=True))
    return sum(
        visible_pairs(tokens, context, layer.cache.reach) * layer.num_heads * 2 * (layer.key_dim + layer.value_dim)
        for layer in shape.layers
        for tokens, context in sequences
    )


def _touched_parameters(shape: ModelShape, step: StepShape) -> float:
    """Everything but the experts that no token is routed to, and of the embedding table the rows of the tokens."""
    layers = sum(_touched(matrix, step.tokens) for matrix in shape.matrices())
    norms = sum(layer.num_norm_parameters for layer in shape.layers) + shape.num_final_norm_parameters
    return layers + norms + shape.num_embedding_parameters + step.tokens * shape.hidden_size


def _touched(matrix: Matrix, num_tokens: int) -> float:
    """Of experts, those that some token is expected to be routed to."""
    if matrix.num_active == matrix.num_experts:
        return matrix.num_parameters
    touched = expected_experts(matrix.num_experts, matrix.num_active, num_tokens)
    return matrix.num_parameters * touched / matrix.num_experts
