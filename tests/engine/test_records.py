"""Records that the API's processes keep with the engine: bounds, tenants, and the way through a real core."""

from hypothesis import given
from hypothesis import strategies as st

from octavo.engine.records import Records
from octavo.request.orders import RecordLimits
from tests.engine.test_async_llm import engine, run

LIMITS = RecordLimits(max_records=10, max_bytes=100, max_age_s=60)


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_record_is_its_tenants_alone() -> None:
    records = Records(Clock())
    assert records.put("a", "x", b"of a", LIMITS)
    assert records.get("a", "x") == b"of a"
    assert records.get("b", "x") is None
    assert not records.remove("b", "x")
    assert records.remove("a", "x")
    assert records.get("a", "x") is None


def test_age_ends_a_record() -> None:
    clock = Clock()
    records = Records(clock)
    records.put("a", "x", b"old", LIMITS)
    clock.now_s = 59.9
    records.put("a", "y", b"new", LIMITS)
    assert records.get("a", "x") == b"old"
    clock.now_s = 60
    assert records.get("a", "x") is None
    assert records.get("a", "y") == b"new"
    assert records.num_records == 1


def test_the_oldest_goes_first_and_only_of_who_has_most() -> None:
    records = Records(Clock())
    records.put("quiet", "x", b"1", LIMITS)
    for number in range(30):
        assert records.put("loud", str(number), b"2", LIMITS)
    assert records.get("quiet", "x") == b"1"
    assert [records.get("loud", str(number)) is not None for number in range(30)] == [False] * 21 + [True] * 9
    records.put("large", "x", bytes(95), LIMITS)
    assert records.get("quiet", "x") == b"1"
    assert records.num_bytes <= 100


def test_what_is_too_large_is_not_kept_and_drives_out_nobody() -> None:
    records = Records(Clock())
    records.put("a", "x", b"1", LIMITS)
    assert not records.put("a", "y", bytes(101), LIMITS)
    assert not records.put("a", "z", b"", RecordLimits(max_records=0, max_bytes=100, max_age_s=60))
    assert records.get("a", "x") == b"1"


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(0, 60), st.integers(0, 30), st.booleans()
        ),
        max_size=60,
    )
)
def test_bounds_hold_and_counts_are_true(steps: list[tuple[str, str, int, int, bool]]) -> None:
    clock, newest = Clock(), dict[tuple[str, str], bytes]()
    records = Records(clock)
    limits = RecordLimits(max_records=4, max_bytes=100, max_age_s=60)
    for tenant, name, size, wait_s, drops in steps:
        clock.now_s += wait_s
        if drops:
            records.remove(tenant, name)
            newest.pop((tenant, name), None)
        else:
            newest[tenant, name] = bytes([len(newest)]) * size
            assert records.put(tenant, name, newest[tenant, name], limits)
        found = {key: records.get(*key) for key in newest}
        kept = [content for content in found.values() if content is not None]
        assert all(content in (None, newest[key]) for key, content in found.items())
        assert len(kept) == records.num_records <= 4
        assert sum(map(len, kept)) == records.num_bytes <= 100


def test_records_live_with_the_core(tiny_model: str) -> None:
    async def body() -> None:
        async with engine(tiny_model) as llm:
            content = bytes(range(256)) * 1000
            limits = RecordLimits(max_records=10, max_bytes=2**20, max_age_s=60)
            assert await llm.put_record("x", content, limits, tenant="a")
            assert await llm.record("x", tenant="a") == content
            assert await llm.record("x", tenant="b") is None
            assert await llm.remove_record("x", tenant="a")
            assert await llm.record("x", tenant="a") is None
            assert not await llm.put_record("x", bytes(2**20 + 1), limits, tenant="a")

    run(body)
