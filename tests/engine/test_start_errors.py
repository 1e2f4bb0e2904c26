"""What keeps a core from starting is told as it was raised, on the other side of the process border, too."""

from pathlib import Path

import msgspec
import pytest

from octavo.engine import wire
from octavo.engine.client import _start_error
from octavo.errors import ConfigError, EngineDeadError, ModelFileError, OctavoError, OutOfMemoryError


@pytest.mark.parametrize("value", [8000, "x", 0.5, None, Path("/nowhere"), ("a", "b")])
def test_settings_keep_name_value_and_problem(value: object) -> None:
    told = _crossed(ConfigError("port", value, "is taken"))
    assert isinstance(told, ConfigError)
    assert (told.field, told.problem) == ("port", "is taken")
    assert told.value == value or told.value == str(value)


@pytest.mark.parametrize("error", [ModelFileError("is cut off", "x.gguf", 7), OutOfMemoryError("too small")])
def test_other_errors_keep_kind_and_message(error: OctavoError) -> None:
    told = _crossed(error)
    assert (type(told), str(told)) == (type(error), str(error))


def test_what_nobody_foresaw_is_a_dead_engine() -> None:
    told = _crossed(ZeroDivisionError("division by zero"))
    assert (type(told), str(told)) == (EngineDeadError, "division by zero")


def _crossed(error: Exception) -> OctavoError:
    sent = msgspec.msgpack.encode(wire.failure_of(error))
    return _start_error(msgspec.msgpack.decode(sent, type=wire.Failure))
