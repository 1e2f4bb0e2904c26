"""Options made from the config dataclasses: their names, types, defaults and docstrings are the one source."""

import ast
import functools
import inspect
import itertools
import json
import operator
import os
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, fields
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.models import OptionInfo

from octavo import sizes
from octavo.cli.config_file import CONFIG_OPTION, read_config_file
from octavo.cli.flag_names import flag_of, named_as_typed
from octavo.config import choices
from octavo.errors import ConfigError

Settings = dict[str, Any]
"""Field name -> value, only of flags that were given."""
Result = TypeVar("Result")

EXTRA_NAMES = {
    "model": ("-m",),
    "num_kv_blocks": ("--num-gpu-blocks-override",),
    "kv_disk_size_bytes": ("--kv-disk-size",),
    "api_server_count": ("-asc",),
    "prompt_tokens": ("--prompt",),
    "output_tokens": ("--output",),
}
"""Other spellings of a flag: short ones, and vLLM's where ours differs."""
SECRETS = {"api_key": "OCTAVO_API_KEY", "admin_key": "OCTAVO_ADMIN_KEY"}
"""What should not stand on a command line."""
ENVIRONMENT = SECRETS | {"otlp_traces_endpoint": "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"}
"""Fields that an environment variable can set: secrets, and what everybody else takes from there, too."""

EXAMPLES = {"speculative_config": '{"method": "ngram"}', "extra_body": '{"top_p": 0.9}'}
"""Of each field that is a mapping, for whoever writes it otherwise."""

_METAVARS: dict[Any, str] = {str: "TEXT", int: "N", float: "NUMBER"}
"""What help shows for a value: words, not names of Python's types."""


def parse_size(text: object) -> int:
    """Bytes of `2GiB`, `512MB`, `1.5GiB` or `1048576`.

    Raises:
        typer.BadParameter: anything else.
    """
    try:
        return sizes.parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def mapping_parser(example: str) -> Callable[[object], dict[str, Any]]:
    """What reads an object of JSON, as text or read already, and raises `typer.BadParameter` with the example at
    anything else."""

    def parse_mapping(text: object) -> dict[str, Any]:
        try:
            value = json.loads(text) if isinstance(text, str) else text
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise typer.BadParameter(f"{str(text)!r} is no JSON object; write it like '{example}'")
        return value

    return parse_mapping


def with_settings(
    *configs: type, leave_out: frozenset[str] = frozenset()
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Decorates a command: gives it an option per field of the dataclasses and `--config`, and collects those that
    were given in its parameter `settings`.

    Args:
        leave_out: fields that this command sets itself.
    """
    options = {
        config_field.name: _option(config_field, docs[config_field.name])
        for config in configs
        for docs in [field_docs(config)]
        for config_field in fields(config)
        if config_field.name not in leave_out
    }

    def decorate(command: Callable[..., Result]) -> Callable[..., Result]:
        def run(**given: Any) -> Result:
            file = given.pop(CONFIG_OPTION)
            settings = {name: given.pop(name) for name in options}
            present = {name: _plain(value) for name, value in settings.items() if value not in (None, [])}
            _refuse_empty_variables(name for name in options if name not in present)
            place_of = _nowhere if file is None else file.place
            with named_as_typed([*options, *own_flags], EXTRA_NAMES, place_of):
                return command(**given, settings=present) if takes_settings else command(**given)

        signature = inspect.signature(command)
        takes_settings = "settings" in signature.parameters
        own = [parameter for parameter in signature.parameters.values() if parameter.name != "settings"]
        own_flags = [parameter.name for parameter in own if _is_option(parameter)]
        for parameter in own:
            _name_value(parameter)
        parameters = [*own, *options.values(), _config_option()]
        run.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        )
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__doc__, run.__name__ = command.__doc__, command.__name__
        return run

    return decorate


def with_config_file(command: Callable[..., Result]) -> Callable[..., Result]:
    """Decorates a command without settings: adds `--config` alone."""
    return with_settings()(command)


def _refuse_empty_variables(names: Iterable[str]) -> None:
    """A secret that was meant to be there, such as one that a supervisor did not find.

    Raises:
        ConfigError: the variable of an option that was not given is set, and empty.
    """
    for name in names:
        variable = SECRETS.get(name)
        if variable is not None and variable in os.environ:
            raise ConfigError(f"${variable}", "", f"must not be empty; unset it, or give a key as in {flag_of(name)}")


def _nowhere(_: str) -> None:
    """There is no file in which an option could stand."""


def field_docs(config: type) -> dict[str, str]:
    """Field -> its docstring, read from the source since Python keeps none for fields."""
    module = inspect.getmodule(config)
    if module is None or module.__file__ is None:
        raise TypeError(f"{config.__name__} has no source")
    tree = ast.parse(Path(module.__file__).read_text())
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == config.__name__)
    docs: dict[str, str] = {}
    for statement, following in itertools.pairwise(body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = following.value if isinstance(following, ast.Expr) else None
            docs[statement.target.id] = str(text.value) if isinstance(text, ast.Constant) else ""
    return docs


def _option(config_field: Field[Any], doc: str) -> inspect.Parameter:
    name, kind = config_field.name, _without_none(config_field.type)
    flag = flag_of(name)
    names = [f"{flag}/--no-{name.replace('_', '-')}"] if kind is bool else [flag]
    names += EXTRA_NAMES.get(name, ())
    help_text = doc.replace("`", "").replace("None:", "default:") + _default_text(config_field)
    annotation, extra = _typed(name, kind)
    option = typer.Option(*names, help=help_text, show_default=False, envvar=ENVIRONMENT.get(name), **extra)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[annotation, option]
    )


def _typed(name: str, kind: Any) -> tuple[Any, dict[str, Any]]:
    """The annotation that typer gets for a field's type, with the arguments of its option."""
    if name.endswith("_bytes"):
        return int | None, {"parser": parse_size, "metavar": "SIZE"}
    if kind == int | str:
        return Any, {"parser": _as_written, "metavar": "SIZE|N%"}
    if typing.get_origin(kind) is dict:
        return Any, {"parser": mapping_parser(EXAMPLES[name]), "metavar": "JSON"}
    if typing.get_origin(kind) is tuple:
        return list[str] | None, {"metavar": "TEXT (repeatable)"}
    known = choices(kind)
    if known:
        return Enum(name, {choice: choice for choice in known}) | None, {"case_sensitive": False}  # type: ignore[operator]
    return kind | None, {"metavar": _METAVARS[kind]} if kind in _METAVARS else {}


def _as_written(value: object) -> object:
    """What reads a value that its config class takes as text or number."""
    return value


def _is_option(parameter: inspect.Parameter) -> bool:
    return any(isinstance(part, OptionInfo) for part in typing.get_args(parameter.annotation))


def _name_value(parameter: inspect.Parameter) -> None:
    """Gives a command's own option a word for its value, if it says nothing else."""
    kind, *more = typing.get_args(parameter.annotation) or (None,)
    for shown in more:
        if isinstance(shown, OptionInfo) and shown.metavar is None:
            shown.metavar = _METAVARS.get(_without_none(kind))


def _without_none(kind: Any) -> Any:
    """`X` of `X | None`."""
    if isinstance(kind, types.UnionType):
        parts = [part for part in typing.get_args(kind) if part is not type(None)]
        return functools.reduce(operator.or_, parts)
    return kind


def _default_text(config_field: Field[Any]) -> str:
    default = config_field.default
    if default is MISSING or default is None or default in ((), ""):
        return ""
    if config_field.name.endswith("_bytes"):
        return f" [default: {default / 2**20:g}MiB]"
    if isinstance(default, bool):
        return f" [default: {'on' if default else 'off'}]"
    return f" [default: {default}]"


def _plain(value: Any) -> Any:
    """A flag's value as the config takes it."""
    if isinstance(value, Enum):
        return value.value
    return tuple(value) if isinstance(value, list) else value


def _config_option() -> inspect.Parameter:
    option = typer.Option(
        "--config",
        metavar="FILE.yaml",
        help="A file with the same names; flags on the command line win.",
        is_eager=True,
        callback=read_config_file,
        show_default=False,
    )
    return inspect.Parameter(
        CONFIG_OPTION, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, option]
    )
