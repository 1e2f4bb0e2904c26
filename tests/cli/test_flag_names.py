"""Errors of settings are told in the words of the command line, and what only looks like a setting is left alone."""

import pytest

from octavo.cli.flag_names import named_as_typed
from octavo.errors import ConfigError

FIELDS = ("logits_processors", "speculation", "port")


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        ("entry points of 'octavo.logits_processors'", "entry points of 'octavo.logits_processors'"),
        ("goes with logits_processors alone", "goes with --logits-processors alone"),
        ("`speculation` says so, not speculation", "--speculation says so, not speculation"),
        ("the port of `other`", "the port of `other`"),
    ],
)
def test_names_of_fields_become_flags(problem: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught, named_as_typed(FIELDS, {}):
        raise ConfigError("port", 1, problem)
    assert str(caught.value) == f"--port=1: {told}"
