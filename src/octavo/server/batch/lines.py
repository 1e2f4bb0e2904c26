"""The lines of an input file: checked all before the first is run, read one by one when it is."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from octavo.errors import InvalidRequestError

BATCH_URLS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
"""What a line may ask for."""
MAX_LINE_BYTES = 64 * 2**20
"""A longer line is a file of another kind."""


class BatchLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request."""

    custom_id: str
    """The client's name for it; no two lines have the same."""
    url: str
    body: dict[str, Any]
    method: str = "POST"


@dataclass(frozen=True)
class BatchPlan:
    """What an input file asks for."""

    path: Path
    num_lines: int
    done: frozenset[str]
    """Requests that have their answer already, by their custom_id."""

    @property
    def num_to_do(self) -> int:
        """Requests without an answer."""
        return self.num_lines - len(self.done)

    def to_do(self) -> Iterator[BatchLine]:
        """The requests without an answer, in the order of the file; one at a time is in memory."""
        return (line for line in read_lines(self.path) if line.custom_id not in self.done)


def plan_batch(path: Path, answered: frozenset[str]) -> BatchPlan:
    """Reads a whole file once, so that what is wrong with it is told before anything is run.

    Args:
        answered: custom_ids in the output file.

    Raises:
        InvalidRequestError: a line is no request, a custom_id stands twice, or the output file answers other requests.
        InvalidRequestError: the file cannot be read.
    """
    try:
        path.open("rb").close()
    except OSError as error:
        problem = f"cannot be read ({error.strerror}); give a file that holds a request a line"
        raise InvalidRequestError("input", str(path), problem) from None
    seen: set[str] = set()
    for number, line in enumerate(read_lines(path), 1):
        if line.custom_id in seen:
            raise _wrong(path, number, "custom_id", line.custom_id, "an earlier line has the same")
        seen.add(line.custom_id)
    strange = next(iter(answered - seen), None)
    if strange is not None:
        problem = f"the output file holds the answer to {strange!r}, which {path} does not ask for; name another file"
        raise InvalidRequestError("output", strange, problem)
    return BatchPlan(path, len(seen), answered)


def read_lines(path: Path) -> Iterator[BatchLine]:
    """The requests of a file; empty lines are passed over.

    Raises:
        InvalidRequestError: naming the line and the field.
    """
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if line.strip():
                yield _parse(path, number, line)


def _parse(path: Path, number: int, raw: bytes) -> BatchLine:
    if len(raw) > MAX_LINE_BYTES:
        raise _wrong(path, number, "line", raw[:20], f"has more than {MAX_LINE_BYTES} bytes")
    try:
        line = msgspec.json.decode(raw, type=BatchLine)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = f"is no request of a batch: {error}; it needs custom_id, method, url and body"
        raise _wrong(path, number, "line", raw[:60].decode("utf-8", "replace"), problem) from None
    if not line.custom_id:
        raise _wrong(path, number, "custom_id", "", "must not be empty")
    if line.method != "POST":
        raise _wrong(path, number, "method", line.method, "must be POST")
    if line.url not in BATCH_URLS:
        raise _wrong(path, number, "url", line.url, f"must be one of {', '.join(BATCH_URLS)}")
    if line.body.get("stream"):
        raise _wrong(path, number, "body.stream", True, "a batch has nobody to stream to; leave it out")
    return line


def _wrong(path: Path, number: int, field: str, value: object, problem: str) -> InvalidRequestError:
    return InvalidRequestError(f"{path}, line {number}: {field}", value, problem)
