"""A small sound GGUF file as labelled pieces, so that a test can spoil exactly one field."""

from __future__ import annotations

import struct
from pathlib import Path

ALIGNMENT = 32


class Pieces:
    """The fields of a file in order, each with a label. `offset` says where one begins."""

    def __init__(self) -> None:
        self.fields: list[tuple[str, bytes]] = []

    def add(self, label: str, layout: str, *values: object) -> None:
        self.fields.append((label, struct.pack("<" + layout, *values)))

    def string(self, label: str, text: str | bytes) -> None:
        raw = text.encode() if isinstance(text, str) else text
        self.add(f"{label}.length", "Q", len(raw))
        self.fields.append((label, raw))

    def scalar(self, key: str, kind: int, layout: str, value: object) -> None:
        self.string(f"key:{key}", key)
        self.add(f"type:{key}", "I", kind)
        self.add(key, layout, value)

    def text(self, key: str, value: str) -> None:
        self.string(f"key:{key}", key)
        self.add(f"type:{key}", "I", 8)
        self.string(key, value)

    def array(self, key: str, kind: int, layout: str, values: list[object]) -> None:
        self.string(f"key:{key}", key)
        self.add(f"type:{key}", "I", 9)
        self.add(f"{key}.kind", "I", kind)
        self.add(f"{key}.count", "Q", len(values))
        for i, value in enumerate(values):
            if layout == "s":
                self.string(f"{key}[{i}]", str(value))
            else:
                self.add(f"{key}[{i}]", layout, value)

    def tensor(self, name: str, dims: list[int], kind: int, offset: int) -> None:
        self.string(f"name:{name}", name)
        self.add(f"{name}.num_dims", "I", len(dims))
        for i, dim in enumerate(dims):
            self.add(f"{name}.dim{i}", "Q", dim)
        self.add(f"{name}.type", "I", kind)
        self.add(f"{name}.offset", "Q", offset)

    def pad(self) -> None:
        self.fields.append(("padding", b"\0" * (-len(self.bytes()) % ALIGNMENT)))

    def replaced(self, label: str, layout: str, *values: object) -> Pieces:
        """A copy in which one field holds something else."""
        return self.replaced_bytes(label, struct.pack("<" + layout, *values))

    def replaced_bytes(self, label: str, raw: bytes) -> Pieces:
        copy = Pieces()
        copy.fields = [(name, raw if name == label else old) for name, old in self.fields]
        assert copy.fields != self.fields, f"no field {label}, or nothing changed"
        return copy

    def offset(self, label: str) -> int:
        at = 0
        for name, raw in self.fields:
            if name == label:
                return at
            at += len(raw)
        raise KeyError(label)

    def bytes(self) -> bytes:
        return b"".join(raw for _, raw in self.fields)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.bytes())
        return path


def sound_file(version: int = 3) -> Pieces:
    """Every kind of value, and two tensors: `norm` F32 [8] and `linear` Q8_0 [2, 64]."""
    p = Pieces()
    p.fields.append(("magic", b"GGUF"))
    p.add("version", "I", version)
    p.add("tensor_count", "Q", 2)
    p.add("pair_count", "Q", 18)
    p.text("general.architecture", "llama")
    for kind, layout, value in (
        (0, "B", 200), (1, "b", -3), (2, "H", 60000), (3, "h", -300), (4, "I", 4_000_000_000), (5, "i", -70000),
        (6, "f", 1.5), (7, "B", 1), (10, "Q", 1 << 60), (11, "q", -(1 << 60)), (12, "d", 0.1),
    ):  # fmt: skip
        p.scalar(f"value.{kind}", kind, layout, value)
    p.array("words", 8, "s", ["", "a", "Ġgrün", "你好", "x" * 40])
    p.array("types", 5, "i", [1, -2, 3])
    p.array("scores", 6, "f", [0.5, -1000.0])
    p.array("flags", 7, "B", [1, 0, 1])
    p.array("nothing", 8, "s", [])
    p.scalar("general.alignment", 4, "I", ALIGNMENT)
    p.tensor("norm", [8], 0, 0)
    p.tensor("linear", [64, 2], 8, 32)
    p.pad()
    p.add("data:norm", "8f", *range(8))
    p.fields.append(("data:linear", bytes(range(136))))
    return p
