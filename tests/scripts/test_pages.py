"""Pages that can be checked are: links lead somewhere, dependencies are explained, commands exist."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert missing == []


def test_every_dependency_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name for names in project["optional-dependencies"].values() for name in names]
    named = {re.split(r"[<>=!\[; ]", requirement)[0] for requirement in [*project["dependencies"], *extras]}
    explained = set(re.findall(r"`([A-Za-z][A-Za-z0-9_.-]*)`", (ROOT / "docs" / "dependencies.md").read_text()))
    assert named - explained == set()


def test_rooms_on_the_architecture_page_are_those_of_the_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    listed = {
        name for row in re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    rooms = {init.parent.name for init in (ROOT / "src" / "octavo").glob("*/__init__.py")}
    assert rooms <= listed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_scripts_and_modules_named_on_pages_exist(page: Path) -> None:
    text = page.read_text()
    paths = re.findall(r"`((?:scripts|benchmarks|tests|src|csrc)/[\w/.-]+)`", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    modules = re.findall(r"python -m (octavo(?:\.\w+)+)", text)
    assert [name for name in modules if not (ROOT / "src" / (name.replace(".", "/") + ".py")).exists()] == []
