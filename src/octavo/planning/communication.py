"""One step on many devices: collectives and their bytes, stages and their hand-offs, groups of devices."""

from octavo.model.program import Split
from octavo.planning.hardware import Interconnect
from octavo.planning.shape import ModelShape


def num_all_reduces(shape: ModelShape, tp: int) -> int:
    """Per step: one behind each block (attention, MLP) whose last matrix is cut by rows; all experts of a layer share
    theirs. The tables' are not counted."""
    if tp == 1:
        return 0
    blocks = ({m.block for m in layer.matrices if m.split is Split.ROW} for layer in shape.layers)
    return sum(len(names) for names in blocks)


def all_reduce_bytes(num_tokens: int, hidden_size: int, value_bytes: int = 2) -> int:
    """Payload of one: a hidden state for each token of the step."""
    return num_tokens * hidden_size * value_bytes


def step_all_reduce_bytes(shape: ModelShape, tp: int, num_tokens: int, value_bytes: int = 2) -> int:
    """Payload of all of a step's."""
    return num_all_reduces(shape, tp) * all_reduce_bytes(num_tokens, shape.hidden_size, value_bytes)


def ring_bytes_per_device(payload_bytes: float, tp: int) -> float:
    """What each device sends in a ring: a reduce-scatter and an all-gather (Patarasuk, Yuan 2009)."""
    return 2 * (tp - 1) / tp * payload_bytes


def all_reduces_s(num_collectives: int, payload_bytes: float, tp: int, link: Interconnect) -> float:
    """Time of a step's all-reduces one after the other: a latency each, and the bytes over the link. Small ones cost
    their latency.

    Args:
        payload_bytes: of one.
    """
    each_s = link.all_reduce_latency_s + ring_bytes_per_device(payload_bytes, tp) / link.bytes_per_s
    return num_collectives * each_s


def layers_per_stage(num_layers: int, pp: int) -> float:
    """On average; stages differ by one where it does not divide."""
    return num_layers / pp


def num_stage_handoffs(pp: int) -> int:
    """Transfers of hidden states between stages, per step."""
    return pp - 1


def num_devices_of_experts(tp: int, ep: int) -> int:
    """If each expert is cut by `tp` and experts are spread over `ep` groups. Engines whose expert group IS the product
    of tensor and data parallel ranks have `tp * dp` devices instead: ask which one is meant."""
    return tp * ep


def attention_tp_size(tp: int, dp: int, cp: int = 1) -> int:
    """Ranks that share one request's attention, where data and context parallel groups divide the tensor group."""
    return tp // dp // cp
