"""What is remembered of requests: by tenant, by either name, bounded."""

import random

from octavo.engine.ledgers import Ledgers
from octavo.request.ledger import ChoiceLedger, Delivered
from octavo.request.orders import End
from octavo.request.outputs import FinishReason, RequestStats
from octavo.request.params import SamplingParams
from octavo.request.request import GenerateRequest


def opened(ledgers: Ledgers, request_id: str, *, tenant: str = "t", group: str = "", alias: str = "") -> None:
    ledgers.opened(
        GenerateRequest(
            request_id=request_id,
            prompt_token_ids=[1],
            params=SamplingParams(),
            tenant=tenant,
            group=group,
            alias=alias,
        )
    )


def look(request_id: str) -> ChoiceLedger:
    return ChoiceLedger(request_id=request_id, state="running", stats=RequestStats(arrival_s=1.0))


def states(ledgers: Ledgers, name: str, tenant: str = "t") -> list[tuple[str, str]] | None:
    found = ledgers.find(tenant, name, look, 9.0)
    return None if found is None else [(choice.request_id, choice.state) for choice in found.choices]


def test_a_request_is_found_by_either_name_while_it_runs_and_after() -> None:
    ledgers = Ledgers()
    for index in range(3):
        opened(ledgers, f"chatcmpl-1-{index}", group="chatcmpl-1", alias="mine")
    stats = RequestStats(arrival_s=1.0, num_output_tokens=7)
    ledgers.closed("chatcmpl-1-1", FinishReason.STOP, stats)
    expected = [("chatcmpl-1-0", "running"), ("chatcmpl-1-1", "finished"), ("chatcmpl-1-2", "running")]
    assert states(ledgers, "chatcmpl-1") == states(ledgers, "mine") == expected
    assert ledgers.live_ids("t", ["mine", "unknown"]) == {"chatcmpl-1": ["chatcmpl-1-0", "chatcmpl-1-2"]}
    for index in (0, 2):
        ledgers.closed(f"chatcmpl-1-{index}", FinishReason.ABORT, RequestStats(arrival_s=1.0))
    found = ledgers.find("t", "mine", look, 9.0)
    assert found is not None and [choice.finish_reason for choice in found.choices] == ["abort", "stop", "abort"]
    assert found.choices[1].stats == stats
    assert ledgers.live_ids("t", ["mine"]) == {} and ledgers.live(look, 9.0) == []


def test_the_last_sequence_may_come_after_the_first_has_ended() -> None:
    ledgers = Ledgers()
    opened(ledgers, "r-0", group="r")
    ledgers.closed("r-0", FinishReason.LENGTH, RequestStats())
    opened(ledgers, "r-1", group="r")
    assert states(ledgers, "r") == [("r-0", "finished"), ("r-1", "running")]
    ledgers.closed("r-1", FinishReason.LENGTH, RequestStats())
    assert len(ledgers) == 1


def test_an_id_used_anew_is_another_request() -> None:
    ledgers = Ledgers()
    for _ in range(3):
        opened(ledgers, "same", alias="x")
        ledgers.closed("same", FinishReason.LENGTH, RequestStats())
    assert states(ledgers, "same") == [("same", "finished")]
    assert len(ledgers) == 1


def test_nobody_finds_what_others_made() -> None:
    ledgers = Ledgers()
    opened(ledgers, "r", tenant="a", alias="mine")
    opened(ledgers, "s", tenant="b", alias="mine")
    assert states(ledgers, "r", tenant="b") is None
    assert states(ledgers, "mine", tenant="b") == [("s", "running")]
    assert ledgers.live_ids("b", ["r"]) == {}
    assert states(ledgers, "mine", tenant="") is None
    assert [ledger.tenant for ledger in ledgers.live(look, 9.0)] == ["a", "b"]


def test_the_oldest_are_forgotten_by_number_and_by_bytes() -> None:
    few, small = Ledgers(max_recent=3), Ledgers(max_bytes=3000)
    for ledgers in (few, small):
        opened(ledgers, "lives on", alias="alias")
        for number in range(50):
            opened(ledgers, f"r{number}", alias=f"a{number}")
            ledgers.closed(f"r{number}", FinishReason.LENGTH, RequestStats())
        assert states(ledgers, "r0") is None and states(ledgers, "a0") is None
        assert states(ledgers, "a49") == [("r49", "finished")]
        assert states(ledgers, "alias") == [("lives on", "running")]
    assert len(few) == 1 + 3
    assert 1000 < small.num_bytes <= 3000


def test_an_end_that_was_told_otherwise_is_put_right() -> None:
    ledgers = Ledgers()
    for index in range(2):
        opened(ledgers, f"r-{index}", group="r", alias="mine")
    stats = RequestStats(arrival_s=1.0, num_output_tokens=7)
    ledgers.closed("r-0", FinishReason.LENGTH, stats)
    told = End(tenant="t", group="r", request_id="r-0", reason=FinishReason.STOP)
    assert ledgers.correct(told) == stats
    ledgers.closed("r-1", FinishReason.LENGTH, RequestStats(arrival_s=2.0))
    before = ledgers.num_bytes
    assert ledgers.correct(End(tenant="t", group="r", request_id="r-1", reason=FinishReason.ERROR)) is not None
    assert ledgers.num_bytes == before - len("length") + len("error")
    found = ledgers.find("t", "mine", look, 9.0)
    assert found is not None and [choice.finish_reason for choice in found.choices] == ["stop", "error"]
    for tenant, group, request_id in (("u", "r", "r-0"), ("t", "x", "r-0"), ("t", "r", "r-2")):
        assert ledgers.correct(End(tenant=tenant, group=group, request_id=request_id, reason=FinishReason.STOP)) is None
    for index in range(5000):
        opened(ledgers, f"o-{index}")
        ledgers.closed(f"o-{index}", FinishReason.STOP, RequestStats())
    assert ledgers.correct(told) is None


def test_its_own_books_agree_after_random_traffic() -> None:
    chance, ledgers, live = random.Random(5), Ledgers(max_recent=20, max_bytes=20_000), set()
    for number in range(3000):
        group = f"g{chance.randrange(60)}"
        request_id = f"{group}-{chance.randrange(4)}-{number}"
        if chance.random() < 0.5:
            opened(ledgers, request_id, tenant=chance.choice("ab"), group=group, alias=f"x{chance.randrange(30)}")
            live.add(request_id)
        elif live:
            live.discard(one := chance.choice(sorted(live)))
            ledgers.closed(one, chance.choice(list(FinishReason)), RequestStats())
        assert len(ledgers._ended) <= 20 and ledgers.num_bytes == sum(ledgers._ended.values()) <= 20_000
    assert set(ledgers._of_live) == live
    for request_id in live:
        ledgers.closed(request_id, FinishReason.STOP, RequestStats())
    assert len(ledgers) <= 20 and len(ledgers._by_alias) <= 20 and not ledgers._of_live


def delivered_s(ledgers: Ledgers, name: str) -> float | None:
    found = ledgers.find("t", name, look, 9.0)
    assert found is not None
    return found.choices[0].stats.delivered_s


def test_an_answer_that_has_left_ends_its_ledger() -> None:
    ledgers = Ledgers()
    opened(ledgers, "r-0", group="r")
    ledgers.closed("r-0", FinishReason.STOP, RequestStats(arrival_s=1.0, finished_s=3.0))
    assert delivered_s(ledgers, "r") is None
    ledgers.delivered(Delivered(tenant="t", group="r", delivered_s=3.5))
    assert delivered_s(ledgers, "r") == 3.5
    ledgers.delivered(Delivered(tenant="another", group="r", delivered_s=7.0))
    ledgers.delivered(Delivered(tenant="t", group="unknown", delivered_s=7.0))
    assert delivered_s(ledgers, "r") == 3.5


def test_a_client_that_left_before_the_end_was_delivered_nothing() -> None:
    ledgers = Ledgers()
    opened(ledgers, "r-0", group="r")
    ledgers.delivered(Delivered(tenant="t", group="r", delivered_s=2.0))
    assert delivered_s(ledgers, "r") is None
    ledgers.closed("r-0", FinishReason.ABORT, RequestStats(arrival_s=1.0, finished_s=2.5))
    assert delivered_s(ledgers, "r") is None
