"""`--config FILE.yaml`: defaults for a command's options. What is wrong there is told with file, line and entry."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from octavo.cli.flag_names import flag_of
from octavo.cli.usage_errors import what_was_meant
from octavo.errors import ConfigError

CONFIG_OPTION = "config_file"
OFF = "off"
OFF_IS_A_WORD = frozenset({"speculation"})
"""Options of which it is a value, where YAML would read it as false."""


@dataclass(frozen=True)
class ConfigFile:
    """A file that has been read: where the entry of each option stands."""

    path: Path
    line_by_name: dict[str, int]

    def place(self, name: str) -> str | None:
        """An option's entry, for error messages; None: it has none."""
        line = self.line_by_name.get(name)
        return None if line is None else f"{self.path}, line {line}: {name}"


@dataclass(frozen=True)
class _Entry:
    name: str
    """As the command knows the option."""
    value: Any
    place: str
    """File, line and key, as the user spelled it."""
    line: int


def read_config_file(context: typer.Context, path: Path | None) -> ConfigFile | None:
    """Makes a file's entries the defaults of a command's options and arguments. Names are spelled as flags, with `-`
    or `_`.

    Raises:
        ConfigError: the file cannot be read, is no mapping, holds an entry twice, names an option that the command does
            not have, or a value that this cannot take.
    """
    if path is None or context.resilient_parsing:
        return None
    known = _by_spelling(context.command.params)
    defaults: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for entry in _read(path):
        if entry.name not in known:
            raise ConfigError(entry.place, entry.value, _no_such(entry.name, known))
        parameter = known[entry.name]
        name = str(parameter.name)
        if name in lines:
            raise ConfigError(entry.place, entry.value, f"stands in line {lines[name]} already")
        lines[name] = entry.line
        alone = parameter.multiple and isinstance(entry.value, str)
        defaults[name] = [entry.value] if alone else entry.value
        _check_value(context, parameter, entry, defaults[name])
    context.default_map = {**(context.default_map or {}), **defaults}
    return ConfigFile(path, lines)


def _by_spelling(parameters: Iterable[Any]) -> dict[str, Any]:
    """The options and arguments by each of their long names, with `_`."""
    known: dict[str, Any] = {}
    for parameter in parameters:
        flags = [flag.removeprefix("--") for flag in parameter.opts if flag.startswith("--")]
        known |= {name.replace("-", "_"): parameter for name in (parameter.name, *flags)}
    del known[CONFIG_OPTION], known["config"]
    return known


def _no_such(name: str, known: Iterable[str]) -> str:
    spelled = [one.replace("_", "-") for one in known]
    hint = what_was_meant(name.replace("_", "-"), spelled, flag_of(name))
    return f"no such flag; {hint or '--help has all of them'}"


def _check_value(context: typer.Context, parameter: Any, entry: _Entry, value: Any) -> None:
    """YAML has types of its own, and takes some words for them: what would be turned into something else is refused.

    Raises:
        ConfigError: the option cannot take the value.
    """
    if value is None or value == []:
        raise ConfigError(entry.place, value, "is empty; give a value, or take the entry out")
    takes_mapping = parameter.metavar == "JSON"
    if (isinstance(value, dict) and not takes_mapping) or (isinstance(value, list) and not parameter.multiple):
        raise ConfigError(entry.place, value, "must be one value")
    try:
        taken = parameter.process_value(context, value)
    except typer.BadParameter as error:
        problem = error.message.removeprefix("Value error, ").replace("Input should be", "must be").rstrip(".")
        raise ConfigError(entry.place, value, problem) from None
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, bool) and not isinstance(taken, bool):
            raise ConfigError(entry.place, one, "is true or false in YAML; put quotes around a word")
    if isinstance(value, float) and isinstance(taken, int) and taken != value:
        raise ConfigError(entry.place, value, "must be a whole number")


def _read(path: Path) -> list[_Entry]:
    import yaml

    try:
        text = path.read_text()
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except OSError as error:
        raise ConfigError("--config", str(path), f"cannot be read ({error.strerror})") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        raise ConfigError("--config", str(path), f"is no valid YAML: {where}{error.problem}") from None
    except yaml.reader.ReaderError as error:
        problem = f"character {error.position + 1}: {error.reason}"
        raise ConfigError("--config", str(path), f"is no valid YAML: {problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError("--config", str(path), f"is no valid YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return []
    if not isinstance(content, dict) or not isinstance(root, yaml.MappingNode):
        raise ConfigError("--config", str(path), "must hold one mapping of option names to values")
    return [_entry(path, key, text, content) for key, text in root.value]


def _entry(path: Path, key: Any, text: Any, content: dict[Any, Any]) -> _Entry:
    """
    Args:
        key, text: the key and the value as they are written.
        content: what YAML makes of all entries.
    """
    spelled, line = str(key.value), key.start_mark.line + 1
    name = spelled.replace("-", "_")
    value = next((value for name, value in content.items() if str(name) == spelled), None)
    if value is False and name in OFF_IS_A_WORD and text.value.lower() == OFF:
        value = OFF
    return _Entry(name, value, f"{path}, line {line}: {spelled}", line)
