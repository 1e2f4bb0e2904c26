"""docs/adding_a_model.md: its code is the example's, its commands and outputs are real, its tables are complete."""

import inspect
import re
import tomllib
from pathlib import Path
from typing import get_args

from octavo.model import sources
from octavo.model.builder import ProgramBuilder
from octavo.model.describe import describe
from octavo.model.registry import define_model
from tests.model_plugin.example import EXAMPLE, header

ROOT = EXAMPLE.parents[1]
PAGE = (ROOT / "docs" / "adding_a_model.md").read_text(encoding="utf-8")
MODULE = (EXAMPLE / "octavo_stablelm.py").read_text(encoding="utf-8")
CHECK = (EXAMPLE / "check.py").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def sections(text: str) -> list[str]:
    """What stands behind each line `# --- NAME`."""
    return [part.strip() for part in re.split(r"^# --- \w+\n", text, flags=re.MULTILINE)[1:]]


def rows(column: str) -> set[str]:
    """Names in the first column of the table of this head."""
    (table,) = re.findall(rf"^\| {column} \|.*\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return {name for line in table.splitlines() for name in re.findall(r"`([^`]+)`", line.split("|")[1])}


def test_the_code_is_the_example_whole_and_in_its_order() -> None:
    assert [block.strip() for block in blocks("python")] == sections(MODULE)


def test_the_entry_point_is_the_example() -> None:
    (block,) = blocks("toml")
    assert block in (EXAMPLE / "pyproject.toml").read_text()
    assert tomllib.loads(block)["project"]["entry-points"]["octavo.models"] == {"stablelm": "octavo_stablelm:STABLELM"}


def test_commands_are_those_that_tests_run() -> None:
    """`test_example.py` installs the package and calls what check.py is made of."""
    commands = [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()]
    assert commands == [
        'pip install -e ".[oracle]"',
        "pip install -e ./examples/model_plugin",
        "python examples/model_plugin/check.py --listing",
        "python examples/model_plugin/check.py",
    ]
    assert (EXAMPLE / "check.py").is_file()
    assert '"--listing"' in CHECK


def test_outputs_are_real(installed: Path) -> None:
    unknown, listing, figures = blocks("text")
    assert "is not one that Octavo computes" in unknown
    program = define_model(header(num_hidden_layers=3, use_qkv_bias=True, vocab_size=320)).program
    told = [line.strip() for line in describe(program).splitlines()]
    assert [line for line in map(str.strip, listing.splitlines()) if line not in told] == []
    for line in figures.splitlines():
        name, _, figure = line.rpartition(": ")
        assert f'"{name}": ' in CHECK
        assert 0 < float(figure) < 1e-4


def test_tables_of_methods_and_transforms_are_complete() -> None:
    methods = {name for name, _ in inspect.getmembers(ProgramBuilder, inspect.isfunction) if not name.startswith("_")}
    assert rows("method") == methods
    assert rows("transform") == {kind.__name__ for kind in get_args(sources.Transform)} - {"NoneType"}


def test_an_op_has_all_the_places_that_are_listed() -> None:
    for file in rows("file"):
        assert re.search(r"layer_norm|LayerNorm", (ROOT / file).read_text(encoding="utf-8")), file


def test_the_example_leans_on_nothing_but_what_a_package_may() -> None:
    (allowed,) = re.findall(r"What a package may lean on: (.+?)\.\n", PAGE)
    named = {name if "." in name else f"octavo.model.{name}" for name in re.findall(r"`([\w.]+)`", allowed)}
    assert set(re.findall(r"^from (octavo[\w.]*) import", MODULE, re.MULTILINE)) <= named
