"""What a quantisation method is to the registry."""

from typing import Protocol

from octavo.execution.quant_methods.matrices import PackedWeights
from octavo.execution.quant_methods.tensors import Tensors
from octavo.model.fields import Fields


class QuantMethod(Protocol):
    """A way in which files hold quantised weights."""

    @property
    def names(self) -> tuple[str, ...]:
        """Values of `quant_method` that it answers to."""
        ...

    def find(self, config: Fields, tensors: Tensors) -> PackedWeights:
        """The weights that stand quantised in the checkpoint; reads shapes and types, no weights.

        Args:
            config: the contents of `quantization_config`.

        Raises:
            UnsupportedModelError: a setting that is not computed; names field and value.
            ModelFileError: tensors that are missing, or of a type or shape that the settings do not allow; names them.
        """
        ...
