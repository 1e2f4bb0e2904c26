"""Every field of every endpoint with values that do not belong there, while another client goes on."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from tests.fuzz.bodies import Operation, field_paths, operations, with_value
from tests.fuzz.control import ControlStream
from tests.fuzz.values import FEW, MARK, MORE, Odd, text_of

MAX_AT_ONCE = 8


def test_small_bodies_are_valid(url: str, description: dict[str, Any]) -> None:
    """Otherwise whatever is changed about them is refused for a reason of no interest."""
    for operation in operations(description):
        answer = httpx.request(operation.method, url + _filled(operation.path), json=operation.body, timeout=60)
        assert answer.status_code in (200, 201, 404), (operation.path, operation.body, answer.text)


def test_no_value_harms_the_server(url: str, description: dict[str, Any]) -> None:
    statuses = _mistreat(url, description, FEW)
    assert statuses[200] > 100, "the fuzzer must get through to the engine, too"
    assert statuses[400] > 500


@pytest.mark.slow
def test_no_further_value_harms_the_server(url: str, description: dict[str, Any]) -> None:
    statuses = _mistreat(url, description, MORE)
    assert statuses[200] > 50
    assert statuses[400] > 500


def _mistreat(url: str, description: dict[str, Any], values: Sequence[Odd]) -> Counter[int]:
    """Status -> how often.

    Raises:
        AssertionError: an answer that no client can use, or a control stream with other tokens.
    """
    with ControlStream(url) as control:
        answers = asyncio.run(_ask_all(url, list(_cases(description, values))))
    assert not control.problems
    assert control.num_answers > 0
    bad = [f"{name}: {problem}" for name, _, problem in answers if problem]
    assert not bad, "\n".join([f"{len(bad)} bad answers", *bad[:20]])
    assert httpx.get(f"{url}/health").status_code == 200
    return Counter(status for _, status, _ in answers)


def _cases(description: dict[str, Any], values: Sequence[Odd]) -> Iterator[tuple[str, Operation, bytes]]:
    definitions = description["components"]["schemas"]
    for operation in operations(description):
        for path in dict.fromkeys(field_paths(operation.schema, definitions)):
            body = with_value(operation.body, path, MARK)
            for odd in values:
                where = ".".join(map(str, path))
                yield f"{operation.path} {where}={odd.name}", operation, text_of(body, odd)


async def _ask_all(url: str, cases: Sequence[tuple[str, Operation, bytes]]) -> list[tuple[str, int, str]]:
    """(name, status, problem) of each case; the problem is empty if there is none."""
    limits = httpx.Limits(max_connections=MAX_AT_ONCE)
    waiting = iter(cases)
    answers: list[tuple[str, int, str]] = []
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=120) as client:

        async def work() -> None:
            for name, operation, body in waiting:
                headers = {"Content-Type": "application/json"}
                answer = await client.request(operation.method, _filled(operation.path), content=body, headers=headers)
                answers.append((name, answer.status_code, _problem(answer)))

        await asyncio.gather(*(work() for _ in range(MAX_AT_ONCE)))
    return answers


def _filled(path: str) -> str:
    """The path with something in place of its parameters."""
    return "/".join("nobody" if part.startswith("{") else part for part in path.split("/"))


def _problem(answer: httpx.Response) -> str:
    """What is wrong with an answer as such: it must be a success or say in full what the client did wrong."""
    if answer.status_code < 400:
        return ""
    if answer.status_code >= 500:
        return f"{answer.status_code} {answer.text[:200]}"
    try:
        error = answer.json()["error"]
        told = bool(error["message"]) and error["type"] != "server_error"
    except (ValueError, KeyError, TypeError):
        told = False
    return "" if told else f"no error object: {answer.status_code} {answer.text[:200]}"
