"""What goes wrong inside the libraries that tokenise, as errors of ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from octavo.errors import ModelFileError, OctavoError, RequestFailedError

MAX_TOKENIZER_BYTES = 256 * 2**20
"""Of tokenizer.json or tokenizer.model; the largest known are a tenth of it. The libraries read any number."""


@contextmanager
def reading_tokenizer(path: Path, library: str) -> Iterator[None]:
    """Around everything that the library does with a file that nobody has checked.

    Raises:
        ModelFileError: the file is too large, or the library cannot make sense of it.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ModelFileError(f"cannot be read ({error.strerror})", str(path)) from error
    if size > MAX_TOKENIZER_BYTES:
        raise ModelFileError(f"is {size} bytes long, more than the {MAX_TOKENIZER_BYTES} allowed", str(path))
    try:
        yield
    except OctavoError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not _is_panic(error):
            raise
        raise ModelFileError(f"the {library} library cannot read it: {error}", str(path)) from error


@contextmanager
def encoding() -> Iterator[None]:
    """Around an encoding: a panic, over a vocabulary that contradicts itself, ends this request alone.

    Raises:
        RequestFailedError: the library panicked.
    """
    try:
        yield
    except BaseException as error:
        if not _is_panic(error):
            raise
        raise RequestFailedError("the model's tokenizer fails at this text") from error


def _is_panic(error: BaseException) -> bool:
    """Rust's panics are no Exceptions, so that few catch them, and their class cannot be imported."""
    return type(error).__name__ == "PanicException"
