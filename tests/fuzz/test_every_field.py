"""Every field of every endpoint with values that do not belong there, while another client goes on."""

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest

from tests.effort import LONG
from tests.fuzz.bodies import Operation, field_paths, operations, with_value
from tests.fuzz.control import ControlStream
from tests.fuzz.values import FEW, MARK, MORE, Odd, text_of

MAX_AT_ONCE = 8
Case = tuple[str, Operation, bytes]
"""A name, and a request."""


def test_small_bodies_are_valid(url: str, description: dict[str, Any]) -> None:
    """Otherwise whatever is changed about them is refused for a reason of no interest."""
    for operation in operations(description):
        answer = httpx.request(operation.method, url + _filled(operation.path), json=operation.body, timeout=60)
        assert answer.status_code in (200, 201, 404), (operation.path, operation.body, answer.text)


def test_no_value_harms_the_server(url: str, description: dict[str, Any]) -> None:
    statuses = _mistreat(url, description, FEW, 1 if LONG else 2)
    assert statuses[200] > 50, "the fuzzer must get through to the engine, too"
    assert statuses[400] > 300


@pytest.mark.slow
def test_no_further_value_harms_the_server(url: str, description: dict[str, Any]) -> None:
    statuses = _mistreat(url, description, MORE, 1 if LONG else 4)
    assert statuses[200] > 15
    assert statuses[400] > 150


def _mistreat(url: str, description: dict[str, Any], values: Sequence[Odd], share: int) -> Counter[int]:
    """Status -> how often.

    Raises:
        AssertionError: an answer that no client can use, or a control stream with other tokens.
    """
    with ControlStream(url) as control:
        answers = _ask_all(url, list(_cases(description, values, share)))
    assert not control.problems
    assert control.num_answers > 0
    bad = [f"{name}: {problem}" for name, _, problem in answers if problem]
    assert not bad, "\n".join([f"{len(bad)} bad answers", *bad[:20]])
    assert httpx.get(f"{url}/health").status_code == 200
    return Counter(status for _, status, _ in answers)


def _cases(description: dict[str, Any], values: Sequence[Odd], share: int) -> Iterator[Case]:
    """Every field with every so many of the values, each value with every so many of the fields."""
    definitions = description["components"]["schemas"]
    fields = itertools.count()
    for operation in operations(description):
        for path in dict.fromkeys(field_paths(operation.schema, definitions)):
            body = with_value(operation.body, path, MARK)
            for odd in values[next(fields) % share :: share]:
                where = ".".join(map(str, path))
                yield f"{operation.path} {where}={odd.name}", operation, text_of(body, odd)


def _ask_all(url: str, cases: Sequence[Case]) -> list[tuple[str, int, str]]:
    """(name, status, problem) of each case; the problem is empty if there is none.

    By the standard library's client, which takes a fifth of the time of the others'.
    """
    waiting = iter(cases)
    answers: list[tuple[str, int, str]] = []

    def work() -> None:
        connection = HTTPConnection(httpx.URL(url).netloc.decode(), timeout=120)
        with contextlib.closing(connection):
            for name, operation, body in waiting:
                headers = {"Content-Type": "application/json"}
                connection.request(operation.method, _filled(operation.path), body, headers)
                with connection.getresponse() as answer:
                    answers.append((name, answer.status, _problem(answer.status, answer.read())))

    with ThreadPoolExecutor(MAX_AT_ONCE) as pool:
        for worker in [pool.submit(work) for _ in range(MAX_AT_ONCE)]:
            worker.result()
    return answers


def _filled(path: str) -> str:
    """The path with something in place of its parameters."""
    return "/".join("nobody" if part.startswith("{") else part for part in path.split("/"))


def _problem(status: int, content: bytes) -> str:
    """What is wrong with an answer as such: it must be a success or say in full what the client did wrong."""
    if status < 400:
        return ""
    text = content.decode()[:200]
    if status >= 500:
        return f"{status} {text}"
    try:
        error = json.loads(content)["error"]
        told = bool(error["message"]) and error["type"] != "server_error"
    except (ValueError, KeyError, TypeError):
        told = False
    return "" if told else f"no error object: {status} {text}"
