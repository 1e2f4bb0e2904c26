"""The dashboards in `dashboards/`: all that their expressions name is exported by a real server, and Grafana can import
them."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import promql
from tests.end_to_end.test_serve_process import serve
from tests.scraping import Scrape, scrape

FOLDER = Path(__file__).parents[2] / "dashboards"
FILES = sorted(FOLDER.glob("*.json"))
OF_SCRAPES = {"instance", "job"}
"""Labels that Prometheus adds to all that it scrapes."""
TWINS = {"octavo:request_bound_seconds_total": "octavo:request_step_seconds_total"}
"""Has samples only where the machine has been measured -> what has the same labels."""
FLAGS = (
    *("--served-model-name", "tiny", "--kv-host-memory-bytes", "1MiB", "--goodput", "chat=e2el:0.001"),
    *("--speculation", "ngram", "--num-speculative-tokens", "3", "--max-num-seqs", "4"),
)


def load(file: Path) -> dict[str, Any]:
    board: dict[str, Any] = json.loads(file.read_text())
    return board


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that show something."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


EXPRESSIONS = [
    pytest.param(target["expr"], id=f"{file.stem}: {panel['title']} {target['refId']}")
    for file in FILES
    for panel in panels(load(file))
    for target in panel["targets"]
]


@pytest.fixture(scope="module")
def exported(tiny_file: str) -> Iterator[Scrape]:
    """A scrape of a server that has done a bit of everything."""
    with serve(tiny_file, *FLAGS) as process, httpx.Client(base_url=process.url, timeout=60) as http:
        body = {"prompt": "again and again and again", "max_tokens": 40, "temperature": 0}
        for number in range(3):
            assert http.post("/v1/completions", json=body | {"n": number + 1}).status_code == 200
        assert http.post("/v1/completions", json=body | {"n": 0}).status_code == 400
        yield scrape(process.url)


def labels_of(exported: Scrape, name: str) -> set[str]:
    """All labels that samples of a name carry; empty: there is no such sample."""
    return {label for known, held in exported.samples if known == name for label in ("__name__", *dict(held))}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_metrics_and_labels_are_exported(expression: str, exported: Scrape) -> None:
    asked = promql.read(expression)
    assert asked.selectors
    everywhere: set[str] = set()
    for selector in asked.selectors:
        assert selector.name not in TWINS or selector.name.removesuffix("_total") in exported.kinds
        known = labels_of(exported, TWINS.get(selector.name, selector.name))
        assert known, f"{selector.name} is not exported"
        everywhere |= known
        for label, operator, value in selector.matchers:
            assert label in known | OF_SCRAPES, f"{selector.name} has no label {label}"
            if not value.startswith("$"):
                values = {dict(held).get(label, "") for name, held in exported.samples if name == selector.name}
                wanted = value.split("|") if operator == "=~" else [value]
                assert set(wanted) <= values, f"{selector.name} has {label} in {values}"
        is_counted = selector.name.endswith(("_total", "_bucket", "_sum", "_count"))
        assert is_counted == selector.is_range, f"{selector.name}: rates are of counters alone, and of all of them"
    assert asked.grouped_by <= everywhere | OF_SCRAPES
    if "histogram_quantile" in asked.functions:
        assert "le" in asked.grouped_by
        assert all(selector.name.endswith("_bucket") for selector in asked.selectors)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_dashboard_can_be_imported_anywhere(file: Path) -> None:
    board = load(file)
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource" and variables["datasource"]["query"] == "prometheus"
    assert board["schemaVersion"] >= 36 and re.fullmatch(r"[a-z-]{1,40}", board["uid"])
    assert "id" not in board  # given by Grafana
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels(board):
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"]
            used = set(re.findall(r"\$(\w+)", target["expr"]))
            assert used <= {*variables, "__rate_interval"}
            fields = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert fields <= promql.read(target["expr"]).grouped_by | OF_SCRAPES
    for variable in variables.values():
        if variable["type"] == "query":
            assert variable["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_panels_do_not_overlap(file: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in load(file)["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert all(x < 24 for x, _ in cells)
        taken |= cells


def test_prometheus_reads_all_expressions(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    texts = [parameter.values[0].replace("$__rate_interval", "1m") for parameter in EXPRESSIONS]
    rules = [{"record": f"rule:{number}", "expr": text} for number, text in enumerate(texts)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}))  # JSON is YAML
    done = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and f"{len(rules)} rules found" in done.stdout, done.stdout + done.stderr


def test_all_panels_are_looked_at() -> None:
    assert {file.stem for file in FILES} == {"octavo-engine", "octavo-service"}
    assert len(EXPRESSIONS) > 50


def test_the_reader_of_expressions_sees_names_labels_and_groups() -> None:
    text = 'histogram_quantile(0.9, sum by (le, job) (rate(a:b_bucket{x=~"1|2",y!="}("}[5m]))) / on (z) c_total > 1e3'
    read = promql.read(text)
    assert read.functions == {"histogram_quantile", "sum", "rate"} and read.grouped_by == {"le", "job", "z"}
    assert read.selectors == (
        promql.Selector("a:b_bucket", (("x", "=~", "1|2"), ("y", "!=", "}(")), is_range=True),
        promql.Selector("c_total", (), is_range=False),
    )
    for wrong in ("sum(a", "a{x}", "a{x=1}", "sum by le (a)", "a ; b"):
        with pytest.raises(ValueError, match=r"PromQL|match|missing|matcher"):
            promql.read(wrong)
