"""The output file: one answer a line, in the order in which they are ready. Whatever ends the program, the file holds
whole answers and can be gone on with."""

import os
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from octavo.errors import InvalidRequestError

_TAIL_BYTES = 2**20
_encode = msgspec.json.Encoder().encode


class _Answered(msgspec.Struct):
    custom_id: str


def answered_ids(path: Path) -> frozenset[str]:
    """The custom_ids that an output file has answers for; none if there is no file. A last line that was cut off in the
    writing counts for nothing: `ResultFile` takes it away.

    Raises:
        InvalidRequestError: the file is no output of a batch, or has two answers to one request.
    """
    if not path.exists():
        return frozenset()
    found: set[str] = set()
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            custom_id = _custom_id(path, number, line)
            if custom_id in found:
                raise InvalidRequestError(
                    f"{path}, line {number}: custom_id", custom_id, "an earlier line has the same"
                )
            found.add(custom_id)
    return frozenset(found)


def _custom_id(path: Path, number: int, line: bytes) -> str:
    try:
        return msgspec.json.decode(line, type=_Answered).custom_id
    except (msgspec.DecodeError, UnicodeDecodeError):
        shown = line[:60].decode("utf-8", "replace")
        problem = "is no answer of a batch; name a new file, or the output of this batch that is to be gone on with"
        raise InvalidRequestError(f"{path}, line {number}: line", shown, problem) from None


class ResultFile:
    """Appends answers. Each is one write, and none is lost once the program goes on."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            OSError: the file cannot be written.
        """
        self._file = path.open("ab", buffering=0)
        os.ftruncate(self._file.fileno(), _whole_bytes(path))

    def __enter__(self) -> "ResultFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.fsync(self._file.fileno())
        self._file.close()

    def add(self, answer: dict[str, Any]) -> None:
        """Writes one answer.

        Raises:
            OSError: the disk is full, say; then the file ends with a part of a line, which the next start takes away.
        """
        line = memoryview(_encode(answer) + b"\n")
        while line:
            line = line[self._file.write(line) or 0 :]


def _whole_bytes(path: Path) -> int:
    """Where the last whole line ends."""
    size = path.stat().st_size
    with path.open("rb") as file:
        end = size
        while end > 0:
            begin = max(0, end - _TAIL_BYTES)
            file.seek(begin)
            newline = file.read(end - begin).rfind(b"\n")
            if newline >= 0:
                return begin + newline + 1
            end = begin
    return 0
