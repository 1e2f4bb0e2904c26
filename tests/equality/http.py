"""Running a workload over HTTP: a server process of its own, the stock client, sixteen requests at a time."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import openai

from octavo.request.outputs import LogprobRow
from octavo.request.params import SamplingParams
from octavo.request.structured import StructuredKind
from tests.equality.settings import Fields
from tests.equality.transcript import Answer, AnswerChoice, Fact, Transcript, Transcripts, exact
from tests.equality.workload import Request, Workload, seeded

SERVE = "import sys; from octavo.cli.main import main; sys.argv = ['octavo', 'serve', *sys.argv[1:]]; main()"
CLIENTS = 16
LONG = 450
"""Tokens that nobody has read by the time the connection is closed."""
OPENAI_FIELDS = {
    *("n", "max_tokens", "temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "seed", "stop"),
    "logprobs",
}
"""Parameters that the client knows; the others go as `extra_body`."""
NOT_SENT = {"detokenize", "bad_words_token_ids"}
SHAPES = {StructuredKind.JSON_SCHEMA: "json", StructuredKind.REGEX: "regex"}
"""Kinds of shapes by their names in a body."""

Spell = Callable[[int], bytes]


@contextlib.contextmanager
def serving(model: str, fields: Fields, folder: Path) -> Iterator[str]:
    """A running `octavo serve`; gives its address and sees to it that it ends well.

    Args:
        folder: for its log.
    """
    named = [(f"--{name.replace('_', '-')}", value) for name, value in fields.items()]
    flags = [flag if value is True else f"{flag}={value}" for flag, value in named]
    command = [sys.executable, "-c", SERVE, model, "--port=0", *flags]
    with (
        (folder / "server.log").open("w+") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=_same_imports()) as server,
    ):
        assert server.stdout is not None
        try:
            ready = re.match(r"ready: (http://\S+)", server.stdout.readline())
            assert ready, f"the server did not start: {(folder / 'server.log').read_text()}"
            yield ready[1]
            server.terminate()
            assert server.wait(timeout=30) == 0, (folder / "server.log").read_text()
        finally:
            server.kill()


def _same_imports() -> dict[str, str]:
    """The environment in which a new interpreter finds the package that is under test here."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def ask_all(url: str, workload: Workload, *, stream: bool) -> Transcripts:
    """The answers to all requests, asked by sixteen clients at a time; afterwards the server must hold nothing."""
    with _clients(url) as (client, pool):
        answers = pool.map(lambda request: _ask(client, request, stream), workload)
        transcripts = {request.name: seen.transcript() for request, seen in zip(workload, answers, strict=True)}
    assert_server_settled(url)
    return transcripts


def ask_together(url: str, workload: Workload, *, stream: bool) -> Transcripts:
    """The answers to prompts of token ids that go in one HTTP request; all must have the same parameters."""
    (params,) = {msgspec.json.encode(request.params) for request in workload}
    n = workload[0].params.n
    seen = {request.name: SeenAnswer(n) for request in workload}
    known, extra = _body(msgspec.json.decode(params, type=SamplingParams))
    with _clients(url) as (client, _):
        prompts = [list(request.prompt) for request in workload]
        answered = client.completions.create(
            model=openai.omit, prompt=prompts, stream=stream, extra_body=extra, **known
        )
        for part in answered if stream else [answered]:
            for choice in part.model_dump()["choices"]:
                of, index = divmod(choice["index"], n)
                seen[workload[of].name].add({"choices": [choice | {"index": index}]})
    assert_server_settled(url)
    return {name: answer.transcript() for name, answer in seen.items()}


def leave_early(url: str, workload: Workload) -> None:
    """Asks for long streams, closes each connection after two chunks, and waits until the engine has ended them all."""

    def leave(client: openai.OpenAI, request: Request) -> None:
        stream = _create(client, replace(request, params=seeded(1, LONG, logprobs=1)), stream=True)
        assert len(list(zip(range(2), stream, strict=False))) == 2
        stream.close()

    ended = _num_ended(url) + len(workload)
    with _clients(url) as (client, pool):
        list(pool.map(lambda request: leave(client, request), workload))
    deadline = time.monotonic() + 20
    while _num_ended(url) < ended:
        assert time.monotonic() < deadline, "requests whose client is gone still run"
        time.sleep(0.01)
    assert_server_settled(url)


@contextlib.contextmanager
def _clients(url: str) -> Iterator[tuple[openai.OpenAI, ThreadPoolExecutor]]:
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as client,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        yield client, pool


def assert_server_settled(url: str) -> None:
    """Nothing runs or waits, and no block is held."""
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
        assert _figure(url, name) == 0, name


def _figure(url: str, name: str) -> float:
    (value,) = re.findall(rf"^{name}{{.*}} (\S+)$", httpx.get(f"{url}/metrics").text, re.MULTILINE)
    return float(value)


def _num_ended(url: str) -> float:
    """Requests that the engine has ended, in whatever way: a slow client's stream may end before it leaves."""
    text = httpx.get(f"{url}/metrics").text
    return sum(map(float, re.findall(r"^octavo:engine_finished_\w+_total{.*} (\S+)$", text, re.MULTILINE)))


def _ask(client: openai.OpenAI, request: Request, stream: bool) -> "SeenAnswer":
    seen = SeenAnswer(request.params.n)
    answered = _create(client, request, stream=stream)
    for part in answered if stream else [answered]:
        seen.add(part.model_dump())
    seen.check_usage()
    return seen


def _create(client: openai.OpenAI, request: Request, *, stream: bool) -> Any:
    known, extra = _body(request.params)
    known |= {"stream_options": {"include_usage": True}} if stream else {}
    if request.messages:
        count = known.pop("logprobs", None)
        known |= {} if count is None else {"logprobs": True, "top_logprobs": count}
        return client.chat.completions.create(
            model=openai.omit, messages=request.messages, stream=stream, extra_body=extra, **known
        )
    prompt = request.prompt if isinstance(request.prompt, str) else list(request.prompt)
    return client.completions.create(model=openai.omit, prompt=prompt, stream=stream, extra_body=extra, **known)


def _body(params: SamplingParams) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the client takes by name, and the rest."""
    given = {name: value for name, value in msgspec.structs.asdict(params).items() if name not in NOT_SENT}
    given = {name: value for name, value in given.items() if value is not None and value != ()}
    given["logit_bias"] = {str(i): bias for i, bias in (params.logit_bias or {}).items()}
    spec = params.structured_outputs
    if spec is not None:
        given["structured_outputs"] = {SHAPES[spec.kind]: spec.source, "disable_any_whitespace": spec.compact}
    known = {name: value for name, value in given.items() if name in OPENAI_FIELDS}
    extra = {name: value for name, value in given.items() if name not in OPENAI_FIELDS}
    return known, extra | {"return_token_ids": True}


# ---- the same facts, from either side


class SeenAnswer:
    """What HTTP shows of an answer: the text, all ids, and logprobs by the spelling of tokens."""

    def __init__(self, num_choices: int) -> None:
        self.prompt: list[int] | None = None
        self.prompt_rows: list[dict[int, tuple[str, int]] | None] = []
        self.choices = [SeenChoice() for _ in range(num_choices)]
        self.usage: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, answer: Answer, params: SamplingParams, spell: Spell) -> "SeenAnswer":
        """What must be seen of an answer that is known in full."""
        seen = cls(len(answer.choices))
        seen.prompt = list(answer.prompt_token_ids)
        if answer.prompt_logprobs is not None:
            count = params.prompt_logprobs or 0
            seen.prompt_rows = [None if row is None else _ranked(row, count) for row in answer.prompt_logprobs]
        seen.choices = [SeenChoice.of(choice, params.logprobs, spell) for choice in answer.choices]
        return seen

    def add(self, body: Mapping[str, Any]) -> None:
        """Takes a whole answer or a chunk of one."""
        self.usage = body.get("usage") or self.usage
        self._add_prompt_rows(body.get("prompt_logprobs"))  # a chat has one prompt
        for choice in body["choices"]:
            self.choices[choice["index"]].add(choice)
            if choice["index"] == 0:
                self.prompt = self.prompt or choice["prompt_token_ids"]
                self._add_prompt_rows(choice.get("prompt_logprobs"))

    def check_usage(self) -> None:
        """The counts that came along are those of the tokens."""
        assert self.usage is not None
        assert self.prompt is not None
        assert self.usage["prompt_tokens"] == len(self.prompt)
        assert self.usage["completion_tokens"] == sum(len(choice.token_ids) for choice in self.choices)

    def _add_prompt_rows(self, rows: list[Any] | None) -> None:
        if rows is not None:
            self.prompt_rows = [
                None if row is None else {int(i): (exact(e["logprob"]), e["rank"]) for i, e in row.items()}
                for row in rows
            ]

    def transcript(self) -> Transcript:
        """All facts."""
        prompt = [Fact(f"prompt token {i}, logprobs", row) for i, row in enumerate(self.prompt_rows)]
        choices = [fact for i, choice in enumerate(self.choices) for fact in choice.facts(f"choice {i}")]
        return (Fact("prompt", self.prompt), *prompt, *choices)


class SeenChoice:
    """What HTTP shows of a choice."""

    def __init__(self) -> None:
        self.text = ""
        self.token_ids: list[int] = []
        self.rows: list[tuple[str, str, dict[str, str]]] = []
        """Per token its spelling, its logprob, and the logprobs of the most probable ones."""
        self.end: tuple[object, ...] = ()

    @classmethod
    def of(cls, choice: AnswerChoice, num_top: int | None, spell: Spell) -> "SeenChoice":
        """See `SeenAnswer.of`."""
        seen = cls()
        seen.text, seen.token_ids = choice.text, list(choice.token_ids)
        seen.rows = [_spelled(row, num_top or 0, spell) for row in choice.logprobs or ()]
        reason, stop_reason, _ = choice.end
        seen.end = (str(reason), stop_reason)
        return seen

    def add(self, choice: Mapping[str, Any]) -> None:
        """Takes a choice, or a part of one, of either endpoint."""
        message = choice.get("message") or choice.get("delta")
        self.text += (choice.get("text") if message is None else message.get("content")) or ""
        self.token_ids += choice["token_ids"]
        if choice["logprobs"] is not None:
            self.rows += _chat_rows(choice["logprobs"]) if message is not None else _legacy_rows(choice["logprobs"])
        self.end = (choice["finish_reason"], choice["stop_reason"])

    def facts(self, place: str) -> Iterator[Fact]:
        """All facts."""
        yield from (Fact(f"{place}, token {i}", token_id) for i, token_id in enumerate(self.token_ids))
        for i, (spelling, logprob, top) in enumerate(self.rows):
            yield Fact(f"{place}, token {i}, logprobs", (spelling, logprob, *sorted(top.items())))
        yield Fact(f"{place}, text", self.text)
        yield Fact(f"{place}, end", self.end)


def _legacy_rows(logprobs: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, str]]]:
    columns = (logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"])
    for spelling, logprob, top in zip(*columns, strict=True):
        yield spelling, exact(logprob), {key: exact(value) for key, value in top.items()}


def _chat_rows(logprobs: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, str]]]:
    for entry in logprobs["content"]:
        spelling, logprob = _text(bytes(entry["bytes"])), exact(entry["logprob"])
        top = {_text(bytes(other["bytes"])): exact(other["logprob"]) for other in entry["top_logprobs"]}
        yield spelling, logprob, {spelling: logprob} | top


def _spelled(row: LogprobRow, num_top: int, spell: Spell) -> tuple[str, str, dict[str, str]]:
    """A row as `/v1/completions` shows it: the chosen token is always among the most probable ones."""
    spelling, logprob = _text(spell(row.token_ids[0])), exact(row.logprobs[0])
    best = {_text(spell(i)): exact(value) for i, value in _best(row, num_top)}
    return spelling, logprob, {spelling: logprob} | best


def _ranked(row: LogprobRow, num_top: int) -> dict[int, tuple[str, int]]:
    """A row of the prompt: its own token with its rank, and the most probable ones."""
    best = {i: (exact(value), place) for place, (i, value) in enumerate(_best(row, num_top), 1)}
    return best | {row.token_ids[0]: (exact(row.logprobs[0]), row.rank)}


def _best(row: LogprobRow, count: int) -> list[tuple[int, float]]:
    """The most probable tokens of a row, the lower id first among equals."""
    return sorted({*zip(row.token_ids, row.logprobs, strict=True)}, key=lambda pair: (-pair[1], pair[0]))[:count]


def _text(spelling: bytes) -> str:
    """A token's bytes as text, or as `bytes:\\x..` where they are none."""
    try:
        return spelling.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelling)
