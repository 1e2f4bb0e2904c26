"""A client's side of a core process: speaks to it, notices when it dies."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Sequence
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from octavo.engine import wire
from octavo.engine.core_hold import CoreHold
from octavo.engine.core_process import SHUTDOWN_PATIENCE_S
from octavo.engine.load_window import LoadReceiver
from octavo.engine.output import EngineInfo
from octavo.engine.refusals import error_of
from octavo.engine.wire import Kind
from octavo.errors import (
    ConfigError,
    EngineDeadError,
    ModelFileError,
    OctavoError,
    OutOfMemoryError,
    UnsupportedModelError,
)
from octavo.request import orders
from octavo.request.control import ControlReply, ControlRequest, EngineLoad
from octavo.request.ledger import Delivered, RequestLedger
from octavo.request.orders import Order, PauseMode, RecordLimits
from octavo.request.outputs import RequestOutput, RequestStats
from octavo.request.pin import PinRequest, SessionState
from octavo.request.profile import Profile, ProfileState
from octavo.request.request import GenerateRequest

log = logging.getLogger(__name__)


class CoreClient:
    """One core process. Outputs go to the queue that the request was registered with.

    A queue gets `RequestOutput`s, and an `EngineDeadError` as its last item if the core dies.
    """

    info: EngineInfo

    def __init__(self, process: CoreHold) -> None:
        """Takes charge of a process that has its order: `close` ends it if it is this one's."""
        self._process = process
        self._context = zmq.asyncio.Context()
        sockets = wire.addresses(process.folder, process.client)
        self._to_core = self._bind(zmq.PUSH, sockets.input)
        self._from_core = self._bind(zmq.PULL, sockets.output)
        self._loads = LoadReceiver(self._context, sockets.load)
        self._queues: dict[str, asyncio.Queue[RequestOutput | EngineDeadError]] = {}
        self._calls: dict[int, asyncio.Future[ControlReply]] = {}
        self._call_ids = itertools.count()
        self._death: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._watching = asyncio.create_task(self._watch_process())
        self._tasks = [self._watching]
        self._closing = False
        self._ready = False
        self._failed = False
        """The core has said why it cannot start, and ends by itself when it has told all its clients."""

    def _bind(self, kind: int, address: str) -> zmq.asyncio.Socket:
        socket = self._context.socket(kind)
        socket.set_hwm(wire.HIGH_WATER_MARK)
        socket.bind(address)
        return socket

    async def start(self) -> EngineInfo:
        """Waits until the core is ready.

        Raises:
            OctavoError: whatever kept the core from starting, as raised there.
        """
        self.info = await self._wait_ready()
        self._ready = True
        self._tasks.append(asyncio.create_task(self._dispatch()))
        await self.load()  # an answer shows that both connections stand
        self._process.note_connection()
        return self.info

    async def _wait_ready(self) -> EngineInfo:
        receive = asyncio.ensure_future(self._from_core.recv_multipart())
        waiting: list[asyncio.Future[Any]] = [receive, self._death]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not receive.done():
            receive.cancel()
            raise EngineDeadError(f"the engine core ended while starting: {self._death.result()}")
        kind, payload = receive.result()
        if kind == Kind.READY.frame:
            return wire.decode_info(payload)
        self._failed = True
        raise _start_error(wire.decode_failure(payload))

    async def _watch_process(self) -> None:
        code = await self._process.wait()
        if not self._closing:
            self.lose(f"the engine core process ended with exit code {code}")

    def lose(self, reason: str) -> None:
        """Takes note that the core is gone, from somebody who knows, and tells everybody, once."""
        if self._death.done():
            return
        self._death.set_result(reason)
        for queue in self._queues.values():
            queue.put_nowait(EngineDeadError(reason))
        for call in self._calls.values():
            if not call.done():
                call.set_exception(EngineDeadError(reason))

    def _epitaph(self) -> str:
        return self._death.result() if self._death.done() else "the engine is shutting down"

    async def _dispatch(self) -> None:
        try:
            await self._hand_out()
        finally:  # an event loop that ends cancels this task first: whoever waits for an answer would wait for ever
            self.lose("nobody reads the engine core's answers any more")

    async def _hand_out(self) -> None:
        while True:
            frames = await self._from_core.recv_multipart()
            try:
                kind, payload = frames
                self._hand_on(kind, payload)
            except (ValueError, msgspec.DecodeError) as error:
                log.error("dropped a message that the core did not send: %s", error)

    def _hand_on(self, kind: bytes, payload: bytes) -> None:
        """
        Raises:
            msgspec.DecodeError: the payload is not what the kind says.
        """
        if kind == Kind.OUTPUTS.frame:
            for output in wire.decode_outputs(payload):
                queue = self._queues.get(output.request_id)
                if queue is not None:
                    queue.put_nowait(output)
        elif kind == Kind.REPLY.frame:
            reply = wire.decode_reply(payload)
            call = self._calls.pop(reply.call_id, None)
            if call is not None and not call.done():
                call.set_result(reply)
        elif kind == Kind.DEAD.frame:
            self.lose(f"the engine core failed: {wire.decode_failure(payload).message}")

    @property
    def alive(self) -> bool:
        """Whether the core can still answer."""
        return not self._death.done() and not self._closing

    @property
    def number(self) -> int:
        """Which of the core's clients this one is."""
        return self._process.client

    @property
    def core_pid(self) -> int:
        """Process id of the core."""
        return self._process.pid

    async def wait_dead(self) -> str:
        """Waits until the core is dead or shut down; returns why."""
        return await asyncio.shield(self._death)

    def register(self, request_ids: list[str]) -> asyncio.Queue[RequestOutput | EngineDeadError]:
        """Opens one queue for the outputs of these core requests."""
        if not self.alive:
            raise EngineDeadError(self._epitaph())
        queue: asyncio.Queue[RequestOutput | EngineDeadError] = asyncio.Queue()
        self._queues.update(dict.fromkeys(request_ids, queue))
        return queue

    def forget(self, request_ids: list[str]) -> None:
        """Drops outputs of these requests from now on."""
        for request_id in request_ids:
            self._queues.pop(request_id, None)

    async def submit(self, request: GenerateRequest) -> None:
        """Sends a request to the core."""
        await self._to_core.send_multipart([Kind.REQUEST.frame, wire.encoder.encode(request)])

    async def abort(self, request_ids: list[str]) -> None:
        """Ends core requests; returns when the core has done so."""
        if request_ids and self.alive:
            await self._ask(orders.Abort(request_ids))

    async def cancel(self, request_ids: list[str]) -> None:
        """Like `abort`, and their queues get a last output with finish reason `abort`."""
        if request_ids and self.alive:
            await self._ask(orders.Cancel(request_ids))

    async def cancel_named(self, tenant: str, names: Sequence[str]) -> list[str]:
        """Ends API requests of a tenant; returns the ids of those that were live. Their queues get last outputs, here
        or in whatever process they are."""
        return msgspec.convert(await self._ask(orders.CancelNamed(tenant, list(names))), list[str])

    async def ledger(self, tenant: str, name: str) -> RequestLedger | None:
        """See `EngineCore.ledger`."""
        return msgspec.convert(await self._ask(orders.Ledger(tenant, name)), RequestLedger | None)

    async def live_requests(self) -> list[RequestLedger]:
        """See `EngineCore.live_requests`."""
        return msgspec.convert(await self._ask(orders.LiveRequests()), list[RequestLedger])

    async def pause(self, mode: PauseMode) -> int:
        """Begins a pause, or goes on in another mode; returns how many sequences it has ended."""
        return int(await self._ask(orders.Pause(mode)))

    async def resume(self) -> None:
        """Ends a pause."""
        await self._ask(orders.Resume())

    async def load(self) -> EngineLoad:
        """How busy the core is, when it has ended its step.

        Raises:
            EngineDeadError: the core is gone.
        """
        load = msgspec.convert(await self._ask(orders.GetLoad()), EngineLoad)
        self._loads.take(load)
        return load

    def newest_load(self) -> EngineLoad:
        """How busy the core was at the last time that it said so, mostly when it began its step; at once.

        Raises:
            EngineDeadError: the core is gone.
        """
        newest = self._loads.newest() if self.alive else None
        if newest is None:
            raise EngineDeadError(self._epitaph())
        return newest

    async def reset_prefix_cache(self) -> bool:
        """Forgets cached prefixes; False while requests hold blocks."""
        return bool(await self._ask(orders.ResetPrefixCache()))

    async def start_profile(self, order: orders.StartProfile) -> int:
        """See `Profiler.start`."""
        return int(await self._ask(order))

    async def profile_state(self) -> ProfileState:
        """See `Profiler.state`."""
        return msgspec.convert(await self._ask(orders.GetProfileState()), ProfileState)

    async def stop_profile(self, number: int | None) -> Profile:
        """See `Profiler.stop`."""
        return msgspec.convert(await self._ask(orders.StopProfile(number)), Profile)

    async def end(self, told: orders.End) -> RequestStats | None:
        """See `EngineCore.end`."""
        return msgspec.convert(await self._ask(told), RequestStats | None)

    def note_delivery(self, note: Delivered) -> None:
        """Tells the core that an answer has left. Nothing comes back, and a core that is gone need not know."""
        if self.alive:
            self._to_core.send_multipart([Kind.NOTE.frame, wire.encoder.encode(note)])

    async def open_session(
        self, tenant: str, pin: PinRequest, token_ids: Sequence[int] = (), cache_salt: str | None = None
    ) -> SessionState:
        """See `Pins.open`."""
        order = orders.OpenSession(tenant, pin, list(token_ids), cache_salt)
        return msgspec.convert(await self._ask(order), SessionState)

    async def extend_session(self, tenant: str, pin: PinRequest) -> SessionState | None:
        """See `Pins.extend`."""
        return msgspec.convert(await self._ask(orders.ExtendSession(tenant, pin)), SessionState | None)

    async def end_session(self, tenant: str, session_id: str) -> bool:
        """See `Pins.release`."""
        return bool(await self._ask(orders.EndSession(tenant, PinRequest(session_id=session_id))))

    async def sessions(self, tenant: str) -> list[SessionState]:
        """See `Pins.states`."""
        return msgspec.convert(await self._ask(orders.Sessions(tenant)), list[SessionState])

    async def put_record(self, tenant: str, name: str, content: bytes, limits: RecordLimits) -> bool:
        """See `Records.put`."""
        return bool(await self._ask(orders.PutRecord(tenant, name, content, limits)))

    async def record(self, tenant: str, name: str) -> bytes | None:
        """See `Records.get`."""
        return msgspec.convert(await self._ask(orders.GetRecord(tenant, name)), bytes | None)

    async def remove_record(self, tenant: str, name: str) -> bool:
        """See `Records.remove`."""
        return bool(await self._ask(orders.RemoveRecord(tenant, name)))

    async def _ask(self, order: Order) -> Any:
        """What the core replies, as plain data.

        Raises:
            EngineDeadError: the core is gone.
            InvalidRequestError, PinBudgetError, ProfileError: it refuses.
        """
        if not self.alive:
            raise EngineDeadError(self._epitaph())
        request = ControlRequest(call_id=next(self._call_ids), order=order)
        call = asyncio.get_running_loop().create_future()
        self._calls[request.call_id] = call
        await self._to_core.send_multipart([Kind.CONTROL.frame, wire.encoder.encode(request)])
        reply: ControlReply = await call
        if reply.refusal is not None:
            raise error_of(reply.refusal)
        return reply.result

    async def forget_client(self, client: int) -> None:
        """Ends what another client of the core has asked for, since that is gone."""
        await self._ask(orders.Leave(client))

    async def close(self) -> None:
        """Ends the core in order if it is this one's, killing it if it does not obey; frees the sockets. Idempotent."""
        if self._closing:
            return
        if not self._process.is_owned:
            pass  # whoever owns it goes on, or ends it
        elif self.alive and self._ready:  # a core that did not start reads no orders
            with contextlib.suppress(EngineDeadError, TimeoutError):
                async with asyncio.timeout(SHUTDOWN_PATIENCE_S):
                    await self._ask(orders.Shutdown())
        elif not self._failed:
            self._process.hang_up()
        self._closing = True
        if self._process.is_owned:
            await self._end_process()
        self.lose("the engine was shut down")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._to_core.close(linger=0)
        self._from_core.close(linger=0)
        self._loads.close()
        self._context.term()

    async def _end_process(self) -> None:
        """Lets the process end by itself, then makes it."""
        await asyncio.wait({self._watching}, timeout=SHUTDOWN_PATIENCE_S)
        await asyncio.to_thread(self._process.close)


_START_ERRORS: dict[str, type[OctavoError]] = {
    kind.__name__: kind for kind in (ModelFileError, UnsupportedModelError, OutOfMemoryError)
}


def _start_error(failure: wire.Failure) -> OctavoError:
    """The core's error as the same class, so that a caller's handling does not depend on the process border. But for a
    ConfigError only the message crosses it, hence no call of the class, whose arguments are other than a message."""
    if failure.error == ConfigError.__name__:
        return ConfigError(failure.field, failure.value, failure.problem)
    kind = _START_ERRORS.get(failure.error, EngineDeadError)
    return kind.__new__(kind, failure.message)
