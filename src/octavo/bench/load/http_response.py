"""An HTTP/1.1 response, read as its bytes come: status, headers, body. No input or output."""

import re

_HEAD_LIMIT = 1 << 16
_NO_BODY = (204, 304)
_STATUS = re.compile(r"[1-9][0-9]{2}(?![0-9])")
_LENGTH = re.compile(r"[0-9]{1,18}")
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
"""What `int` alone takes is more: signs, underscores, other scripts' digits."""


class BadResponseError(ValueError):
    """The peer does not speak HTTP/1.1."""


class HttpResponse:
    """Feed it bytes; it gives back what of them is body.

    Bodies are chunked (RFC 9112, 7.1), of a told length, or end with the connection.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        """Names in lower case; of repeated ones the last."""
        self.complete = False
        """Whether the body has ended; nothing may be fed then."""
        self._rest = b""
        self._chunked = False
        self._in_trailers = False
        self._left: int | None = None
        """Bytes that are still to come of the body, or of its present chunk with the line's end after it."""

    @property
    def keeps_open(self) -> bool:
        """Whether the connection can carry another request after this response."""
        told = self.headers.get("connection", "").lower()
        return self.complete and "close" not in told and (self._chunked or "content-length" in self.headers)

    def feed(self, data: bytes) -> bytes:
        """The part of the body in `data`.

        Raises:
            BadResponseError: the bytes are no response.
        """
        data = self._rest + data if self._rest else data
        self._rest = b""
        while self.status is None or self.status < 200:  # what comes before the response itself (100, 103) counts not
            end = data.find(b"\r\n\r\n")
            if end < 0:
                return self._keep(data)
            self._read_head(data[:end])
            data = data[end + 4 :]
        return self._chunks(data) if self._chunked else self._plain(data)

    def connection_ended(self) -> None:
        """The peer has closed: the end of a body that tells its length by nothing else."""
        if self.status is not None and not self._chunked and self._left is None:
            self.complete = True

    def _keep(self, data: bytes) -> bytes:
        if len(data) > _HEAD_LIMIT:
            raise BadResponseError(f"{len(data)} bytes without the end of a line or a head")
        self._rest = data
        return b""

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, told = first.partition(" ")
        if not version.startswith("HTTP/1.") or _STATUS.match(told) is None:
            raise BadResponseError(f"{first[:80]!r} is no status line of HTTP/1.1")
        self.status = int(told[:3])
        self.headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = "0" if self.status in _NO_BODY else self.headers.get("content-length")
        if length is not None and _LENGTH.fullmatch(length) is None:
            raise BadResponseError(f"content-length {length[:40]!r} is no number of bytes")
        self._left = None if self._chunked or length is None else int(length)
        self.complete = self._left == 0 and self.status >= 200

    def _plain(self, data: bytes) -> bytes:
        if self._left is None:
            return data
        taken, self._left = data[: self._left], max(0, self._left - len(data))
        self.complete = self._left == 0
        return taken

    def _chunks(self, data: bytes) -> bytes:
        parts, at = [], 0
        while at < len(data) and not self.complete:
            if self._left is None:
                end = data.find(b"\r\n", at)
                if end < 0:
                    self._keep(data[at:])
                    break
                self._begin_chunk(data[at:end])
                at = end + 2
            else:
                taken = data[at : at + self._left]
                at, left = at + len(taken), self._left - len(taken)
                parts.append(taken[: len(taken) - max(0, 2 - left)])  # without what there is of the line's end
                self._left = left or None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _begin_chunk(self, line: bytes) -> None:
        """Of the last chunk nothing follows but trailers, up to an empty line."""
        if self._in_trailers:
            self.complete = not line
            return
        told = line.partition(b";")[0].strip()
        if _CHUNK_SIZE.fullmatch(told) is None:
            raise BadResponseError(f"{line[:40]!r} is no size of a chunk")
        size = int(told, 16)
        self._in_trailers = size == 0
        self._left = size + 2 if size else None
