"""`--config FILE.yaml`: defaults for a command's options."""

from pathlib import Path
from typing import Any

import typer

from octavo.errors import ConfigError

CONFIG_OPTION = "config_file"


def read_config_file(context: typer.Context, path: Path | None) -> Path | None:
    """Makes a file's entries the defaults of a command's options and arguments. Names are spelled as flags, with `-`
    or `_`.

    Raises:
        ConfigError: the file cannot be read, is no mapping, or names an option that the command does not have.
    """
    if path is None or context.resilient_parsing:
        return path
    known = {parameter.name: parameter for parameter in context.command.params if parameter.name != CONFIG_OPTION}
    defaults: dict[str, Any] = {}
    for key, value in _read(path).items():
        name = str(key).replace("-", "_")
        if name not in known:
            listed = ", ".join(sorted(str(option) for option in known))
            raise ConfigError("--config", str(path), f"unknown entry {key!r}; this command knows {listed}")
        alone = known[name].multiple and isinstance(value, str)
        defaults[name] = [value] if alone else value
    context.default_map = {**(context.default_map or {}), **defaults}
    return path


def _read(path: Path) -> dict[Any, Any]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError("--config", str(path), f"cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = " ".join(str(error).split())
        raise ConfigError("--config", str(path), f"is no valid YAML: {where}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError("--config", str(path), "must hold one mapping of option names to values")
    return content
