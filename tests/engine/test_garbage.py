"""What is sent to the sockets between client and core by somebody else: it is dropped, and both go on."""

import asyncio
import os
import pickle
import stat
from pathlib import Path

import psutil
import pytest
import zmq

from octavo import AsyncLLM, SamplingParams
from octavo.config import EngineConfig
from octavo.engine.core_process import CoreProcess


class Bomb:
    """Unpickled, it would end the process."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (66,)


KINDS = [b"request", b"control", b"outputs", b"reply", b"failed", b"nonsense", b""]
PAYLOADS = [b"", b"\x00" * 100, os.urandom(100), pickle.dumps(Bomb()), b"\xc1", b"\x80", b'{"request_id": "x"}']
GARBAGE = [[b"x"], [b"a", b"b", b"c"], *([kind, payload] for kind in KINDS for payload in PAYLOADS)]


def test_garbage_is_survived_on_both_sides(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CoreProcess, "hide_sockets", lambda _: None)

    async def body() -> None:
        fields: dict[str, object] = {"model": tiny_model, "max_model_len": 128, "num_kv_blocks": 40, "threads": 1}
        llm = await AsyncLLM.start(EngineConfig.from_fields(fields))
        folder = llm._client._process.folder
        try:
            before = await answer(llm)
            for message in GARBAGE:
                await llm._client._to_core.send_multipart(message)
            assert await answer(llm) == before
            (output,) = folder.glob("out*")
            with zmq.Context() as context, context.socket(zmq.PUSH) as stranger:
                stranger.connect(f"ipc://{output}")
                for message in GARBAGE:
                    stranger.send_multipart(message)
                assert await answer(llm) == before
            assert llm.alive
        finally:
            await llm.shutdown()
        monkeypatch.undo()
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()

    asyncio.run(asyncio.wait_for(body(), 60))


async def answer(llm: AsyncLLM) -> list[int]:
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    return [i async for delta in llm.generate("hello", params) for i in delta.choice.token_ids]


def test_the_sockets_are_files_in_a_private_folder_and_then_nowhere(tiny_model: str) -> None:
    seen: list[int] = []
    hide = CoreProcess.hide_sockets

    def look(process: CoreProcess) -> None:
        if process.folder.exists():
            seen.append(stat.S_IMODE(process.folder.stat().st_mode))
            assert Path(process.folder).owner()
        hide(process)

    def listening(pid: int) -> set[tuple[str, int]]:
        connections = psutil.Process(pid).net_connections("inet")
        return {c.laddr for c in connections if c.status == psutil.CONN_LISTEN}

    async def body() -> None:
        fields: dict[str, object] = {"model": tiny_model, "max_model_len": 128, "num_kv_blocks": 40, "threads": 1}
        others = listening(os.getpid())  # of servers that tests before this one share
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CoreProcess, "hide_sockets", look)
            llm = await AsyncLLM.start(EngineConfig.from_fields(fields))
        try:
            assert seen == [0o700]
            assert not llm._client._process.folder.exists()
            assert listening(os.getpid()) <= others
            assert listening(llm.core_pid) == set()
        finally:
            await llm.shutdown()

    asyncio.run(asyncio.wait_for(body(), 60))
