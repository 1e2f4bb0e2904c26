"""Activations by the names that config.json has for them."""

from octavo.errors import UnsupportedModelError
from octavo.model.fields import Fields
from octavo.model.program import Activation

_BY_NAME = {
    "gelu": Activation.GELU,
    "gelu_fast": Activation.GELU_TANH,
    "gelu_new": Activation.GELU_TANH,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "relu": Activation.RELU,
    "silu": Activation.SILU,
    "swish": Activation.SILU,
}


def hf_activation(fields: Fields, key: str, default: str) -> Activation:
    """The activation that `key` names.

    Raises:
        UnsupportedModelError: none that Octavo computes.
    """
    name = fields.text(key, default=default)
    if name not in _BY_NAME:
        raise UnsupportedModelError(
            f"{fields.path}: {key}={name!r:.120} is an activation that Octavo does not compute; it computes"
            f" {', '.join(_BY_NAME)}"
        )
    return _BY_NAME[name]
