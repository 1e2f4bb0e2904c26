"""The server against its own description, as schemathesis understands it."""

from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error

from tests.effort import times
from tests.fuzz.control import ControlStream

AS_MANY = settings(
    max_examples=times(5),
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def test_no_request_breaks_the_server(url: str, description: dict[str, Any]) -> None:
    num_operations = 0
    with ControlStream(url) as control:
        for result in schemathesis.openapi.from_dict(description).get_all_operations():
            _try_out(result.ok(), url)
            num_operations += 1
    assert not control.problems
    assert control.num_answers > 0
    assert num_operations == sum(len(methods) for methods in description["paths"].values())


def _try_out(operation: schemathesis.APIOperation, url: str) -> None:
    @AS_MANY
    @given(case=operation.as_strategy())
    def check(case: schemathesis.Case) -> None:
        case.call_and_validate(base_url=url, checks=[not_a_server_error], timeout=120)

    check()
