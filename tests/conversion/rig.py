"""Tiny models to convert, and conversions with all defaults."""

from pathlib import Path
from typing import Any

from octavo.conversion import Conversion, quantise_model
from octavo.conversion.plan import Source
from octavo.execution.quant import TensorType
from octavo.execution.quant.recipe import Recipe
from octavo.hub.local import local_model

WIDE: dict[str, Any] = {"hidden": 256, "intermediate": 512, "heads": 4, "kv_heads": 2, "head_dim": 64, "layers": 1}
"""Sizes whose rows are whole blocks of every format."""


def source_of(path: Path) -> Source:
    files = local_model(str(path), path)
    return Source(files.name, files.folder, files.files)


def converted(path: Path, to: str, output: Path, **options: Any) -> Conversion:
    types = {name: TensorType[options.pop(name)] for name in ("output_type", "embedding_type") if name in options}
    recipe = Recipe(TensorType[to], types.get("output_type"), types.get("embedding_type"))
    return quantise_model(source_of(path), recipe, output, **options)
