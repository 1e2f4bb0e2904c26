"""Runs a batch: so many requests at a time as keep the engine full."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp

from octavo.errors import EngineDeadError
from octavo.server.batch.in_process import AppAnswer, ask_app
from octavo.server.batch.lines import BatchLine
from octavo.server.batch.results import ResultFile

Report = Callable[[bool], None]
"""Called for each answer, with whether it went well."""


@dataclass
class BatchCount:
    """How the requests of one run ended."""

    answered: int = 0
    failed: int = 0
    """Of these, with an error in place of an answer."""


async def run_batch(
    app: ASGIApp, lines: Iterator[BatchLine], results: ResultFile, *, max_concurrency: int, report: Report
) -> BatchCount:
    """Answers all lines. Each is read when there is room for it, and written when it is ready, so memory does not grow
    with the file. Cancelling this ends what runs; what is written stays.

    Raises:
        EngineDeadError: the engine has stopped; the requests that ran have no line, and are run by the next start.
        OSError: an answer cannot be written.
    """
    count = BatchCount()

    async def work() -> None:
        for line in lines:  # all workers draw from one iterator
            answer = await _answer(app, line)
            results.add(_spelled(line, answer))
            count.answered += 1
            count.failed += answer.status != 200
            report(answer.status == 200)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(max_concurrency):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return count


async def _answer(app: ASGIApp, line: BatchLine) -> AppAnswer:
    """Asks until the engine takes the request: a queue that is full is no answer.

    Raises:
        EngineDeadError: the engine has stopped.
    """
    while True:
        answer = await ask_app(app, line.url, line.body)
        if answer.status == 503:
            raise EngineDeadError(answer.json()["error"]["message"])
        if answer.status != 429:
            return answer
        await asyncio.sleep(float(answer.headers.get("retry-after", "1")))


def _spelled(line: BatchLine, answer: AppAnswer) -> dict[str, Any]:
    """An output line as OpenAI writes it. An error of the request stands in the response's body; `error` is for
    requests that never had a response, which are not written here."""
    response = {
        "status_code": answer.status,
        "request_id": answer.headers.get("x-request-id"),
        "body": answer.json(),
    }
    return {"id": f"batch_req_{uuid.uuid4().hex}", "custom_id": line.custom_id, "response": response, "error": None}
