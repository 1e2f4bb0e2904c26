"""Pages that can be checked are: links lead somewhere, dependencies are explained, commands exist."""

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


INDEX = ROOT / "docs" / "architecture.md"


def links(text: str) -> list[tuple[str, str]]:
    """Relative targets with their anchors, each may be empty; none of examples in code."""
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", prose)
    return [(target, anchor) for target, anchor in found if "://" not in target]


def anchors(text: str) -> set[str]:
    """Of its headings, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    made: Counter[str] = Counter()
    for heading in re.findall(r"^#+ +(.+?) *$", prose, re.MULTILINE):
        made[re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()).replace(" ", "-")] += 1
    return {f"{name}-{again}" if again else name for name, count in made.items() for again in range(count)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    wrong = []
    for target, anchor in links(page.read_text()):
        path = page.parent / target if target else page
        if not path.exists() or (anchor and anchor not in anchors(path.read_text())):
            wrong.append(f"{target}#{anchor}")
    assert wrong == []


def test_links_and_anchors_are_seen() -> None:
    text = "# A `flag`, and more\n[a](b.md#c-d) [e](#f) ![g](h.svg) [i](https://x/y#z) `[j](k.md)`\n"
    text += "```\n[l](m)\n# n\n```\n## O_p-q\n## O_p-q\n"
    assert links(text) == [("b.md", "c-d"), ("", "f"), ("h.svg", "")]
    assert anchors(text) == {"a-flag-and-more", "o_p-q", "o_p-q-1"}


def test_every_page_stands_once_in_the_index() -> None:
    """With what it is for; decisions by their folder, whose names say it."""
    listed = [target for target, _ in links(INDEX.read_text().split("\n## Pages\n")[1])]
    pages = [page.name for page in INDEX.parent.glob("*.md") if page != INDEX]
    assert sorted(listed) == sorted([*pages, "decisions"])


def test_every_dependency_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name for names in project["optional-dependencies"].values() for name in names]
    named = {re.split(r"[<>=!\[; ]", requirement)[0] for requirement in [*project["dependencies"], *extras]}
    explained = set(re.findall(r"`([A-Za-z][A-Za-z0-9_.-]*)`", (ROOT / "docs" / "dependencies.md").read_text()))
    assert named - explained == set()


def test_rooms_on_the_architecture_page_are_those_of_the_package() -> None:
    page = INDEX.read_text()
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
