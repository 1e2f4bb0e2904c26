"""Model files made of other model files: another number format, another file format, the same model."""

from octavo.conversion.quantise import Conversion, quantise_model

__all__ = ["Conversion", "quantise_model"]
