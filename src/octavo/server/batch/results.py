"""The output file: one answer a line, in the order in which they are ready. Whatever ends the program, the file holds
whole answers and can be gone on with."""

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from octavo.errors import InvalidRequestError

_TAIL_BYTES = 2**20
_encode = msgspec.json.Encoder().encode


class _Response(msgspec.Struct):
    status_code: int = 200


class _Answered(msgspec.Struct):
    custom_id: str
    response: _Response | None = None
    error: Any = None

    @property
    def failed(self) -> bool:
        return self.error is not None or (self.response is not None and self.response.status_code != 200)


@dataclass(frozen=True)
class Answers:
    """What an output file holds."""

    ids: frozenset[str]
    """custom_ids of the requests that have an answer."""
    num_failed: int
    """How many of these answers are errors."""


def answers_in(path: Path) -> Answers:
    """The answers that stand in an output file; none if there is no file. A last line that was cut off in the writing
    counts for nothing: `ResultFile` takes it away.

    Raises:
        InvalidRequestError: the file is no output of a batch, or has two answers to one request.
    """
    if not path.exists():
        return Answers(frozenset(), 0)
    found: set[str] = set()
    num_failed = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            answer = _answer(path, number, line)
            if answer.custom_id in found:
                problem = "an earlier line has the same"
                raise InvalidRequestError(f"{path}, line {number}: custom_id", answer.custom_id, problem)
            found.add(answer.custom_id)
            num_failed += answer.failed
    return Answers(frozenset(found), num_failed)


def _answer(path: Path, number: int, line: bytes) -> _Answered:
    try:
        return msgspec.json.decode(line, type=_Answered)
    except (msgspec.DecodeError, UnicodeDecodeError):
        shown = line[:60].decode("utf-8", "replace")
        problem = "is no answer of a batch; name a new file, or the output of this batch that is to be gone on with"
        raise InvalidRequestError(f"{path}, line {number}: line", shown, problem) from None


class ResultFile:
    """Appends answers. Each is one write, and none is lost once the program goes on."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            InvalidRequestError: the file cannot be written.
        """
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            problem = f"cannot be written ({error.strerror}); name a file in a folder that is there"
            raise InvalidRequestError("output", str(path), problem) from None
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
