"""Server-sent events, split as bytes come. No input or output."""


class EventStream:
    """Feed it bytes; it gives back the data of each event that is whole. Fields other than `data`, and comments, are
    passed over. (WHATWG HTML, 9.2.6; lines end with LF or CRLF, as every server of this protocol ends them.)"""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, body: bytes) -> list[bytes]:
        """Data of the events that ended in `body`."""
        if body[:6] == b"data: " and body.find(b"\n\n") == len(body) - 2 and self._is_fresh(body):
            return [body[6:-2]]  # one event and no more, which is nearly all there is
        *lines, self._rest = (self._rest + body).split(b"\n")
        events = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line[:5] == b"data:":
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events

    def _is_fresh(self, body: bytes) -> bool:
        """Whether nothing is left from before, and the first line's end is that of the event's only line."""
        return not self._rest and not self._data and body.find(b"\n") == len(body) - 2
