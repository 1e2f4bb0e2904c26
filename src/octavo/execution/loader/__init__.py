"""Model files on disk as checkpoints: named tensors over mapped memory, and metadata."""

from octavo.execution.loader.checkpoint import Checkpoint, TensorInfo
from octavo.execution.loader.open import open_checkpoint

__all__ = ["Checkpoint", "TensorInfo", "open_checkpoint"]
