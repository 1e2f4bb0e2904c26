"""The engines that peers.py compares, and the model files made for them."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_process import EngineSpec

PROGRAMS = Path(__file__).with_name("peers")


@dataclass(frozen=True)
class Shape:
    """What all engines are set up for."""

    threads: int
    max_seqs: int
    max_len: int

    def setting(self, model: Path | str, **own: Any) -> dict[str, Any]:
        """The first line of the protocol."""
        return {"model": str(model), "threads": self.threads, "max_seqs": self.max_seqs, "max_len": self.max_len} | own


@dataclass(frozen=True)
class Pythons:
    """Interpreters of the peers' environments; None: that peer is left out."""

    llama: str | None
    openvino: str | None
    vllm: str | None
    vllm_cores: str | None
    """Cores that vLLM's threads are bound to, e.g. `0-1`; None: as many as there are threads."""


@dataclass(frozen=True)
class ModelFiles:
    """One model in the forms that the engines read. What is missing in `folder` is made there, once."""

    name: str
    file: Path
    folder: Path

    def requantized(self, python: str, kind: str) -> Path:
        """A GGUF file of llama.cpp's own making."""
        target = self.folder / f"{self.name}-{kind}.gguf"
        if not target.exists():
            _make(target, [python, str(PROGRAMS / "llama_quantize.py"), str(self.file), "{}", kind])
        return target

    def dequantized(self) -> Path:
        """A Hugging Face folder in float32."""
        target = self.folder / f"{self.name}-float32"
        if not target.exists():
            _make(target, [sys.executable, str(PROGRAMS / "dequantize.py"), str(self.file), "{}"])
        return target


def _make(target: Path, command: list[str]) -> None:
    """Runs a command that writes to the path in place of {}; the target appears whole or not at all."""
    partial = target.with_name(f"{target.name}.partial")
    done = subprocess.run([part.format(partial) for part in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{target.name} cannot be made: {done.stderr[-2000:]}")
    partial.rename(target)


def engine_specs(
    files: ModelFiles, shape: Shape, pythons: Pythons, *, types: list[str], extra_buffers: bool
) -> list[EngineSpec]:
    """Octavo first, then the peers that have an environment. Engines that read GGUF get the same file, and one of each
    of `types` if llama.cpp, which makes them, is there."""
    specs = [EngineSpec("octavo", program(sys.executable, "octavo"), shape.setting(files.file))]
    made = {kind: files.requantized(pythons.llama, kind) for kind in types} if pythons.llama else {}
    for kind, file in {"same file": files.file, **made}.items():
        if pythons.llama:
            setting = shape.setting(file, extra_buffers=extra_buffers)
            specs.append(EngineSpec(f"llama.cpp, {kind}", program(pythons.llama, "llama"), setting))
        if pythons.openvino:
            setting = shape.setting(file, cache_gib=1)
            specs.append(EngineSpec(f"OpenVINO, {kind}", program(pythons.openvino, "openvino"), setting))
    if pythons.vllm:
        setting = shape.setting(files.dequantized())
        cores = pythons.vllm_cores or f"0-{shape.threads - 1}"
        specs.append(EngineSpec("vLLM", program(pythons.vllm, "vllm"), setting, _vllm_environment(cores)))
    return specs


def program(python: str, engine: str) -> list[str]:
    """The command of an engine's program, one of benchmarks/peers."""
    return [python, str(PROGRAMS / f"{engine}_peer.py")]


def _vllm_environment(cores: str) -> dict[str, str]:
    return {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": cores,
    }
