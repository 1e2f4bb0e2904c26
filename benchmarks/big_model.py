"""What a model of 7B weights takes: memory at its peak and afterwards, seconds until it is ready and to first tokens.

    python benchmarks/big_model.py [--format q4_0|bf16|awq] [--layers 32] [--quantization TYPE] [--threads N]
                                   [--weights private shared] [--engines 1] [--max-memory 6GiB] [--folder /var/tmp]
                                   [--json FILE]

Writes a llama of 7B (or of fewer layers) with random weights, GGUF in Q4_0, safetensors in BF16 or of AWQ, and deletes
it afterwards. Each engine is a process of its own. `peak` is the most that lay in memory at one time while it was
loaded, of its own (`anon`) and of mapped files (`file`); `held` is what it holds at the end, and `Pss` counts what
several processes map as a part of each. What the system keeps of files beyond that can be dropped, and is not counted.
"""

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from octavo.execution.loader.gguf_writer import GGUFTensor, Value, write_gguf
from octavo.execution.quant import TensorType

HIDDEN, INNER, HEADS, HEAD_DIM, VOCAB = 4096, 11008, 32, 128, 32000
KV_BYTES = 256 << 20
PROMPT, OUTPUT = 16, 4
AWQ_GROUP = 128
POLL_S = 0.02

Tensors = Callable[[str, tuple[int, ...]], Iterator[tuple[str, str, tuple[int, ...]]]]


def shapes(layers: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """GGUF names of all tensors."""
    yield "token_embd.weight", (VOCAB, HIDDEN)
    for layer in range(layers):
        yield f"blk.{layer}.attn_norm.weight", (HIDDEN,)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"blk.{layer}.{name}.weight", (HIDDEN, HIDDEN)
        yield f"blk.{layer}.ffn_norm.weight", (HIDDEN,)
        yield f"blk.{layer}.ffn_gate.weight", (INNER, HIDDEN)
        yield f"blk.{layer}.ffn_up.weight", (INNER, HIDDEN)
        yield f"blk.{layer}.ffn_down.weight", (HIDDEN, INNER)
    yield "output_norm.weight", (HIDDEN,)
    yield "output.weight", (VOCAB, HIDDEN)


HF_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip


def hf_name(name: str) -> str:
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if match is None:
        return f"{HF_NAMES[name.removesuffix('.weight')]}.weight"
    return f"model.layers.{match[1]}.{HF_NAMES[match[2]]}.weight"


def random_bytes(kind: TensorType, shape: tuple[int, ...], piece: np.ndarray) -> np.ndarray:
    if kind is TensorType.F32:
        return np.ones(shape, np.float32).view(np.uint8)
    return np.resize(piece, kind.num_bytes(shape))


def made_when_asked(kind: TensorType, shape: tuple[int, ...], piece: np.ndarray) -> Iterator[np.ndarray]:
    yield random_bytes(kind, shape, piece)


def q4_piece() -> np.ndarray:
    """Blocks of random codes with scales that keep activations sane; a prime number of them, so that rows differ."""
    rng = np.random.default_rng(1)
    blocks = np.zeros((99_991, 18), np.uint8)
    blocks[:, :2] = np.full(1, 0.002, np.float16).view(np.uint8)
    blocks[:, 2:] = rng.integers(0, 256, (len(blocks), 16), np.uint8)
    return blocks.reshape(-1)


def safetensors_pieces() -> dict[str, np.ndarray]:
    """Bytes of each dtype that are repeated: floats, words of random codes, scales that keep activations sane."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal(999_983).astype(np.float32) * np.float32(0.02)
    return {
        "F32": np.ones(1, np.float32).view(np.uint8),
        "BF16": (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8),
        "F16": np.full(1, 0.0015, np.float16).view(np.uint8),
        "I32": rng.integers(0, 256, 4 * 999_983, np.uint8),
    }


def write_q4_0(folder: Path, layers: int) -> Path:
    numbers = {
        "block_count": layers, "context_length": 4096, "embedding_length": HIDDEN, "feed_forward_length": INNER,
        "attention.head_count": HEADS, "attention.head_count_kv": HEADS, "vocab_size": VOCAB,
        "rope.dimension_count": HEAD_DIM,
    }  # fmt: skip
    metadata = {
        "general.architecture": Value("str", "llama"),
        **{f"llama.{key}": Value("u32", number) for key, number in numbers.items()},
        "llama.attention.layer_norm_rms_epsilon": Value("f32", 1e-5),
    }
    piece, tensors = q4_piece(), []
    for name, shape in shapes(layers):
        kind = TensorType.F32 if len(shape) == 1 else TensorType.Q4_0
        tensors.append(GGUFTensor(name, kind, shape, made_when_asked(kind, shape, piece)))
    path = folder / "big.gguf"
    write_gguf(path, metadata, tensors)
    return path


def bf16_tensors(name: str, shape: tuple[int, ...]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Name, dtype and shape of what holds a weight."""
    yield name, "F32" if len(shape) == 1 else "BF16", shape


def awq_tensors(name: str, shape: tuple[int, ...]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    if not name.endswith("_proj.weight"):
        yield from bf16_tensors(name, shape)
        return
    module, (outputs, inputs) = name.removesuffix(".weight"), shape
    yield f"{module}.qweight", "I32", (inputs, outputs // 8)
    yield f"{module}.qzeros", "I32", (inputs // AWQ_GROUP, outputs // 8)
    yield f"{module}.scales", "F16", (inputs // AWQ_GROUP, outputs)


AWQ = {"quant_method": "awq", "bits": 4, "group_size": AWQ_GROUP, "zero_point": True, "version": "gemm"}


def write_bf16(folder: Path, layers: int) -> Path:
    return write_safetensors(folder, layers, bf16_tensors)


def write_awq(folder: Path, layers: int) -> Path:
    return write_safetensors(folder, layers, awq_tensors, quantization_config=AWQ)


def write_safetensors(folder: Path, layers: int, tensors_of: Tensors, **more: Any) -> Path:
    pieces, header, offset = safetensors_pieces(), {}, 0
    sizes = {"F32": 4, "I32": 4, "BF16": 2, "F16": 2}
    tensors = [tensor for name, shape in shapes(layers) for tensor in tensors_of(hf_name(name), shape)]
    for name, dtype, shape in tensors:
        end = offset + sizes[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "vocab_size": VOCAB,
        "intermediate_size": INNER, "num_hidden_layers": layers, "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 4096,
        "tie_word_embeddings": False, "hidden_act": "silu", **more,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    text = json.dumps(header).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, dtype, shape in tensors:
            file.write(np.resize(pieces[dtype], sizes[dtype] * math.prod(shape)).data)
    return folder


WRITERS = {
    "q4_0": (write_q4_0, TensorType.Q4_0),
    "bf16": (write_bf16, TensorType.BF16),
    "awq": (write_awq, TensorType.Z4),
}
"""By format, with the one that weights are packed in."""


def drop_pages(path: Path) -> None:
    """So that the start reads from the disk, and nothing of the file is counted that the engine did not ask for."""
    for file in [path] if path.is_file() else path.glob("*.safetensors"):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def status(pid: int, field: str) -> int:
    return field_of(Path(f"/proc/{pid}/status").read_text(), field)


def rollup(pid: int) -> dict[str, int]:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return {name: field_of(text, name) for name in ("Rss", "Pss", "AnonHugePages")}


def field_of(text: str, name: str) -> int:
    """Bytes of a line such as `Rss:  100 kB`."""
    line = next(line for line in text.splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


@contextmanager
def peak_memory() -> Iterator[dict[str, int]]:
    """The highest anonymous and file-backed resident memory of this process, and their highest sum, while it runs."""
    peak = {"anon": 0, "file": 0, "both": 0}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(POLL_S):
            anon, file = status(os.getpid(), "RssAnon"), status(os.getpid(), "RssFile")
            for name, value in (("anon", anon), ("file", file), ("both", anon + file)):
                peak[name] = max(peak[name], value)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def engine(arguments: argparse.Namespace) -> None:
    """What a child does: load, tell, answer, tell, and wait until it may go."""
    from octavo import LLM
    from octavo.request.params import SamplingParams

    settings: dict[str, Any] = {"skip_tokenizer_init": True, "kv_cache_memory_bytes": KV_BYTES, "max_num_seqs": 4}
    settings |= {"max_num_batched_tokens": 128, "weights": arguments.weights[0], "threads": arguments.threads}
    settings["speculation"] = "off"  # a step is a token
    if arguments.max_memory:
        settings["max_memory"] = arguments.max_memory
    if arguments.quantization:
        settings["quantization"] = arguments.quantization
    began, cpu = time.perf_counter(), time.process_time()
    with peak_memory() as peak:
        llm = LLM(arguments.model, **settings)
    told: dict[str, Any] = {"ready_s": time.perf_counter() - began, "ready_cpu_s": time.process_time() - cpu}
    told |= {"peak": peak, "phases_s": llm.info.start_s, "ledger": dict(llm.info.memory.parts())}
    params = SamplingParams(temperature=0.0, max_tokens=OUTPUT, ignore_eos=True)
    prompt = [(7 * i) % VOCAB for i in range(PROMPT)]
    began = time.perf_counter()
    (output,) = llm.generate([prompt], params)
    told |= {"answer_s": time.perf_counter() - began, "token_ids": output.outputs[0].token_ids}
    cpu = time.process_time()
    llm.generate([prompt], SamplingParams(temperature=0.0, max_tokens=arguments.decode, ignore_eos=True))
    told["cpu_per_token_s"] = (time.process_time() - cpu) / arguments.decode
    print(json.dumps(told), flush=True)
    sys.stdin.readline()
    print(json.dumps(rollup(os.getpid())), flush=True)
    sys.stdin.readline()


def start_engine(model: Path, weights: str, arguments: argparse.Namespace) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--model", str(model), "--weights", weights, "--decode", str(arguments.decode)]
    command += ["--threads", str(arguments.threads)]
    command += ["--max-memory", arguments.max_memory] if arguments.max_memory else []
    command += ["--quantization", arguments.quantization] if arguments.quantization else []
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told_by(process: subprocess.Popen[str]) -> dict[str, Any]:
    if process.stdout is None:
        raise SystemExit("an engine without a pipe")
    told: dict[str, Any] = json.loads(process.stdout.readline())
    return told


def asked(process: subprocess.Popen[str]) -> dict[str, Any]:
    if process.stdin is None:
        raise SystemExit("an engine without a pipe")
    process.stdin.write("\n")
    process.stdin.flush()
    return told_by(process)


def measure(model: Path, weights: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Engines started one after another, all alive at the end."""
    processes, told = [], []
    try:
        for _ in range(arguments.engines):
            drop_pages(model)
            processes.append(start_engine(model, weights, arguments))
            told.append(told_by(processes[-1]))
        for process, figures in zip(processes, told, strict=True):
            figures["held"] = asked(process)
    finally:
        for process in processes:
            process.communicate("\n")
    return told


def show(weights: str, number: int, figures: dict[str, Any]) -> None:
    mb = {f"{kind} {name}": size / 1e6 for kind in ("peak", "held", "ledger") for name, size in figures[kind].items()}
    per_token = f"{1e3 * figures['cpu_per_token_s']:.1f} ms CPU per token"
    print(f"\n{weights}, engine {number}: ready after {figures['ready_s']:.2f} s ({figures['ready_cpu_s']:.2f} of CPU)")
    print(f"  {OUTPUT} tokens after {figures['answer_s']:.2f} s more, {per_token}; {figures['token_ids']}")
    print("  " + ", ".join(f"{name} {size:.0f} MB" for name, size in mb.items() if size))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=sorted(WRITERS), default="q4_0")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--weights", nargs="+", default=["private"], choices=["private", "shared"])
    parser.add_argument("--engines", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--decode", type=int, default=8, help="tokens of the timed answer")
    parser.add_argument("--max-memory")
    parser.add_argument("--quantization", help="type to quantise to at load")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.model:
        engine(arguments)
        return
    writer, kind = WRITERS[arguments.format]
    size = sum(kind.num_bytes(shape) for _, shape in shapes(arguments.layers) if len(shape) == 2)
    needed = 2 * size + (2 << 30)
    if shutil.disk_usage(arguments.folder).free < needed:
        raise SystemExit(
            f"{arguments.folder} needs {needed / 1e9:.0f} GB of free disk; give --folder or fewer --layers"
        )
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="octavo-big-") as folder:
        os.environ["OCTAVO_CACHE"] = str(Path(folder) / "cache")
        began = time.perf_counter()
        model = writer(Path(folder), arguments.layers)
        print(f"wrote {size / 1e9:.2f} GB in {time.perf_counter() - began:.0f} s")
        results = {weights: measure(model, weights, arguments) for weights in arguments.weights}
    for weights, engines in results.items():
        for number, figures in enumerate(engines):
            show(weights, number, figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
