"""The exception tree. Every error a user can cause says what was wrong, where, and what to do about it."""


class OctavoError(Exception):
    """Base of everything Octavo raises on purpose."""


class InvalidRequestError(OctavoError, ValueError):
    """A request asks for something that cannot be honoured (HTTP 400).

    Attributes:
        field: name of the offending request field, as the user spelled it.
        value: the offending value.
    """

    def __init__(self, field: str, value: object, problem: str) -> None:
        self.field = field
        self.value = value
        self.problem = problem
        super().__init__(f"{field}={_short(value)}: {problem}")

    def __reduce__(self) -> tuple[type, tuple[str, object, str]]:
        return type(self), (self.field, self.value, self.problem)


class ConfigError(OctavoError, ValueError):
    """A flag or config field that cannot work; raised at start, names the field, the value and the fix."""

    def __init__(self, field: str, value: object, problem: str) -> None:
        self.field = field
        self.value = value
        self.problem = problem
        super().__init__(f"{field}={_short(value)}: {problem}")


class ModelError(OctavoError):
    """A model cannot be found, fetched or used."""


class ModelNotFoundError(ModelError):
    """No source knows this model name; the message lists what is known."""


class DownloadError(ModelError):
    """A source was out of reach, or what it sent is not what was pinned."""


class ModelFileError(ModelError):
    """A model file is truncated, hostile or not what its name says. Carries the path and the place in the file.

    Attributes:
        path: the file, where one file is at fault.
        offset: byte offset of the fault in it, where one is known.
    """

    def __init__(self, problem: str, path: str | None = None, offset: int | None = None) -> None:
        self.path = path
        self.offset = offset
        place = "" if offset is None else f" at byte {offset}"
        super().__init__(problem if path is None else f"{path}{place}: {problem}")


class UnsupportedModelError(ModelError):
    """The file is sound, but its architecture, tensor type or tokenizer is not one that Octavo runs."""


class OutOfMemoryError(OctavoError):
    """Weights or KV blocks do not fit; the message holds the arithmetic."""


class QueueFullError(OctavoError):
    """The bounded waiting queue is full (HTTP 429). ``retry_after_s`` is the suggested wait."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class ProfileError(OctavoError):
    """A profile cannot begin, since one runs, or cannot be had, since none does (HTTP 409)."""


class EngineDrainingError(OctavoError):
    """The engine takes no new requests, those that it has run to their end (HTTP 503)."""


class PinBudgetError(OctavoError):
    """A prefix cannot be held now, since others are (HTTP 429); the message holds the numbers and the fix.

    Attributes:
        retry_after_s: seconds until the next of these is free to go.
    """

    def __init__(self, message: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class SessionNotFoundError(OctavoError):
    """There is no such session, or its lease has ended (HTTP 404)."""


class RequestFailedError(OctavoError):
    """One request ended with an error inside the engine; others are untouched."""


class WorkerLostError(OctavoError):
    """What computes the steps is gone or computes nothing any more: the end of the engine, unlike a fault of one
    request."""


class EngineDeadError(OctavoError):
    """The engine core process is gone; nothing it held can be answered any more (HTTP 503)."""


def _short(value: object) -> str:
    if isinstance(value, str | bytes | list | tuple):
        value = value[:120]  # so that the text of a huge value is never made
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
