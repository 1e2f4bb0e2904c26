"""Sends dialogues when they are due and records what comes of them. The clock is the running loop's."""

import asyncio
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace

from octavo.bench.load.client import Client
from octavo.bench.load.dialogue import Dialogue
from octavo.bench.load.exchange import Answer, Exchange, Outcome
from octavo.bench.load.reception import Reception
from octavo.bench.load.target import Said, Target

Heard = Callable[[Exchange], None]
"""Called with each request that is over."""


class Generator:
    """One run of load. Made when the run begins: that is time 0. If a loop is cancelled, what is under way is given up,
    and counts as aborted."""

    def __init__(self, client: Client, target: Target, heard: Heard = lambda _: None) -> None:
        self._client = client
        self._target = target
        self._heard = heard
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self.exchanges: list[Exchange] = []
        """What is over, in the order of its ends."""

    async def open_loop(
        self, dialogues: Sequence[Dialogue], times: Sequence[float], max_concurrency: int | None = None
    ) -> None:
        """Each dialogue begins at its time, whatever became of those before it.

        Args:
            times: seconds since the run began, one per dialogue, in any order.
            max_concurrency: dialogues under way at most. One that has to wait for its turn was intended earlier, and
                that is what its latencies count from.
        """
        slots = asyncio.Semaphore(max_concurrency) if max_concurrency else None
        async with asyncio.TaskGroup() as tasks:
            for at_s, number in sorted(zip(times, range(len(dialogues)), strict=True)):
                await self._sleep_until(at_s)
                tasks.create_task(self._hold_in_slot(slots, number, dialogues[number], at_s))

    async def closed_loop(self, dialogues: Sequence[Dialogue], clients: int) -> None:
        """So many clients, each of which begins its next dialogue when its last has ended."""
        waiting = iter(enumerate(dialogues))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(clients, len(dialogues))):
                tasks.create_task(self._serve_client(waiting))

    async def _serve_client(self, waiting: Iterator[tuple[int, Dialogue]]) -> None:
        for number, dialogue in waiting:
            await self._hold(number, dialogue, self._now_s())

    async def _hold_in_slot(
        self, slots: asyncio.Semaphore | None, number: int, dialogue: Dialogue, intended_s: float
    ) -> None:
        async with slots or nullcontext():
            await self._hold(number, dialogue, intended_s)

    async def _hold(self, number: int, dialogue: Dialogue, intended_s: float) -> None:
        """One turn after another; a turn that fails is the last."""
        history: list[Said] = []
        for position, turn in enumerate(dialogue.turns):
            reception = Reception(self._target.settings.stream, turn.hang_up_after)
            sent_s = self._loop.time()
            try:
                await self._client.ask(self._target.ask(turn, history), reception)
            finally:  # cancelled, too: then it is one that we gave up
                answer = self._since_begin(reception.answer(sent_s, self._loop.time()))
                lengths = turn.input_len, turn.output_len
                self._note(Exchange(number, position, intended_s, answer, *lengths, dialogue.slo))
            if answer.outcome is not Outcome.COMPLETED or position == len(dialogue.turns) - 1:
                return
            history.append(Said(turn.prompt, answer.text))
            intended_s = self._now_s() + dialogue.think_s
            await self._sleep_until(intended_s)

    def _note(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)
        self._heard(exchange)

    def _since_begin(self, answer: Answer) -> Answer:
        began_s = self._began_s
        chunk_s = array("d", [time_s - began_s for time_s in answer.chunk_s])
        return replace(answer, sent_s=answer.sent_s - began_s, ended_s=answer.ended_s - began_s, chunk_s=chunk_s)

    def _now_s(self) -> float:
        return self._loop.time() - self._began_s

    async def _sleep_until(self, time_s: float) -> None:
        """Not a delay from now, which would add up the time that the waking took."""
        if time_s <= self._now_s():
            return
        due = self._loop.create_future()
        timer = self._loop.call_at(self._began_s + time_s, due.set_result, None)
        try:
            await due
        finally:
            timer.cancel()
