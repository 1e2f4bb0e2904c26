"""A chat template that is given in place of the model's: what is wrong with it is told with its flag and its file."""

from pathlib import Path

import pytest

from octavo.config import EngineConfig
from octavo.engine.words import load_words
from octavo.errors import ConfigError
from octavo.hub import resolve


@pytest.mark.parametrize("as_file", [True, False])
def test_a_broken_template_names_its_setting(tiny_model: str, tmp_path: Path, as_file: bool) -> None:
    text = "{{ messages }}\n{% if %}"
    path = tmp_path / "chat.jinja"
    path.write_text(text)
    given = str(path) if as_file else text
    config = EngineConfig.from_fields({"model": tiny_model, "chat_template": given})
    with pytest.raises(ConfigError, match="is no chat template: line 2: ") as caught:
        load_words(config, resolve(tiny_model))
    assert (caught.value.field, caught.value.value) == ("chat_template", given)
