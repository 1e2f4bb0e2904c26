"""What the source must not hold, whatever comes: ways from data to code, and ways from a request to the network."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "octavo"
FILES = sorted(SOURCE.rglob("*.py"))

CODE_FROM_DATA = {
    "pickle",
    "_pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "marshal",
    "shelve",
    "joblib",
    "jsonpickle",
    "code",
}
"""Modules that turn bytes into code, or objects of any class."""
BUILTINS = {"eval", "exec", "compile", "__import__"}
CALLS = {
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "torch.load",
    "numpy.load",
    "np.load",
    "os.system",
    "os.popen",
}
NETWORK = {"urllib.request", "urllib3", "http.client", "requests", "httpx", "aiohttp", "ftplib", "telnetlib", "smtplib"}
FETCHING_ROOMS = {"hub", "bench", "cli", "router"}
"""Rooms that fetch what their user names: models, and figures of a server that is measured. No request reaches them."""


def parsed() -> Iterator[tuple[Path, ast.AST]]:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            yield path.relative_to(SOURCE), node


def imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), names=names):
            return [module, *(f"{module}.{alias.name}" for alias in names)]
    return []


def called(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)):
            return f"{module}.{name}"
    return ""


def test_nothing_makes_code_of_data() -> None:
    assert len(FILES) > 300
    found = []
    for path, node in parsed():
        modules = {name.partition(".")[0] for name in imported(node)}
        if modules & CODE_FROM_DATA or called(node) in BUILTINS | CALLS:
            found.append(f"{path}:{getattr(node, 'lineno', 0)}")
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            found.append(f"{path}: allow_pickle")
        if isinstance(node, ast.keyword) and node.arg == "shell" and ast.unparse(node.value) != "False":
            found.append(f"{path}: shell")
    assert found == []


def test_no_code_comes_with_a_model() -> None:
    """There is no flag for it, so nothing can be turned on."""
    words = ("trust_remote_code", "auto_map", "custom_code")
    assert [path.name for path in FILES for word in words if word in path.read_text()] == []


def test_no_request_reaches_the_network() -> None:
    found = [
        f"{path}:{getattr(node, 'lineno', 0)}"
        for path, node in parsed()
        if path.parts[0] not in FETCHING_ROOMS and set(imported(node)) & NETWORK
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("import pickle", True),
        ("from pickle import loads", True),
        ("eval('1')", True),
        ("yaml.load(x)", True),
        ("yaml.safe_load(x)", False),
        ("re.compile('x')", False),
        ("from urllib.request import urlopen", False),
    ],
)
def test_the_rules_see_what_they_should(source: str, seen: bool) -> None:
    nodes = list(ast.walk(ast.parse(source)))
    hits = [n for n in nodes if {name.partition(".")[0] for name in imported(n)} & CODE_FROM_DATA]
    hits += [n for n in nodes if called(n) in BUILTINS | CALLS]
    assert bool(hits) is seen


def test_no_time_limit_swallows_a_cancellation() -> None:
    """`asyncio.wait_for` of Python 3.11 answers a cancellation with its result if that comes in the same turn of the
    loop, so whoever awaits the cancelled task may wait for ever; `asyncio.timeout` does not."""
    assert [str(file) for file in FILES if "asyncio.wait_for(" in file.read_text("utf-8")] == []
