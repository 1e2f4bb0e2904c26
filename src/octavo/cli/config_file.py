"""`--config FILE.yaml`: defaults for a command's options. What is wrong there is told with file, line and entry."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from octavo.errors import ConfigError

CONFIG_OPTION = "config_file"


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
    known = {parameter.name: parameter for parameter in context.command.params if parameter.name != CONFIG_OPTION}
    defaults: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for entry in _read(path):
        if entry.name not in known:
            listed = ", ".join(sorted(str(option) for option in known))
            raise ConfigError("--config", str(path), f"line {entry.line}: unknown entry; this command knows {listed}")
        if entry.name in lines:
            raise ConfigError(entry.place, entry.value, f"stands in line {lines[entry.name]} already")
        lines[entry.name] = entry.line
        alone = known[entry.name].multiple and isinstance(entry.value, str)
        defaults[entry.name] = [entry.value] if alone else entry.value
        _check_value(context, known[entry.name], entry, defaults[entry.name])
    context.default_map = {**(context.default_map or {}), **defaults}
    return ConfigFile(path, lines)


def _check_value(context: typer.Context, parameter: Any, entry: _Entry, value: Any) -> None:
    """YAML has types of its own, and takes some words for them: what would be turned into something else is refused.

    Raises:
        ConfigError: the option cannot take the value.
    """
    if value is None:
        return
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
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        where = " ".join(str(error).split())
        raise ConfigError("--config", str(path), f"is no valid YAML: {where}") from None
    if content is None:
        return []
    if not isinstance(content, dict) or not isinstance(root, yaml.MappingNode):
        raise ConfigError("--config", str(path), "must hold one mapping of option names to values")
    return [_entry(path, key, content) for key, _ in root.value]


def _entry(path: Path, key: Any, content: dict[Any, Any]) -> _Entry:
    spelled, line = str(key.value), key.start_mark.line + 1
    value = next((value for name, value in content.items() if str(name) == spelled), None)
    return _Entry(spelled.replace("-", "_"), value, f"{path}, line {line}: {spelled}", line)
