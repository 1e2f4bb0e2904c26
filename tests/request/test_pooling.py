"""What pooling parameters take and refuse."""

import msgspec
import pytest

from octavo.errors import InvalidRequestError
from octavo.request.pooling import NOTHING_SAMPLED, PoolingParams
from octavo.request.request import GenerateRequest


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pooling", "max"),
        ("pooling", None),
        ("pooling", ["last"]),
        ("normalize", 1),
        ("normalize", None),
        ("dimensions", 0),
        ("dimensions", -3),
        ("dimensions", True),
        ("dimensions", 8.0),
        ("dimensions", 2**21),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        PoolingParams(**{field: value})
    assert (refusal.value.field, refusal.value.value) == (field, value)


def test_only_sums_over_all_positions_need_them_all() -> None:
    assert PoolingParams(pooling="mean").needs_every_position
    assert not PoolingParams().needs_every_position


def test_a_pooled_request_crosses_to_the_core_and_back() -> None:
    request = GenerateRequest(
        request_id="a", prompt_token_ids=[1], params=NOTHING_SAMPLED, pooling=PoolingParams(dimensions=3)
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=GenerateRequest) == request
