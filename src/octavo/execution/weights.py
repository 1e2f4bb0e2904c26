"""From a checkpoint to a program and its weights, in the number formats that executors compute with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, partial
from math import prod
from typing import Self

import numpy as np
import numpy.typing as npt

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.execution.loader import Checkpoint
from octavo.execution.quant import TensorType, dequantize
from octavo.execution.quant_methods import encode, packed_weights, tell_of_kv_scales
from octavo.execution.quant_methods.encode import Matrix
from octavo.execution.weight_parts import Bytes, ReadRows, StoredMatrix, in_native_type, matrix_part, vector_part
from octavo.model.dataflow import weights_of
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.program import Embed, EmbedPositions, Experts, Program, Weight
from octavo.model.registry import define_model
from octavo.model.sources import UnpermuteHeads, WeightSource

_ROPE_FACTORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
"""Settings of GGUF files that are stored as tensors."""
_WEIGHT = ".weight"
_NAMED_AT_MOST = 8
"""Tensors that an error message lists."""


@dataclass(frozen=True)
class LoadedWeight:
    """One weight of a program as an executor gets it: stored bytes and how to read them.

    Matrices keep the checkpoint's number format where it is native (`octavo.execution.quant.NATIVE_TYPES`) and are
    converted to a native one where not; vectors (norm weights, biases) are F32. What a weight is, is known; its bytes
    are a read-only view of the mapped file, or converted each time they are asked for and held by nobody else.
    """

    type: TensorType
    shape: tuple[int, ...]
    """As in the program: `[out, in]` or `[width]`."""
    rows: ReadRows
    """Some of its rows, in the order of the file; a vector is one row."""
    row_order: npt.NDArray[np.int32] | None = None
    """Output row -> stored row, `[out]`; None: the same."""
    input_order: npt.NDArray[np.int32] | None = None
    """Place in a stored row -> input, `[in]`; None: the same. Blocks of a format then hold inputs that are no
    neighbours, so activations are put in this order before they are rounded block by block."""
    mapped: bool = False
    """Whether `raw` is a view of a mapped file, whose pages can be given back and read again."""

    @classmethod
    def of(
        cls,
        kind: TensorType,
        shape: tuple[int, ...],
        raw: Bytes,
        row_order: npt.NDArray[np.int32] | None = None,
        input_order: npt.NDArray[np.int32] | None = None,
    ) -> Self:
        """A weight whose bytes are there."""
        return cls(kind, shape, raw.reshape(prod(shape[:-1]), -1).__getitem__, row_order, input_order)

    @property
    def num_rows(self) -> int:
        """Those that are stored."""
        return prod(self.shape[:-1])

    @property
    def raw(self) -> Bytes:
        """`[type.num_bytes(shape)]`: all stored rows, one after the other, read or converted now."""
        return self.rows(slice(0, self.num_rows)).reshape(-1)

    def float32(self) -> npt.NDArray[np.float32]:
        """The weight's exact values, in its shape and in output order."""
        stored = dequantize(self.type, self.raw, self.shape)
        values = stored if self.row_order is None else stored[self.row_order]
        return values if self.input_order is None else in_order(values, self.input_order)


def in_order(values: npt.NDArray[np.float32], input_order: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
    """Rows whose places hold these inputs, with each input in its own place."""
    placed = np.empty_like(values)
    placed[:, input_order] = values
    return placed


def load_model(checkpoint: Checkpoint, context: int | None = None) -> tuple[Program, dict[str, LoadedWeight]]:
    """Builds the program of a checkpoint and finds its weights, by canonical name. Nothing is converted yet.

    Args:
        context: longest context of this start; None: all that the model has.

    Raises:
        UnsupportedModelError: an unknown architecture, a feature its family does not compute, or tensors that the
            program has no use for (leaving them out would compute another model).
        ModelFileError: missing or absurd metadata, missing tensors, tensors of the wrong shape.
    """
    definition = define_model(replace(checkpoint_header(checkpoint), context=context))
    program = definition.program
    weights = read_weights(checkpoint, program.name, program.weights, definition.sources, definition.ignored_tensors)
    _check_orders(program, weights)
    return program, weights


def _check_orders(program: Program, weights: Mapping[str, LoadedWeight]) -> None:
    """Rows of an embedding are taken as they stand, and all experts of a layer read their inputs in one order."""
    for op in program.ops:
        kind = {Embed: "embedding table", EmbedPositions: "embedding table", Experts: "expert"}.get(type(op))
        ordered = [name for name in weights_of(op) if kind and weights[name].input_order is not None]
        if ordered:
            raise UnsupportedModelError(
                f"{program.name}: the {kind} {ordered[0]} is quantised with its inputs in another order (g_idx), which"
                " Octavo reads for linear layers only. Take a model that is quantised without desc_act"
            )


def read_weights(
    checkpoint: Checkpoint,
    name: str,
    weights: Mapping[str, Weight],
    sources: Mapping[str, WeightSource],
    ignored_tensors: Sequence[str],
) -> dict[str, LoadedWeight]:
    """The weights by name, each from its source.

    Args:
        name: of what they are for, in messages.
        ignored_tensors: patterns of tensors that may be left over.

    Raises:
        UnsupportedModelError, ModelFileError: as `load_model`.
    """
    header = checkpoint_header(checkpoint)
    _check_tensors(header, name, weights, sources)
    _check_left_over(header, name, sources, (*ignored_tensors, *_zero_biases(checkpoint, header, sources)))
    matrix = cache(_Matrices(checkpoint).find)
    return {weight: _load(checkpoint, matrix, sources[weight], spec) for weight, spec in weights.items()}


def checkpoint_header(checkpoint: Checkpoint) -> CheckpointHeader:
    """What the checkpoint says about itself, as plain data (arrays as tuples, the tokenizer left out)."""
    metadata = {key: _plain(value) for key, value in checkpoint.metadata.items() if not key.startswith("tokenizer.")}
    plain, short, long = (_divisors(checkpoint, name) for name in _ROPE_FACTORS)
    first = next(iter(checkpoint.tensors.values()), None)
    packed = packed_weights(checkpoint)
    shapes = {name: info.shape for name, info in checkpoint.tensors.items()}
    shapes |= {name: info.shape for name, info in checkpoint.code_tensors.items()}
    alone = {name: shape for name, shape in shapes.items() if name not in packed.hidden}
    return CheckpointHeader(
        path="checkpoint" if first is None else str(first.file),
        naming=Naming(checkpoint.format),
        metadata=metadata,
        shapes=alone | {name: weight.shape for name, weight in packed.weights.items()},
        rope_factors=plain,
        short_rope_factors=short,
        long_rope_factors=long,
    )


def _divisors(checkpoint: Checkpoint, name: str) -> tuple[float, ...] | None:
    return tuple(checkpoint.float32(name).reshape(-1).tolist()) if name in checkpoint.tensors else None


def _plain(value: object) -> object:
    return tuple(value.tolist()) if isinstance(value, np.ndarray) else value


def _check_tensors(
    header: CheckpointHeader, program: str, weights: Mapping[str, Weight], sources: Mapping[str, WeightSource]
) -> None:
    """Every weight has its tensor, of its shape."""
    missing = [sources[name].name for name in weights if sources[name].name not in header.shapes]
    if missing:
        raise ModelFileError(f"{header.path}: lacks tensors that {program} needs: {_listed(missing)}")
    wanted = [(sources[name].name, sources[name].stored_shape(weight.shape)) for name, weight in weights.items()]
    wrong = [
        f"{tensor} is {list(header.shapes[tensor])}, not {list(shape)}"
        for tensor, shape in dict.fromkeys(wanted)
        if header.shapes[tensor] != shape
    ]
    if wrong:
        raise ModelFileError(f"{header.path}: shapes do not fit the metadata: {_listed(wrong)}")


def _check_left_over(
    header: CheckpointHeader, program: str, sources: Mapping[str, WeightSource], ignored_tensors: Sequence[str]
) -> None:
    """No tensor is left over."""
    used = {source.name for source in sources.values()}
    left = [
        name
        for name in header.shapes
        if name not in used and not any(fnmatchcase(name, pattern) for pattern in ignored_tensors)
    ]
    if left:
        raise UnsupportedModelError(
            f"{header.path}: holds tensors that Octavo would leave out of {program}, so its answers"
            f" would be another model's: {_listed(left)}"
        )


def _zero_biases(checkpoint: Checkpoint, header: CheckpointHeader, sources: Mapping[str, WeightSource]) -> list[str]:
    """Biases that add nothing to matrices which have none in the program: early GPTQ tools wrote them everywhere."""
    used = {source.name for source in sources.values()}
    matrices = (name for name in used if name.endswith(_WEIGHT) and len(header.shapes[name]) == 2)
    biases = [f"{name.removesuffix(_WEIGHT)}.bias" for name in matrices]
    spare = [name for name in biases if name in checkpoint.tensors and name not in used]
    return [name for name in spare if not checkpoint.float32(name).any()]


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED_AT_MOST
    return ", ".join(names[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


def _load(
    checkpoint: Checkpoint, matrix: Callable[[str], StoredMatrix], source: WeightSource, weight: Weight
) -> LoadedWeight:
    if len(weight.shape) == 1:
        _require_floats(checkpoint, source.name)
        return _vector(checkpoint.float32(source.name), source, weight)
    stored = matrix_part(matrix(source.name), source.transform, weight.shape)
    part, order = in_native_type(stored, weight.shape[1]), _row_order(source, weight)
    return LoadedWeight(part.type, weight.shape, part.rows, order, part.input_order, part.mapped)


class _Matrices:
    """Finds the matrices of a checkpoint. Once another one is read, memory is let go of that the last one took: codes,
    scales, pages of its file. What it finds holds it, and not the other way round: when the weights go, all goes, also
    where garbage is not collected."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        found = packed_weights(checkpoint)
        tell_of_kv_scales(found)
        self._checkpoint = checkpoint
        self._packed = found.weights
        self._tensors: tuple[str, ...] = ()
        """Those of the matrix that was read last."""
        self._unpacked: tuple[str, Matrix] | None = None
        """Parts of a fused tensor, and pieces of one weight, are asked for one after the other."""

    def find(self, name: str) -> StoredMatrix:
        """The matrix of this name, whose rows are read when they are asked for."""
        if name in self._packed:
            return encode(name, partial(self._read_packed, name))
        _require_floats(self._checkpoint, name)
        info = self._checkpoint.tensors[name]
        stored = StoredMatrix.of(name, info.type, info.shape, self._checkpoint.raw(name), mapped=True)

        def rows(which: slice) -> Bytes:
            self._turn_to((name,))
            return stored.rows(which)

        return replace(stored, rows=rows)

    def _read_packed(self, name: str) -> Matrix:
        last = self._unpacked
        if last is None or last[0] != name:
            self._turn_to(self._packed[name].tensors)
            self._unpacked = last = name, self._packed[name].read()
        return last[1]

    def _turn_to(self, tensors: tuple[str, ...]) -> None:
        """These are read next."""
        if tensors == self._tensors:
            return
        for name in self._tensors:
            self._checkpoint.give_back(name)
        self._tensors, self._unpacked = tensors, None


def _require_floats(checkpoint: Checkpoint, name: str) -> None:
    """No weight is made of whole numbers that nothing says how to read."""
    if name in checkpoint.code_tensors:
        info = checkpoint.code_tensors[name]
        problem = f"tensor {name!r} is stored as {info.stored}, and config.json does not say how to read that"
        raise UnsupportedModelError(f"{info.file}: {problem}")


def _vector(values: npt.NDArray[np.float32], source: WeightSource, weight: Weight) -> LoadedWeight:
    values = vector_part(values, source.transform)
    return LoadedWeight.of(TensorType.F32, weight.shape, values.view(np.uint8), _row_order(source, weight))


def _row_order(source: WeightSource, weight: Weight) -> npt.NDArray[np.int32] | None:
    if not isinstance(source.transform, UnpermuteHeads):
        return None
    order = np.array(source.transform.row_order(), np.int32)
    if len(order) != weight.shape[0]:
        raise ValueError(f"{source} orders {len(order)} rows, {weight} has {weight.shape[0]}")
    return order


def weight_bytes(weights: Mapping[str, LoadedWeight]) -> dict[str, int]:
    """Bytes of each weight in the format it is computed with, for `octavo.model.cost`."""
    return {name: weight.type.num_bytes(weight.shape) for name, weight in weights.items()}
