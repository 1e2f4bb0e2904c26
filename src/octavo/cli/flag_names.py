"""Errors about settings in the words of the command line: `--kv-disk-size`, not `kv_disk_size_bytes`."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from octavo.errors import ConfigError, InvalidRequestError


@contextmanager
def named_as_typed(
    fields: Iterable[str],
    other_names: Mapping[str, Sequence[str]],
    place_of: Callable[[str], str | None] = lambda _: None,
) -> Iterator[None]:
    """Around a command: an error that names fields leaves naming flags.

    Args:
        fields: those that are flags of this command.
        other_names: field -> further spellings of its flag.
        place_of: field -> its entry in a configuration file, if it has one.

    Raises:
        ConfigError: as raised inside, in other words; so does an InvalidRequestError of a field that is a flag.
    """
    try:
        yield
    except (ConfigError, InvalidRequestError) as error:
        flags = {name: _as_typed(name, other_names.get(name, ()), place_of(name)) for name in fields}
        if isinstance(error, InvalidRequestError) and error.field not in flags:
            raise
        raise _renamed(error, flags) from error


def flag_of(field: str) -> str:
    """The usual spelling."""
    return "--" + field.replace("_", "-")


def _as_typed(field: str, others: Sequence[str], place: str | None) -> str:
    """The spelling that stands on the command line, else the place in a file, else the usual one."""
    usual = flag_of(field)
    typed = {word.partition("=")[0] for word in sys.argv[1:]}
    return usual if usual in typed else next((name for name in others if name in typed), place or usual)


def _renamed(error: ConfigError | InvalidRequestError, flags: Mapping[str, str]) -> ConfigError:
    """In the problem only names with an underscore, and those in backquotes, are surely names: port is also a word."""
    outer, _, key = error.field.partition(".")
    if key and outer in flags:  # a key of a mapping, whose keys are not spelled as flags
        return ConfigError(f"{flags[outer]} {key}", error.value, error.problem)
    names = [re.escape(name) for name in flags if "_" in name]
    quoted = "|".join(re.escape(name) for name in sorted(flags, key=len, reverse=True))
    problem = re.sub(rf"`({quoted})`", lambda found: flags[found[1]], error.problem) if flags else error.problem
    if names:
        pattern = rf"(?<![\w.-])({'|'.join(sorted(names, key=len, reverse=True))})(?!\w)"
        problem = re.sub(pattern, lambda found: flags[found[1]], problem)
    return ConfigError(flags.get(error.field, error.field), error.value, problem)
