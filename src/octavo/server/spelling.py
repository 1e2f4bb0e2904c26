"""Fields by the names that an endpoint's users know."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from octavo.errors import InvalidRequestError
from octavo.server.errors import ApiError


@contextmanager
def respelled(spellings: Mapping[str, str]) -> Iterator[None]:
    """Around code that knows a field by another name: errors leave with the users' one.

    Args:
        spellings: name in errors -> name for users.
    """
    try:
        yield
    except InvalidRequestError as error:
        if error.field not in spellings:
            raise
        raise InvalidRequestError(spellings[error.field], error.value, error.problem) from None
    except ApiError as error:
        if error.param is None or error.param not in spellings:
            raise
        field = spellings[error.param]
        message = error.message.replace(error.param, field)
        raise ApiError(error.status, message, param=field, code=error.code) from None
