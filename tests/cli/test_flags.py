"""Flags made from the config dataclasses, sizes, and config files."""

import re
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
import typer
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from octavo.cli import main
from octavo.cli.flags import Settings, field_docs, parse_size, with_settings
from octavo.config import (
    CacheConfig,
    EngineConfig,
    ExecutionConfig,
    KVEventsConfig,
    LogConfig,
    ModelConfig,
    SchedulerConfig,
    ServerConfig,
    SpeculationConfig,
    StepMetricsConfig,
    choices,
)
from octavo.errors import ConfigError
from octavo.kv.spec import KVDtype

CONFIGS = (
    *(ServerConfig, ModelConfig, CacheConfig, SchedulerConfig, ExecutionConfig, KVEventsConfig, StepMetricsConfig),
    LogConfig,
)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One field of each kind."""

    name: str = "x"
    """A text."""
    count: int | None = None
    """A number."""
    ratio: float = 0.5
    """A share."""
    fast: bool = True
    """A switch."""
    kind: Literal["one", "two"] = "one"
    """A choice."""
    dtype: KVDtype = KVDtype.FP16
    """An enum."""
    words: tuple[str, ...] = ()
    """A list."""
    memory_bytes: int | None = None
    """A size."""


def run(*arguments: str) -> tuple[int, Settings, str]:
    """Runs a command with these flags; exit code, what it got, what it printed."""
    seen: Settings = {}
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @with_settings(Sample)
    def command(settings: Settings, own: int = 3) -> None:
        """Help."""
        seen.update(settings, own=own)

    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, ConfigError):
        raise result.exception
    return result.exit_code, seen, result.output


def test_only_given_flags_arrive_typed() -> None:
    assert run()[1] == {"own": 3}
    code, seen, _ = run(
        *("--name", "n", "--count", "5", "--ratio", "0.25", "--no-fast", "--kind", "two", "--dtype", "fp32"),
        *("--words", "a", "--words", "b", "--memory-bytes", "2GiB", "--own", "4"),
    )
    assert code == 0
    assert seen == {
        "name": "n",
        "count": 5,
        "ratio": 0.25,
        "fast": False,
        "kind": "two",
        "dtype": "fp32",
        "words": ("a", "b"),
        "memory_bytes": 2**31,
        "own": 4,
    }


def test_a_field_may_have_a_shorter_flag_beside_its_own() -> None:
    seen: Settings = {}
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @with_settings(CacheConfig)
    def command(settings: Settings) -> None:
        """Help."""
        seen.update(settings)

    result = CliRunner().invoke(
        app, ["--kv-disk-path", "kv", "--kv-disk-size", "10GiB", "--kv-host-memory-bytes", "1GB"]
    )
    assert result.exit_code == 0
    assert CacheConfig(**seen).kv_disk_size_bytes == 10 * 2**30
    assert seen == {"kv_disk_path": "kv", "kv_disk_size_bytes": 10 * 2**30, "kv_host_memory_bytes": 10**9}


@pytest.mark.parametrize(
    "flags", [["--count", "x"], ["--kind", "three"], ["--memory-bytes", "much"], ["--nope"], ["extra"]]
)
def test_wrong_flags_end_with_2(flags: list[str]) -> None:
    code, seen, output = run(*flags)
    assert (code, seen) == (2, {})
    assert flags[0].lstrip("-") in output


@pytest.mark.parametrize(
    ("name", "value", "known"),
    [
        ("kv_cache_dtype", "int4", "fp32, fp16, bf16, int8, fp8"),
        ("isa", "sse9", "auto, amx, avx512, avx2, portable"),
    ],
)
def test_what_is_not_among_the_choices_is_told_which_there_are(name: str, value: str, known: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}='{value}': must be one of {known}"):
        EngineConfig.from_fields({name: value})
    with pytest.raises(ConfigError, match=f"kv_cache_dtype='{value}': must be one of fp32, "):
        CacheConfig(kv_cache_dtype=value)  # type: ignore[arg-type]


def test_help_holds_docs_and_defaults() -> None:
    output = " ".join(run("--help")[2].split())
    assert "--count" in output
    assert "A share. [default: 0.5]" in output
    assert "A switch. [default: on]" in output
    assert "--fast / --no-fast" in output


def test_help_speaks_no_python() -> None:
    """`None`, and a flag's `<str>` or `list[str]`, say nothing to someone who does not write Python."""
    commands = typer.main.get_command(main.app).commands  # type: ignore[attr-defined]
    pages = [CliRunner().invoke(main.app, [name, "--help"]).output for name in commands]
    assert all("--help" in page for page in pages)
    python = re.compile(r"None|--.*(<(str|int|float|bool)|list\[|tuple\[)")
    assert [line for page in pages for line in page.splitlines() if python.search(line)] == []


@pytest.mark.parametrize("config", CONFIGS)
def test_every_config_field_is_documented(config: Any) -> None:
    docs = field_docs(config)
    assert {field.name for field in fields(config)} == set(docs)
    assert all(len(text) > 10 for text in docs.values())


def test_no_two_configs_share_a_name() -> None:
    names = [field.name for config in CONFIGS for field in fields(config)]
    assert len(names) == len(set(names))


def test_config_file_gives_defaults_that_flags_override(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("name: from-file\ncount: 7\nmemory-bytes: 1MiB\nfast: false\nwords: [a, b]\nown: 9\nkind: two\n")
    seen = run("--config", str(file), "--count", "8")[1]
    assert seen == {
        "name": "from-file",
        "count": 8,
        "memory_bytes": 2**20,
        "fast": False,
        "words": ("a", "b"),
        "own": 9,
        "kind": "two",
    }


def test_one_text_in_a_config_file_is_a_list_of_one(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("words: secret\n")
    assert run("--config", str(file))[1]["words"] == ("secret",)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("name: x\nnope: 1", r"c\.yaml, line 2: nope=1: no such flag; --help has all of them"),
        ("name: x\ncuont: 1", r"c\.yaml, line 2: cuont=1: no such flag; did you mean count\?"),
        ("memory_byte: 1", r"line 1: memory_byte=1: no such flag; did you mean memory-bytes\?"),
        ("dtype: fp16\ntp: 2", r"line 2: tp=2: no such flag; one process runs the whole model"),
        ("config: x", r"line 1: config='x': no such flag"),
        ("name:", r"line 1: name=None: is empty; give a value, or take the entry out"),
        ("words: []", r"line 1: words=\[\]: is empty"),
        ("\n\ncount: many", r"c\.yaml, line 3: count='many': .+"),
        ("name: x\ncount: 1.5", r"line 2: count=1\.5: must be a .*(whole number|integer)"),
        ("ratio: half", r"line 1: ratio='half': .+"),
        ("fast: perhaps", r"line 1: fast='perhaps': .*boolean"),
        ("kind: three", r"line 1: kind='three': 'three' is not one of 'one', 'two'"),
        ("memory-bytes: much", r"line 1: memory-bytes='much': 'much' is no size"),
        ("name: no", r"line 1: name=False: is true or false in YAML; put quotes around a word"),
        ("words: [a, yes]", r"line 1: words=True: is true or false in YAML"),
        ("name: [a]", r"line 1: name=\['a'\]: must be one value"),
        ("name: {a: b}", r"line 1: name=\{'a': 'b'\}: must be one value"),
        ("memory-bytes: 1\nmemory_bytes: 2", r"line 2: memory_bytes=2: stands in line 1 already"),
        ("count: 1\ncount: 2", r"line 2: count=2: stands in line 1 already"),
        ("- a", "must hold one mapping"),
        ("a: [", r"c\.yaml': is no valid YAML: line 1, column 5: expected the node content"),
        ("\x00", r"is no valid YAML: character 1: special characters are not allowed"),
    ],
)
def test_a_bad_config_file_says_why(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=problem):
        run("--config", str(file))


@pytest.mark.parametrize("content", ["speculation: off", "speculation: Off", "speculation: 'off'"])
def test_speculation_may_be_off_in_yaml(tmp_path: Path, content: str) -> None:
    assert _asked(tmp_path, content) == {"speculation": "off"}


@pytest.mark.parametrize("content", ["speculation: false", "speculation: no", "speculation: on"])
def test_other_words_for_true_and_false_are_no_speculation(tmp_path: Path, content: str) -> None:
    with pytest.raises(ConfigError, match=r"speculation=.*put quotes around a word"):
        _asked(tmp_path, content)


def test_a_file_takes_every_name_of_a_flag(tmp_path: Path) -> None:
    assert _asked(tmp_path, "kv-disk-size: 1GiB") == {"kv_disk_size_bytes": 2**30}
    with pytest.raises(ConfigError, match="line 2: kv_disk_size_bytes=1: stands in line 1 already"):
        _asked(tmp_path, "kv-disk-size: 1GiB\nkv_disk_size_bytes: 1")


@pytest.mark.parametrize("text", ["", "  "])
@pytest.mark.parametrize("variable", ["OCTAVO_API_KEY", "OCTAVO_ADMIN_KEY"])
def test_a_secret_that_is_there_and_empty_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    for content in ("api-key: []", "api-key:", "api_key_file:", "admin-key: []"):
        with pytest.raises(ConfigError, match=r"line 1: .*is empty"):
            _asked(tmp_path, content)
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigError, match=rf"\${variable}='': must not be empty; unset it"):
        _asked(tmp_path, "port: 80")
    monkeypatch.setenv(variable, "secret")
    assert ("secret",) in _asked(tmp_path, "port: 80").values()


def _asked(tmp_path: Path, content: str) -> Settings:
    """What a server's command gets of a configuration file."""
    file = tmp_path / "c.yaml"
    file.write_text(content)
    seen: Settings = {}
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @with_settings(ServerConfig, CacheConfig, SpeculationConfig)
    def command(settings: Settings) -> None:
        """Help."""
        seen.update(settings)

    result = CliRunner().invoke(app, ["--config", str(file)])
    if result.exception is not None:
        raise result.exception
    return seen


def test_a_value_out_of_range_is_told_with_its_place_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("# a server\nport: 70000\nkv-disk-size-bytes: 1GiB\n")
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @with_settings(ServerConfig, CacheConfig)
    def command(settings: Settings) -> None:
        """Help."""
        known = {field.name for field in fields(ServerConfig)}
        ServerConfig(**{name: value for name, value in settings.items() if name in known})
        CacheConfig(**{name: value for name, value in settings.items() if name not in known})

    def problem(*flags: str) -> str:
        monkeypatch.setattr("sys.argv", ["octavo", *flags])
        return str(CliRunner().invoke(app, ["--config", str(file), *flags]).exception)

    assert problem() == f"{file}, line 2: port=70000: must be in [0, 65535]"
    assert problem("--port", "80000").startswith("--port=80000: ")
    assert problem("--port", "80").startswith(f"{file}, line 3: kv_disk_size_bytes=1073741824: has no effect without")


def test_every_flag_of_the_server_can_stand_in_a_file(tmp_path: Path) -> None:
    """Written there with its default, or a value of its kind, each comes to the command as it was."""
    examples: dict[str, Any] = {}
    for config in CONFIGS:
        for field in fields(config):
            examples[field.name] = _example(field.default, field.type)
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump({name.replace("_", "-"): value for name, value in examples.items()}))
    seen: Settings = {}
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @with_settings(*CONFIGS)
    def command(settings: Settings) -> None:
        """Help."""
        seen.update(settings)

    result = CliRunner().invoke(app, ["--config", str(file)])
    assert result.exit_code == 0, result.output
    assert seen == {name: tuple(value) if isinstance(value, list) else value for name, value in examples.items()}


def _example(default: Any, kind: Any) -> Any:
    if isinstance(default, tuple):
        return ["a", "b"]
    if isinstance(default, Enum):
        return default.value
    if default not in (None, MISSING):
        return default
    known = choices(kind)
    if known:
        return known[-1]
    words = str(kind)
    return 7 if "int" in words else 0.5 if "float" in words else "text" if "str" in words else choices_of(kind)


def choices_of(kind: Any) -> Any:
    """The first value of `Literal[...] | None`."""
    return choices(next(part for part in get_args(kind) if part is not type(None)))[0]


def test_a_missing_config_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        run("--config", str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("5", 5),
        ("1KiB", 1024),
        ("1kb", 1000),
        ("2 GiB", 2**31),
        ("1.5MiB", 3 * 2**19),
        ("3g", 3 * 10**9),
        ("1TiB", 2**40),
        ("1.5TB", 3 * 10**12 // 2),
        ("2t", 2 * 10**12),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1 GiB 2", "1e9", "0x10", "1PiB", "٣ GiB x"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no size"):
        parse_size(text)


@given(st.integers(min_value=0, max_value=2**60))
def test_plain_numbers_are_exact(number: int) -> None:
    assert parse_size(str(number)) == number


def test_a_path_is_as_good_as_its_text() -> None:
    settings = {"kv_disk_path": Path("kv"), "kv_disk_size_bytes": 2**30, "model": Path("a.gguf")}
    config = EngineConfig.from_fields(settings)
    assert (config.cache.kv_disk_path, config.model.model) == ("kv", "a.gguf")


def test_two_sockets_need_two_addresses() -> None:
    address = "tcp://127.0.0.1:5557"
    with pytest.raises(ConfigError, match="must differ from kv_events_endpoint"):
        KVEventsConfig(kv_events_endpoint=address, kv_events_replay_endpoint=address)
    KVEventsConfig(kv_events_endpoint="tcp://127.0.0.1:0", kv_events_replay_endpoint="tcp://127.0.0.1:0")
