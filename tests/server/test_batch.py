"""Batch files: what is refused before anything runs, what is put out, and that any stop can be gone on from."""

import asyncio
import json
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo.config import ServerConfig
from octavo.errors import EngineDeadError, InvalidRequestError
from octavo.server.app import build_app, build_context
from octavo.server.batch.in_process import ask_app
from octavo.server.batch.lines import BatchLine, plan_batch
from octavo.server.batch.results import Answers, ResultFile, answers_in
from octavo.server.batch.run import BatchCount, run_batch
from tests.server.fake_engine import FakeEngine

CHAT = "/v1/chat/completions"


def line(custom_id: str, text: str = "hello", url: str = CHAT, **fields: Any) -> dict[str, Any]:
    prompt = {"messages": [{"role": "user", "content": text}]} if url == CHAT else {"prompt": text}
    body = {"model": "fake", "max_tokens": 4, **prompt, **fields}
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join((text if isinstance(text, str) else json.dumps(text)) + "\n" for text in lines))
    return path


def read(path: Path) -> dict[str, dict[str, Any]]:
    answers = [json.loads(text) for text in path.read_text().splitlines()]
    assert len({answer["custom_id"] for answer in answers}) == len(answers)
    return {answer["custom_id"]: answer for answer in answers}


class Batch:
    """A batch over a stand-in engine."""

    def __init__(self, folder: Path, lines: list[Any]) -> None:
        self.input = write(folder / "in.jsonl", lines)
        self.output = folder / "out.jsonl"
        self.reports: list[bool] = []

    def run(
        self,
        max_concurrency: int = 4,
        prepare: Callable[[FakeEngine], None] = lambda engine: None,
        beside: Callable[["Batch", FakeEngine, "asyncio.Task[BatchCount]"], Coroutine[Any, Any, None]] | None = None,
    ) -> BatchCount:
        """Answers what has no answer yet."""

        async def main() -> BatchCount:
            engine = FakeEngine()
            prepare(engine)
            app = build_app(build_context(engine, ServerConfig()))
            plan = plan_batch(self.input, answers_in(self.output).ids)
            with ResultFile(self.output) as results:
                running = asyncio.ensure_future(
                    run_batch(
                        app,
                        plan.to_do(),
                        results,
                        max_concurrency=max_concurrency,
                        report=self.reports.append,
                    )
                )
                if beside is not None:
                    await beside(self, engine, running)
                count = await running
            assert not engine.live
            return count

        return asyncio.run(asyncio.wait_for(main(), 60))


def test_answers_are_those_of_the_server(tmp_path: Path) -> None:
    lines = [line("a"), line("b", "other"), line("c", url="/v1/completions", temperature=0)]
    batch = Batch(tmp_path, lines)
    assert batch.run() == BatchCount(answered=3, failed=0)
    answers = read(batch.output)

    async def ask() -> list[Any]:
        app = build_app(build_context(FakeEngine(), ServerConfig()))
        return [(await ask_app(app, each["url"], each["body"])).json() for each in lines]

    for each, whole in zip(lines, asyncio.run(ask()), strict=True):
        answer = answers[each["custom_id"]]
        assert set(answer) == {"id", "custom_id", "response", "error"}
        assert answer["error"] is None
        assert answer["response"]["status_code"] == 200
        assert answer["response"]["request_id"]
        body = answer["response"]["body"]
        assert body["usage"] == whole["usage"]
        if each["custom_id"] == "c":
            assert body["choices"] == whole["choices"]


def test_an_error_stands_in_its_own_line(tmp_path: Path) -> None:
    lines = [line("good"), line("unknown", model="none"), line("wrong", temperature="hot"), line("field", nonsense=1)]
    batch = Batch(tmp_path, lines)
    assert batch.run() == BatchCount(answered=4, failed=3)
    answers = read(batch.output)
    found = {name: (answer["response"]["status_code"], answer["error"]) for name, answer in answers.items()}
    assert found == {"good": (200, None), "unknown": (404, None), "wrong": (400, None), "field": (400, None)}
    assert answers["wrong"]["response"]["body"]["error"]["param"] == "temperature"
    assert sorted(batch.reports) == [False, False, False, True]


def test_an_answer_that_fails_midway_is_an_error_of_its_line(tmp_path: Path) -> None:
    batch = Batch(tmp_path, [line("a", "broken", url="/v1/completions"), line("b")])

    def prepare(engine: FakeEngine) -> None:
        engine.fail_after["broken"] = 2

    assert batch.run(prepare=prepare) == BatchCount(answered=2, failed=1)
    assert read(batch.output)["a"]["response"]["body"]["error"]["code"] == "generation_failed"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ('{"custom_id": "x", "url": "/v1/chat', "line 2: line"),
        ("[1, 2]", "line 2: line"),
        ({"custom_id": "x", "method": "POST", "url": CHAT}, "body"),
        ({"method": "POST", "url": CHAT, "body": {}}, "custom_id"),
        (line("") | {"custom_id": 5}, "custom_id"),
        (line(""), "line 2: custom_id"),
        (line("x") | {"method": "GET"}, "line 2: method"),
        (line("x") | {"url": "/v1/files"}, "line 2: url"),
        (line("x") | {"endpoint": "y"}, "endpoint"),
        (line("x", stream=True), "line 2: body.stream"),
        (line("first"), "line 2: custom_id"),
        ("\xff", "line 2: line"),
    ],
)
def test_a_wrong_line_is_told_before_anything_runs(tmp_path: Path, wrong: Any, words: str) -> None:
    path = tmp_path / "in.jsonl"
    second = wrong.encode("latin-1") if isinstance(wrong, str) else json.dumps(wrong).encode()
    path.write_bytes(json.dumps(line("first")).encode() + b"\n" + second + b"\n")
    with pytest.raises(InvalidRequestError, match=words):
        plan_batch(path, frozenset())


def test_empty_lines_are_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", ["", json.dumps(line("a")), "  ", json.dumps(line("b"))])
    assert [each.custom_id for each in plan_batch(path, frozenset()).to_do()] == ["a", "b"]


def test_what_has_an_answer_is_not_asked_again(tmp_path: Path) -> None:
    batch = Batch(tmp_path, [line(str(number)) for number in range(6)])
    kept = [json.dumps({"custom_id": str(number), "response": None, "error": None}) for number in (1, 4)]
    batch.output.write_text("\n".join(kept) + "\n")
    assert batch.run() == BatchCount(answered=4, failed=0)
    assert set(read(batch.output)) == set("012345")
    assert batch.output.read_text().splitlines()[:2] == kept
    assert batch.run() == BatchCount(answered=0, failed=0)


def test_errors_among_the_answers_are_counted(tmp_path: Path) -> None:
    batch = Batch(tmp_path, [line("good"), line("unknown", model="none"), line("wrong", temperature="hot")])
    assert answers_in(batch.output) == Answers(frozenset(), 0)
    batch.run()
    assert answers_in(batch.output) == Answers(frozenset({"good", "unknown", "wrong"}), 2)
    batch.output.write_text('{"custom_id": "good", "response": null, "error": {"code": "batch_expired"}}\n')
    assert answers_in(batch.output) == Answers(frozenset({"good"}), 1)


def test_files_that_cannot_be_had_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"input=.*none\.jsonl.*cannot be read .*; give a file"):
        plan_batch(tmp_path / "none.jsonl", frozenset())
    with pytest.raises(InvalidRequestError, match=r"output=.*out\.jsonl.*cannot be written .*; name a file"):
        ResultFile(tmp_path / "nowhere" / "out.jsonl")


@pytest.mark.parametrize("cut", [1, 20, 10_000])
def test_a_last_line_that_was_cut_off_is_taken_away(tmp_path: Path, cut: int) -> None:
    batch = Batch(tmp_path, [line("a"), line("b")])
    whole = json.dumps({"custom_id": "a", "response": {"text": "x" * 2_000_000}, "error": None}) + "\n"
    half = json.dumps({"custom_id": "b", "response": {"text": "y" * 2_000_000}, "error": None})[:cut]
    batch.output.write_text(whole + half)
    assert batch.run() == BatchCount(answered=1, failed=0)
    assert set(read(batch.output)) == {"a", "b"}
    assert batch.output.read_text().startswith(whole)


@pytest.mark.parametrize(
    "content",
    [
        '{"custom_id": "other"}\n',
        '{"custom_id": "a"}\n{"custom_id": "a"}\n',
        "some text\n",
        '{"id": "a"}\n',
    ],
)
def test_an_output_file_of_something_else_is_left_alone(tmp_path: Path, content: str) -> None:
    batch = Batch(tmp_path, [line("a")])
    batch.output.write_text(content)
    with pytest.raises(InvalidRequestError):
        batch.run()
    assert batch.output.read_text() == content


def test_the_engine_is_kept_full_and_no_fuller(tmp_path: Path) -> None:
    most = 0

    async def beside(batch: Batch, engine: FakeEngine, running: "asyncio.Task[BatchCount]") -> None:
        nonlocal most
        while not running.done():
            most = max(most, len(engine.live))
            await asyncio.sleep(0)

    batch = Batch(tmp_path, [line(str(number), max_tokens=20) for number in range(40)])
    assert batch.run(max_concurrency=7, beside=beside).answered == 40
    assert most == 7


def test_a_full_queue_is_waited_for(tmp_path: Path) -> None:
    async def beside(batch: Batch, engine: FakeEngine, running: "asyncio.Task[BatchCount]") -> None:
        await asyncio.sleep(0.05)
        engine.queue_full = False

    def prepare(engine: FakeEngine) -> None:
        engine.queue_full = True

    batch = Batch(tmp_path, [line("a")])
    assert batch.run(prepare=prepare, beside=beside) == BatchCount(answered=1, failed=0)
    assert read(batch.output)["a"]["response"]["status_code"] == 200


def test_a_dead_engine_leaves_no_line_for_what_it_did_not_answer(tmp_path: Path) -> None:
    async def beside(batch: Batch, engine: FakeEngine, running: "asyncio.Task[BatchCount]") -> None:
        while len(batch.reports) < 3:
            await asyncio.sleep(0)
        engine.kill("broken")

    batch = Batch(tmp_path, [line(str(number)) for number in range(20)])
    with pytest.raises(EngineDeadError):
        batch.run(beside=beside)
    answers = read(batch.output)
    assert 3 <= len(answers) < 20
    assert all(answer["response"]["status_code"] == 200 for answer in answers.values())
    assert batch.run().answered == 20 - len(answers)
    assert len(read(batch.output)) == 20


def test_cancelled_at_any_moment_the_batch_is_gone_on_with(tmp_path: Path) -> None:
    async def beside(batch: Batch, engine: FakeEngine, running: "asyncio.Task[BatchCount]") -> None:
        while len(batch.reports) < 2:
            await asyncio.sleep(0)
        running.cancel()

    batch = Batch(tmp_path, [line(str(number)) for number in range(12)])
    with pytest.raises(asyncio.CancelledError):
        batch.run(beside=beside)
    assert 2 <= len(read(batch.output)) < 12
    batch.run()
    assert len(read(batch.output)) == 12


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Only the names are kept: of 20,000 lines of a kilobyte, less than a quarter of their bytes."""
    path = tmp_path / "in.jsonl"
    with path.open("w") as file:
        for number in range(20_000):
            file.write(json.dumps(line(f"request-{number}", "x" * 900)) + "\n")
    tracemalloc.start()
    plan = plan_batch(path, frozenset())
    lines: Iterator[BatchLine] = plan.to_do()
    assert sum(1 for _ in lines) == 20_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < path.stat().st_size / 4
