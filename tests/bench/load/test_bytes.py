"""Responses and event streams, however their bytes are cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.load.event_stream import EventStream
from octavo.bench.load.exchange import Outcome
from octavo.bench.load.http_response import BadResponseError, HttpResponse
from octavo.bench.load.reception import Reception

OK = b"HTTP/1.1 200 OK\r\n"
BODY = b'data: {"a": 1}\n\ndata: second\n\n: a comment\n\nevent: x\ndata: two\r\ndata:lines\r\n\r\ndata: [DONE]\n\n'
EVENTS = [b'{"a": 1}', b"second", b"two\nlines", b"[DONE]"]
CHUNKED = (
    OK
    + b"Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n"
    + b"5;x=y\r\n"
    + BODY[:5]
    + b"\r\n%X\r\n" % (len(BODY) - 5)
    + BODY[5:]
    + b"\r\n0\r\nTrailer: x\r\n\r\n"
)
SIZED = b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
UNTIL_CLOSED = b"HTTP/1.0 200 OK\r\n\r\n" + BODY
cuts = st.lists(st.integers(0, len(CHUNKED)), max_size=12)


def pieces(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(place for place in at if place < len(data))})
    return [data[begin:end] for begin, end in itertools.pairwise(places)]


@given(cuts, st.sampled_from([CHUNKED, SIZED, UNTIL_CLOSED]))
def test_a_body_is_whole_however_it_is_cut(at: list[int], data: bytes) -> None:
    response, events = HttpResponse(), EventStream()
    bodies = [response.feed(piece) for piece in pieces(data, at)]
    assert response.complete is (data is not UNTIL_CLOSED)
    response.connection_ended()
    assert response.complete
    assert b"".join(bodies) == BODY
    assert [event for body in bodies for event in events.feed(body)] == EVENTS
    assert response.keeps_open is (data is not UNTIL_CLOSED)


def test_every_byte_alone() -> None:
    for data in (CHUNKED, SIZED):
        response = HttpResponse()
        assert b"".join(response.feed(data[n : n + 1]) for n in range(len(data))) == BODY
        assert response.complete


def test_a_connection_that_ends_amid_a_chunked_body_leaves_it_incomplete() -> None:
    for data in (CHUNKED[:-3], SIZED[:-1], OK[:-1]):
        response = HttpResponse()
        response.feed(data)
        response.connection_ended()
        assert not response.complete


def test_a_connection_that_will_close_carries_nothing_more() -> None:
    response = HttpResponse()
    response.feed(OK + b"Connection: close\r\nContent-Length: 0\r\n\r\n")
    assert (response.complete, response.keeps_open) == (True, False)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        OK + b"Content-Length: -1\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"x" * 70_000,
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 70_000,
    ],
)
def test_what_is_no_response_is_refused(data: bytes) -> None:
    with pytest.raises(BadResponseError):
        HttpResponse().feed(data)


@given(st.lists(st.integers(0, 400), max_size=12))
def test_an_answer_is_the_same_however_it_is_cut(at: list[int]) -> None:
    parts = [b'{"choices":[{"text":"a\\n\\u00e9"}],"more":[1]}', b'{"choices":[{"text":"b","finish_reason":"stop"}]}']
    parts += [b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}', b"[DONE]"]
    body = b"".join(b"data: " + part + b"\n\n" for part in parts)
    data = OK + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
    reception = Reception()
    for piece in pieces(data, at):
        assert not reception.over
        reception.feed(piece, 1.0)
    assert reception.over
    answer = reception.answer(0.0, 2.0)
    assert (answer.text, answer.prompt_tokens, answer.output_tokens) == ("a\né" + "b", 3, 2)
    assert (answer.outcome, answer.finish_reason, list(answer.chunk_s)) == ("completed", "stop", [1.0, 1.0])


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabc\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n1_0\r\n" + b"a" * 16 + b"\r\n0\r\n\r\n",
        OK + b"content-length: \xb2\r\n\r\n",
        OK + b"content-length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 \xb200 OK\r\n\r\n",
        OK + b'\r\ndata: {"error": ' + b"[" * 100_000 + b"\n\n",
        OK + b'\r\ndata: {"choices": [{"text": "a"}], "usage": {"completion_tokens": -5}}\n\ndata: [DONE]\n\n',
        OK + b'\r\ndata: {"choices": [{"text": "a"}], "usage": {"completion_tokens": 1e300}}\n\ndata: [DONE]\n\n',
    ],
    ids=["chunk below 0", "chunk of 1_0", "length of ²", "endless length", "status of ²", "deep", "negative", "huge"],
)
def test_what_is_no_answer_ends_the_request_and_nothing_else(answer: bytes) -> None:
    reception = Reception()
    reception.feed(answer, 1.0)
    assert reception.over and not reception.keeps_open
    told = reception.answer(0.0, 2.0)
    assert told.outcome is Outcome.ERRORED and "not what a server of this protocol sends" in (told.error or "")
    assert told.output_tokens is None


def test_a_refusal_that_cannot_be_read_is_a_refusal() -> None:
    reception = Reception()
    reception.feed(b"HTTP/1.1 429 No\r\ncontent-length: 4000\r\n\r\n" + b"[" * 4000, 1.0)
    assert reception.answer(0.0, 2.0).outcome is Outcome.REJECTED


def test_a_refusal_without_a_word_has_its_status() -> None:
    reception = Reception()
    reception.feed(b"HTTP/1.1 429 No\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n", 1.0)
    told = reception.answer(0.0, 2.0)
    assert told.outcome is Outcome.REJECTED and told.error == "HTTP 429"


def test_a_server_that_does_not_stream_is_told_apart_from_one_that_breaks_off() -> None:
    body = b'{"choices": [{"text": "a", "finish_reason": "length"}]}'
    reception = Reception()
    reception.feed(OK + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body, 1.0)
    assert "--no-stream" in (reception.answer(0.0, 2.0).error or "")
