"""The client and its core process: real processes, real sockets, a tiny model."""

import asyncio
import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from octavo import LLM, AsyncLLM, SamplingParams
from octavo.config import EngineConfig
from octavo.engine.core_process import CoreProcess
from octavo.engine.output import GenerationDelta
from octavo.errors import ConfigError, EngineDeadError, InvalidRequestError, ModelFileError, OutOfMemoryError
from octavo.hub import resolve
from octavo.request.outputs import FinishReason

SETTINGS: dict[str, object] = {"max_model_len": 128, "num_kv_blocks": 40, "threads": 1, "speculation": "off"}
LONG = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


@asynccontextmanager
async def engine(model: str, **settings: object) -> AsyncIterator[AsyncLLM]:
    llm = await AsyncLLM.start(EngineConfig.from_fields({"model": model, **SETTINGS, **settings}))
    try:
        yield llm
    finally:
        await llm.shutdown()


async def collect(deltas: AsyncIterator[GenerationDelta]) -> tuple[tuple[int, ...], str, FinishReason | None]:
    ids: list[int] = []
    text, reason = "", None
    async for delta in deltas:
        ids += delta.choice.token_ids
        text += delta.choice.text
        reason = delta.choice.finish_reason
    return tuple(ids), text, reason


def has_life(process: psutil.Process) -> bool:
    """Running: neither gone nor a zombie that its new parent has not looked at yet."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_process_border_changes_no_token(tiny_model: str) -> None:
    prompts = [f"hello {i}" for i in range(6)]
    params = SamplingParams(temperature=0.8, seed=5, max_tokens=20, logprobs=2)
    with LLM(tiny_model, **SETTINGS) as llm:
        local = [
            (o.outputs[0].token_ids, o.outputs[0].text, o.outputs[0].finish_reason)
            for o in llm.generate(prompts, params)
        ]

    async def body() -> None:
        async with engine(tiny_model) as llm:
            remote = await asyncio.gather(*(collect(llm.generate(prompt, params)) for prompt in prompts))
            assert list(remote) == local

    run(body)


def test_closing_the_iterator_frees_the_blocks(tiny_model: str) -> None:
    async def body() -> None:
        async with engine(tiny_model) as llm:
            stream = llm.generate("hello", LONG)
            await anext(stream)
            await stream.aclose()  # type: ignore[attr-defined]
            load = await llm.load()
            assert (load.num_running, load.num_waiting, load.num_free_blocks) == (0, 0, load.num_blocks)

    run(body)


def test_abort_ends_the_iterator_with_that_reason(tiny_model: str) -> None:
    async def body() -> None:
        async with engine(tiny_model) as llm:
            stream = llm.generate("hello", LONG, request_id="mine")
            first = await anext(stream)
            await llm.abort("mine")
            await llm.abort("unknown")
            ids, _, reason = await collect(stream)
            assert reason is FinishReason.ABORT
            assert len(first.choice.token_ids) + len(ids) < 100
            assert (await llm.load()).num_running == 0

    run(body)


def test_a_live_request_id_cannot_be_used_twice(tiny_model: str) -> None:
    async def body() -> None:
        async with engine(tiny_model) as llm:
            stream = llm.generate("hello", LONG, request_id="same")
            await anext(stream)
            with pytest.raises(InvalidRequestError, match="request_id"):
                llm.generate("hello", LONG, request_id="same")
            await stream.aclose()  # type: ignore[attr-defined]
            await collect(llm.generate("hello", LONG, request_id="same"))

    run(body)


def test_a_killed_core_is_noticed_within_a_second_and_nobody_hangs(tiny_model: str) -> None:
    async def body() -> None:
        async with engine(tiny_model) as llm:
            streams = [llm.generate(f"hello {i}", LONG) for i in range(4)]
            for stream in streams:
                await anext(stream)
            os.kill(llm.core_pid, signal.SIGKILL)
            killed = time.monotonic()
            for stream in streams:
                with pytest.raises(EngineDeadError):
                    await collect(stream)
            assert "exit code" in await llm.wait_dead()
            assert time.monotonic() - killed < 1
            assert not llm.alive
            with pytest.raises(EngineDeadError):
                await collect(llm.generate("hello", LONG))
            with pytest.raises(EngineDeadError):
                await llm.load()

    run(body)


def test_a_killed_client_takes_its_core_along(tiny_model: str) -> None:
    script = (
        "import asyncio, sys\n"
        "from octavo import AsyncLLM\n"
        "from octavo.config import EngineConfig\n"
        "async def main():\n"
        f"    llm = await AsyncLLM.start(EngineConfig.from_fields({ {'model': tiny_model, **SETTINGS}!r}))\n"
        "    print(llm.core_pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        core = psutil.Process(int(client.stdout.readline()))
        client.kill()
        client.wait()
        killed = time.monotonic()
        while has_life(core) and time.monotonic() - killed < 10:
            time.sleep(0.01)
        assert time.monotonic() - killed < 1


def test_the_working_directory_does_not_decide_what_the_core_is(tiny_model: str, tmp_path: Path) -> None:
    (tmp_path / "octavo").mkdir()
    (tmp_path / "octavo" / "__init__.py").write_text("raise ImportError('the wrong octavo')")
    script = (
        "import asyncio\n"
        "from octavo import AsyncLLM\n"
        "from octavo.config import EngineConfig\n"
        "async def main():\n"
        f"    llm = await AsyncLLM.start(EngineConfig.from_fields({ {'model': tiny_model, **SETTINGS}!r}))\n"
        "    await llm.shutdown()\n"
        "asyncio.run(main())\n"
    )
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-P", "-c", script], cwd=tmp_path, env=here, check=True)


@pytest.mark.parametrize("reading", ["pass", "async for _ in llm.generate('hello', LONG):\n        break"])
def test_a_program_that_forgets_to_close_its_engine_ends_all_the_same(tiny_model: str, reading: str) -> None:
    script = (
        "import asyncio\n"
        "from octavo import AsyncLLM\n"
        "from octavo import SamplingParams\n"
        "from octavo.config import EngineConfig\n"
        "LONG = SamplingParams(max_tokens=100, ignore_eos=True)\n"
        "async def main():\n"
        f"    llm = await AsyncLLM.start(EngineConfig.from_fields({ {'model': tiny_model, **SETTINGS}!r}))\n"
        f"    {reading}\n"
        "    raise ValueError('forgotten')\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "ValueError: forgotten" in ended.stderr


def test_two_generations_of_one_name_do_not_meet(tiny_model: str) -> None:
    async def body() -> None:
        async with engine(tiny_model) as llm:
            first, second = (llm.generate("hello", LONG, request_id="same") for _ in range(2))
            await anext(first)
            with pytest.raises(InvalidRequestError, match="same"):
                await anext(second)
            assert len((await collect(first))[0]) > 0

    run(body)


def test_a_core_that_dies_before_its_order_is_told(tiny_model: str) -> None:
    async def body() -> None:
        process = CoreProcess()
        os.kill(process.pid, signal.SIGKILL)
        config = EngineConfig.from_fields({"model": tiny_model, **SETTINGS})
        files = resolve(tiny_model)
        process.load(config, files)
        with pytest.raises(EngineDeadError, match="ended while starting"):
            await AsyncLLM.attach(process, config, files)

    run(body)


def test_shutdown_drains_then_leaves_no_process_and_no_folder(tiny_model: str, tmp_path: Path) -> None:
    async def body() -> None:
        llm = await AsyncLLM.start(EngineConfig.from_fields({"model": tiny_model, **SETTINGS}))
        core = psutil.Process(llm.core_pid)
        stream = llm.generate("hello", LONG)
        first = (await anext(stream)).choice.token_ids
        reading = asyncio.create_task(collect(stream))
        await llm.shutdown(drain_timeout_s=30)
        ids, _, reason = await reading
        assert (len(first) + len(ids), reason) == (100, FinishReason.LENGTH)
        assert not core.is_running()
        await llm.shutdown()

    before = set(Path(tmp_path.parent).glob("octavo-*"))
    run(body)
    assert set(Path(tmp_path.parent).glob("octavo-*")) == before


def test_a_running_engine_has_no_folder_that_a_kill_could_leave(
    tiny_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="o-") as folder:
        monkeypatch.setattr("tempfile.tempdir", folder)

        async def body() -> None:
            async with engine(tiny_model) as llm:
                assert list(Path(folder).iterdir()) == []
                assert len((await collect(llm.generate("hello", LONG)))[0]) == 100

        run(body)
        assert list(Path(folder).iterdir()) == []


def test_a_process_without_an_order_ends_with_its_client() -> None:
    with CoreProcess() as process:
        started = psutil.Process(process.pid)
        assert process.folder.stat().st_mode & 0o777 == 0o700
    assert not started.is_running()
    assert not process.folder.exists()


def test_the_start_is_told_in_one_line_and_timed_by_phase(tiny_model: str, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        with caplog.at_level("DEBUG", logger="octavo.engine.start_log"):
            async with engine(tiny_model, served_model_name=("tiny",), speculation="auto") as llm:
                assert list(llm.info.start_s) == ["imports", "order", "open", "program", "pack", "rest"]
                assert llm.info.num_kv_tokens == 39 * 16
        told, timed = [record.getMessage() for record in caplog.records]
        assert re.fullmatch(
            r"tiny: 1 thread \(\w+\), 0 MB weights, KV 0 MB = 624 tokens \(4 of full length\), "
            r"context 128, 2,048-token steps, 64 sequences, at most \d+ MB of memory \([\d.]+ [MG]B free\), "
            r"speculation by suffix",
            told,
        )
        assert timed.startswith("core started: imports ")

    run(body)


def test_the_start_tells_what_is_not_as_usual(tiny_model: str, tmp_path: Path) -> None:
    async def told(**more: object) -> str:
        kept = {"kv_disk_path": tmp_path, "kv_disk_size_bytes": 10**6, "kv_host_memory_bytes": 10**6}
        async with engine(tiny_model, **kept, **more) as llm:
            await collect(llm.generate("hello " * 20, SamplingParams(max_tokens=1)))
            return llm.info.describe()

    async def body() -> None:
        first = await told(kv_cache_dtype="int8", scheduling_policy="prefix", async_scheduling=True)
        assert ", KV in int8, KV kept in host memory (1 MB), KV kept on disk (1 MB), policy prefix, planned " in first
        again = await told(kv_cache_dtype="int8")
        assert re.search(r"KV kept on disk \(1 MB, \d+ blocks? found\)$", again)

    run(body)


def test_shutdown_without_drain_ends_streams_with_an_error_not_a_hang(tiny_model: str) -> None:
    async def body() -> None:
        llm = await AsyncLLM.start(EngineConfig.from_fields({"model": tiny_model, **SETTINGS}))
        stream = llm.generate("hello", LONG)
        await anext(stream)
        await llm.shutdown()
        with pytest.raises(EngineDeadError):
            await collect(stream)

    run(body)


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"max_model_len": 10**6}, ConfigError, "2048 positions"),
        ({"num_kv_blocks": 4}, OutOfMemoryError, "one request of 128 tokens takes 8 blocks"),
    ],
)
def test_what_keeps_a_core_from_starting_is_said_here(
    tiny_model: str, settings: dict[str, object], error: type[Exception], says: str
) -> None:
    async def body() -> None:
        with pytest.raises(error, match=says):
            await AsyncLLM.start(EngineConfig.from_fields({"model": tiny_model, **SETTINGS, **settings}))

    run(body)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 40)

    async def body() -> None:
        with pytest.raises(ModelFileError, match=r"broken\.gguf"):
            await AsyncLLM.start(EngineConfig.from_fields({"model": str(broken), **SETTINGS}))

    run(body)


def test_a_file_that_breaks_words_and_weights_is_told_once(
    tiny_model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "cut.gguf"
    broken.write_bytes(Path(tiny_model).read_bytes()[:5000])

    async def body() -> None:
        with pytest.raises(ModelFileError, match=r"cut\.gguf"):
            await AsyncLLM.start(EngineConfig.from_fields({"model": str(broken), **SETTINGS}))

    run(body)
    gc.collect()
    assert not caplog.records  # asyncio logs exceptions that nobody fetched


def test_a_full_queue_and_impossible_requests_are_refused_from_the_iterator(tiny_model: str) -> None:
    async def body() -> None:
        async with engine(tiny_model, max_num_seqs=1, max_num_queued_reqs=1) as llm:
            streams = [llm.generate(f"hello {i}", LONG) for i in range(8)]
            results = await asyncio.gather(*(collect(stream) for stream in streams), return_exceptions=True)
            refused = [r for r in results if isinstance(r, BaseException)]
            assert {type(r).__name__ for r in refused} == {"QueueFullError"}
            assert 0 < len(refused) < 8

    run(body)


def test_a_thousand_random_aborts_leak_nothing(tiny_model: str) -> None:
    async def one(llm: AsyncLLM, index: int) -> None:
        stream = llm.generate(f"hello {index % 13}", LONG)
        for _ in range(index % 4):
            await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]

    async def body() -> None:
        async with engine(tiny_model, max_num_queued_reqs=2000) as llm:
            await asyncio.gather(*(one(llm, index) for index in range(1000)))
            load = await llm.load()
            assert (load.num_running, load.num_waiting, load.num_free_blocks) == (0, 0, load.num_blocks)
            assert len((await collect(llm.generate("hello", LONG)))[0]) == 100

    run(body)


def test_a_deep_folder_for_temporary_files_is_no_obstacle(
    tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))  # as $TMPDIR would have it

    async def body() -> None:
        async with engine(tiny_model) as llm:
            assert len((await collect(llm.generate("hello", LONG)))[0]) == 100

    run(body)
    assert not list(deep.iterdir())
