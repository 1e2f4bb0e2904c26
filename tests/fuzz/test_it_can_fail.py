"""What the fuzzers watch for would be seen."""

import pytest

from tests.fuzz.control import ControlStream
from tests.fuzz.test_every_field import _problem


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (500, '{"error": {"message": "x", "type": "server_error", "param": null, "code": null}}'),
        (422, '{"detail": [{"loc": ["body"]}]}'),
        (400, "Bad Request"),
        (400, '{"error": {"message": "", "type": "invalid_request_error", "param": null, "code": null}}'),
    ],
)
def test_answers_that_no_client_can_use_are_seen(status: int, text: str) -> None:
    assert _problem(status, text.encode())


def test_other_tokens_are_seen(url: str) -> None:
    with ControlStream(url) as control:
        control.expected[0] = {0: [0] * 24}
        control.wait_for_a_problem()
    assert "is not" in control.problems[0]
