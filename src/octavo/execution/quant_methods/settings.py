"""What `quantization_config` may say: every field is computed with, or known to change nothing, or refused by name."""

import re
from collections.abc import Collection, Sequence

from octavo.errors import UnsupportedModelError
from octavo.model.fields import Fields

_NOTHING: tuple[object, ...] = (None, False, "", {}, [], ())


WEIGHTS_ONLY: dict[str, tuple[object, ...]] = {"data_type": ("int",), "act_bits": (16, 32)}
"""What AutoRound adds to other tools' settings, with the values under which these say all."""
SEARCH = (
    *("autoround_version", "provider", "iters", "nsamples", "seqlen", "lr", "minmax_lr", "gradient_accumulate_steps"),
    *("amp", "low_gpu_mem_usage", "to_quant_block_names", "enable_quanted_input", "enable_minmax_tuning"),
    *("enable_norm_bias_tuning", "scale_dtype", "act_group_size", "act_sym", "act_dynamic", "act_data_type"),
)
"""How AutoRound found codes that are stored as other tools do, and what it says of activations that stay floats."""


def require_weights_only(fields: Fields) -> None:
    """Raises UnsupportedModelError where AutoRound's settings ask for other numbers than the file's tool knows."""
    for key, values in WEIGHTS_ONLY.items():
        fields.accept(key, *values)


def refuse_others(fields: Fields, known: Collection[str]) -> None:
    """Raises UnsupportedModelError for a field that has a value and is not among those known."""
    for key, value in fields.values.items():
        if key not in known and not any(type(value) is type(nothing) and value == nothing for nothing in _NOTHING):
            raise unsupported(
                fields,
                key,
                "is a setting that Octavo does not know. If it says nothing about how weights are stored or computed,"
                " take it out of config.json",
            )


def one_of(fields: Fields, key: str, values: Sequence[str], default: str) -> str:
    """The text at `key` in lower case. Raises UnsupportedModelError where it is none of `values`."""
    value = fields.text(key, default).lower()
    if value not in values:
        raise unsupported(fields, key, f"is not supported; supported: {', '.join(values)}")
    return value


def whole_number(fields: Fields, key: str, values: Sequence[int], default: int | None = None) -> int:
    """The integer at `key`. Raises UnsupportedModelError where it is none of `values`."""
    value = fields.integer(key, -1, 1 << 20, default)
    if value not in values:
        raise unsupported(fields, key, f"is not supported; supported: {', '.join(map(str, values))}")
    return value


def group_size(fields: Fields, key: str = "group_size", default: int | None = None) -> int:
    """Inputs that share a scale, or -1: all of a row."""
    size = fields.integer(key, -1, 1 << 20, default)
    if size == 0:
        raise fields.error(key, "is no number of inputs: it must be positive, or -1 for all")
    return size


def unsupported(fields: Fields, key: str, problem: str) -> UnsupportedModelError:
    """Names field and value."""
    value = fields.values.get(fields.prefix + key)
    return UnsupportedModelError(f"{fields.path}: {fields.prefix}{key}={value!r:.120} {problem}")


_REGEX = "re:"
_MAX_UNBOUNDED = 4
_UNBOUNDED = re.compile(r"(?<!\\)[*+{]")
_REPEATED_GROUP = re.compile(r"\)[*+{]")


class ModuleNames:
    """Names of modules as compressed-tensors lists them: in full, or as `re:` and a pattern of its beginning.

    Patterns come with a model, so only those that match in bearable time are taken: no repeated group, and at most
    four repetitions.
    """

    def __init__(self, fields: Fields, key: str) -> None:
        listed = fields.items(key) if fields.has(key) else []
        self._names = {str(name) for name in listed if not str(name).startswith(_REGEX)}
        self._patterns = [_pattern(fields, key, str(name)) for name in listed if str(name).startswith(_REGEX)]

    def __contains__(self, module: str) -> bool:
        return module in self._names or any(pattern.match(module) for pattern in self._patterns)

    def names(self, name: str) -> bool:
        """Whether this very word is listed (classes are, as `Linear`)."""
        return name in self._names


def _pattern(fields: Fields, key: str, listed: str) -> re.Pattern[str]:
    text = listed.removeprefix(_REGEX)
    if _REPEATED_GROUP.search(text) or len(_UNBOUNDED.findall(text)) > _MAX_UNBOUNDED:
        raise unsupported(fields, key, f"holds {listed!r:.80}, which may match forever: list the modules by name")
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise unsupported(fields, key, f"holds {listed!r:.80}, which is no regular expression: {error}") from error
