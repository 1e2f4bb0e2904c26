"""Reading little-endian fields from a mapped file: nothing is read, let alone allocated, before its end is known."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ModelFileError
from octavo.execution.loader.mapped_file import MappedFile

_U64 = struct.Struct("<Q")


class Cursor:
    """A position in a mapped file that only moves forward.

    Every method raises ModelFileError with the byte offset where the file ends too early; `what` names the field.
    """

    def __init__(self, file: MappedFile, offset: int = 0) -> None:
        self.file = file
        self.offset = offset

    @property
    def remaining(self) -> int:
        return self.file.size - self.offset

    def require(self, num_bytes: int, what: str) -> None:
        """Raises where fewer than `num_bytes` are left."""
        if num_bytes > self.remaining:
            raise self.bad(f"{what} needs {num_bytes} bytes, the file has {self.remaining} more: truncated or corrupt")

    def bad(self, problem: str) -> ModelFileError:
        """The error to raise for a fault at the current position."""
        return self.file.bad(self.offset, f"{problem}. Fetch the file again")

    def scalar(self, layout: struct.Struct, what: str) -> Any:
        """One number or bool of this layout."""
        self.require(layout.size, what)
        (value,) = layout.unpack_from(self.file.data, self.offset)
        self.offset += layout.size
        return value

    def count(self, what: str, bytes_each: int) -> int:
        """A 64-bit count of items of at least `bytes_each` bytes, all of which must still fit the file."""
        start = self.offset
        value = int(self.scalar(_U64, what))
        if value * bytes_each > self.remaining:
            raise self.file.bad(
                start, f"{what} is {value}, more than the {self.remaining} bytes left can hold. Fetch the file again"
            )
        return value

    def string(self, what: str, max_bytes: int | None = None) -> str:
        """A 64-bit length and that many bytes of UTF-8, at most `max_bytes`."""
        start = self.offset
        length = self.count(f"length of {what}", 1)
        if max_bytes is not None and length > max_bytes:
            problem = f"{what} is {length} bytes long, at most {max_bytes} are allowed"
            raise self.file.bad(start, f"{problem}. Fetch the file again")
        raw = self.file.data[self.offset : self.offset + length]
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise self.bad(f"{what} is not UTF-8 ({error.reason} at its byte {error.start})") from error
        self.offset += length
        return text

    def strings(self, count: int, what: str) -> list[str]:
        """`count` strings. A tight loop: vocabularies have hundreds of thousands of them."""
        data, size, offset = self.file.data, self.file.size, self.offset
        unpack = _U64.unpack_from
        texts = []
        for _ in range(count):
            start = offset + 8
            end = start + unpack(data, offset)[0] if start <= size else size + 1
            if end > size:
                break
            try:
                texts.append(data[start:end].decode())
            except UnicodeDecodeError:
                break
            offset = end
        self.offset = offset
        if len(texts) < count:
            self.string(f"{what}[{len(texts)}]")  # reads the string at fault again, and raises
        return texts

    def array(self, dtype: np.dtype[Any], count: int, what: str) -> NDArray[Any]:
        """`count` numbers, copied so that they are aligned and outlive the mapping."""
        self.require(count * dtype.itemsize, what)
        values = np.frombuffer(self.file.data, dtype=dtype, count=count, offset=self.offset).copy()
        self.offset += values.nbytes
        return values
