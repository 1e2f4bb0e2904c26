"""The tour in the docs: every name on it is a name of the source, and its counts are what such a request comes to."""

import ast
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from octavo import LLM, SamplingParams
from octavo.execution.loader.tiny.spec import TinyModel
from octavo.execution.loader.tiny.write import write_tiny_model
from octavo.request.ledger_form import request_form

ROOT = Path(__file__).parents[1]
TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
STORY, _, PRINTED = TOUR.partition("## What it printed")
NAME = re.compile(r"`([A-Z]\w+(?:\.\w+)?|[a-z_]+(?:\.[a-z_]+)?\(\))`")


def names_of_source() -> set[str]:
    """Classes, their members, and functions with brackets behind them."""
    names: set[str] = set()
    for path in (ROOT / "src" / "octavo").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(f"{node.name}()")
            elif isinstance(node, ast.ClassDef):
                names |= {node.name, *(f"{node.name}.{member}" for member in members(node))}
    return names


def members(node: ast.ClassDef) -> set[str]:
    found = set()
    for part in node.body:
        match part:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                found.add(name)
    return found


def test_every_name_on_the_tour_is_one_of_the_source() -> None:
    named = set(NAME.findall(STORY))
    assert len(named) > 60
    assert named - names_of_source() == set()


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tour", ROOT / "benchmarks" / "tour.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tour"] = module
    spec.loader.exec_module(module)
    return module


def printed(label: str) -> str:
    """What stands behind a label in the script's output on the page."""
    found = re.search(rf"^ *{re.escape(label)}  +(.*)$", PRINTED, re.MULTILINE)
    assert found is not None, f"the page does not show {label!r}"
    return found[1].strip()


def test_the_counts_on_the_page_are_those_of_such_a_request(script: ModuleType, tmp_path: Path) -> None:
    """Of another model: they follow from the lengths alone."""
    file = write_tiny_model(tmp_path / "tiny.gguf", TinyModel(context_length=4096))
    prompt = [7 + i % 40 for i in range(script.PROMPT_TOKENS)]
    params = SamplingParams(temperature=0, max_tokens=script.OUTPUT_TOKENS, ignore_eos=True)
    with LLM(
        str(file), threads=1, max_model_len=2560, max_num_batched_tokens=script.STEP_TOKENS, speculation="off"
    ) as llm:
        (output,) = llm.generate([prompt], params)
    (choice,) = request_form(output.request_ledger, 0.0)["choices"]
    for label, value in script.counts(choice).items():
        shown = f"{value:,}" if isinstance(value, int) else str(value)
        assert printed(label) == shown


def test_figures_in_the_story_were_printed() -> None:
    for label in ("bytes of the GenerateRequest", "tokens run", "blocks held at the first token", "most blocks held"):
        assert printed(label) in STORY, label
