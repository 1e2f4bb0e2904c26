"""What a figure was measured on."""

import importlib.metadata
import platform
import resource
import sys
from typing import Any

import octavo
from octavo.platform.cpu import describe_machine


def hardware() -> dict[str, Any]:
    """Processor, cores and memory."""
    machine = describe_machine()
    return {
        "cpu": machine.model_name,
        "usable_cores": machine.usable_cores,
        "memory_bytes": machine.total_memory_bytes,
        "system": platform.platform(),
    }


def versions() -> dict[str, str]:
    """Of Octavo and what it computes with."""
    return {
        "octavo": octavo.__version__,
        "python": platform.python_version(),
        "numpy": importlib.metadata.version("numpy"),
    }


def peak_memory_bytes() -> int:
    """Largest resident size of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
