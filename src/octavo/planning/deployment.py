"""A model on a machine, cut in some way, under some load; and the quantities that most answers start from."""

from dataclasses import dataclass

from octavo.errors import ConfigError
from octavo.planning import kv, parameters, roofline
from octavo.planning.hardware import HardwareProfile
from octavo.planning.models import PricedModel
from octavo.planning.shape import ModelShape
from octavo.planning.workload import Parallel, Workload

_FLOAT_OPERANDS = ("bf16", "fp32")
"""What attention and norms compute with, whatever the weights' format."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One question to the ledger, checked by `deploy`."""

    model: PricedModel
    hardware: HardwareProfile
    tp: int
    pp: int
    workload: Workload
    draft: "Deployment | None" = None
    """A model that drafts for this one, on the same machine."""

    @property
    def shape(self) -> ModelShape:
        return self.model.shape

    @property
    def num_devices(self) -> int:
        return self.tp * self.pp

    @property
    def kv_format(self) -> kv.KVFormat:
        return kv.FORMATS[self.workload.kv_cache_dtype]

    @property
    def bytes_per_weight(self) -> float:
        return self.model.weights.bytes_per_weight

    @property
    def bytes_per_active_weight(self) -> float:
        """Bytes of a full step's weights for each parameter that one of its tokens meets: with experts, those of
        others are read, too."""
        return self.bytes_per_weight * self.num_parameters / parameters.num_active_parameters(self.shape)

    @property
    def operands(self) -> str:
        """What linears multiply with."""
        return self.hardware.first_operands(self.model.weights.operands)

    @property
    def linear_flops_per_s(self) -> float:
        """Of one device, with the linears' operands."""
        return self.hardware.device.peak(self.operands)

    @property
    def float_flops_per_s(self) -> float:
        """Of one device, for what is no linear."""
        return self.hardware.device.peak(self.hardware.first_operands(_FLOAT_OPERANDS))

    @property
    def bytes_per_s(self) -> float:
        """Of one device's memory."""
        return self.hardware.device.memory_bytes_per_s

    @property
    def num_parameters(self) -> int:
        return parameters.num_parameters(self.shape)

    @property
    def weight_bytes(self) -> float:
        return parameters.weight_bytes(self.num_parameters, self.model.weights.bits_per_weight)

    @property
    def weight_bytes_per_device(self) -> float:
        """On the fullest device."""
        count = parameters.num_parameters_per_device(self.shape, self.tp, self.pp)
        return parameters.weight_bytes(count, self.model.weights.bits_per_weight)

    @property
    def token_bytes(self) -> float:
        """KV of one token."""
        return kv.kv_bytes_per_token(self.shape, self.kv_format)

    @property
    def token_bytes_per_device(self) -> float:
        """KV of one token, on the fullest device."""
        return kv.kv_bytes_per_token_per_device(self.shape, self.kv_format, self.tp, self.pp)

    @property
    def request_bytes(self) -> float:
        """KV of a request at its end."""
        return kv.kv_bytes(self.shape, self.workload.total_tokens, self.kv_format)

    @property
    def request_bytes_per_device(self) -> float:
        """On the fullest device."""
        return self.request_bytes * self.token_bytes_per_device / self.token_bytes

    @property
    def pool_bytes_per_device(self) -> float:
        """What the fullest device leaves for KV; below 0 where not even the weights fit."""
        usable = self.workload.memory_share * self.hardware.device.memory_bytes
        return usable - self.weight_bytes_per_device

    @property
    def ridge(self) -> float:
        """FLOP per byte, of the linears' operands."""
        return roofline.ridge_flops_per_byte(self.linear_flops_per_s, self.bytes_per_s)

    @property
    def boundary_tokens(self) -> float:
        """Tokens per step from which on linears are bound by arithmetic."""
        return roofline.boundary_tokens(self.ridge, self.bytes_per_active_weight)


def deploy(model: PricedModel, hardware: HardwareProfile, parallel: Parallel, workload: Workload) -> Deployment:
    """Checks that a model can be cut so and a request of it be that long.

    Raises:
        ConfigError: names the field, its value and what would do.
    """
    shape, most = model.shape, hardware.num_devices
    heads = min(layer.num_heads for layer in shape.layers)
    if not 1 <= parallel.pp <= min(most, shape.num_layers):
        raise ConfigError("pp", parallel.pp, f"must be from 1 to {min(most, shape.num_layers)} on {hardware.name}")
    fitting = [tp for tp in range(1, most // parallel.pp + 1) if heads % tp == 0]
    tp = fitting[-1] if parallel.tp is None else parallel.tp
    if tp not in fitting:
        choices = ", ".join(str(choice) for choice in fitting)
        problem = f"{heads} attention heads on {most} devices with pp={parallel.pp} can be cut into {choices}"
        raise ConfigError("tp", tp, problem)
    if workload.total_tokens > shape.max_positions:
        room = f"the model has {shape.max_positions} positions, output_tokens={workload.output_tokens} of them"
        problem = f"{room} for the answer; ask for at most {shape.max_positions - workload.output_tokens}"
        raise ConfigError("prompt_tokens", workload.prompt_tokens, problem)
    return Deployment(model=model, hardware=hardware, tp=tp, pp=parallel.pp, workload=workload)
