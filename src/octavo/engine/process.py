"""The core process: one engine core behind two ZeroMQ sockets per client. `core_process.CoreProcess` starts it.

The order comes on standard input. That pipe stays open for the life of the client that started it: when it closes, the
client is gone and so is every reason to go on.
"""

import gc
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import psutil
import zmq

import octavo.log
from octavo.engine import client_lines, wire
from octavo.engine.build import build_core
from octavo.engine.client_lines import ClientLines
from octavo.engine.core import EngineCore
from octavo.engine.load_window import LoadSender
from octavo.engine.output import EngineInfo
from octavo.engine.records import Records
from octavo.engine.refusals import REFUSALS, refusal_of
from octavo.engine.wire import Kind, StartOrder
from octavo.errors import OctavoError
from octavo.request import orders
from octavo.request.control import ControlReply, ControlRequest
from octavo.request.outputs import RequestOutput

PREPARE_AFTER_MS = 500
"""Right at its start others need the processor more: the front end is still being imported."""

log = logging.getLogger(__name__)


def main() -> int:
    """Runs a core until it is told to shut down (exit 0), cannot start or breaks (exit 1)."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal, a supervisor signal all processes; the client decides
        signal.signal(number, signal.SIG_IGN)
    before = {"imports": time.time() - psutil.Process().create_time()}
    imported = time.monotonic()
    line = sys.stdin.buffer.readline()
    if not line:  # the client has changed its mind
        return 1
    order = wire.decode_order(line)
    octavo.log.set_up(order.log, role="core")
    threading.Thread(target=_exit_with_client, args=(sys.stdin.fileno(),), name="client-watch", daemon=True).start()
    context = zmq.Context()
    lines = client_lines.connect(context, order.clients)
    try:
        before["order"] = time.monotonic() - imported
        return _serve(order, before, context, lines)
    finally:
        lines.close()
        context.term()


log = logging.getLogger(__name__)


def _exit_with_client(pipe: int) -> None:
    """Nobody is left to answer once the pipe closes, so the process ends at once, mid-step included."""
    while os.read(pipe, 1):
        pass
    os._exit(1)


def _serve(
    order: StartOrder,
    before: dict[str, float],
    context: zmq.Context[zmq.Socket[bytes]],
    lines: ClientLines,
) -> int:
    """`before`: seconds of the start so far, by phase."""
    try:
        core, info = build_core(order.config, order.model, time.monotonic)
    except OctavoError as error:
        lines.send_all(Kind.FAILED, wire.failure_of(error))
        return 1
    # What lives now lives for good. Unfrozen, a full collection would walk it all in mid-step.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
    loads = LoadSender(context, [client.load for client in order.clients], core.load)
    try:
        return serve_core(core, replace(info, start_s={**before, **info.start_s}), lines, loads)
    finally:
        gc.unfreeze()  # what refers in circles, native objects among it, is freed when the process ends


def serve_core(core: EngineCore, info: EngineInfo, lines: ClientLines, loads: LoadSender) -> int:
    """Says that a core is ready, and runs it until it is told to shut down or breaks. Closes it.

    Returns:
        0 after a shutdown; 1 if the core broke, which its clients have then been told.
    """
    lines.send_all(Kind.READY, info)
    try:
        CoreLoop(core, lines, loads).run()
    except Exception as error:
        log.critical("the engine core broke", exc_info=error)
        lines.send_all(Kind.DEAD, wire.failure_of(error))
        return 1
    finally:
        loads.close()
        core.close()
    return 0


def _take_nothing(client: int, payload: bytes) -> None:
    """Of a kind that there is not."""
    log.error("dropped a message of %d bytes from client %d: it is of no kind of ours", len(payload), client)


class CoreLoop:
    """Takes messages, steps, sends outputs; waits only when there is nothing to step: for messages, for stores that
    have something to report, and for the ends of leases."""

    def __init__(self, core: EngineCore, lines: ClientLines, loads: LoadSender) -> None:
        self._core = core
        self._loads = loads
        core.before_landing = loads.before
        self._lines = lines
        self._stopping = False
        self._has_rested = False
        self._records = Records(time.monotonic)
        self._poller = zmq.Poller()
        for socket in lines.sockets:
            self._poller.register(socket, zmq.POLLIN)
        for waker in core.wakers:
            self._poller.register(waker, zmq.POLLIN)
        self._handlers = {
            Kind.REQUEST.frame: self._take_request,
            Kind.CONTROL.frame: self._take_control,
            Kind.NOTE.frame: self._take_note,
        }
        self._commands: dict[type, Callable[[Any], object]] = {
            orders.Abort: self._abort,
            orders.End: self._end,
            orders.Cancel: self._cancel,
            orders.CancelNamed: self._cancel_named,
            orders.Leave: self._leave,
            orders.Ledger: self._ledger,
            orders.LiveRequests: self._live_requests,
            orders.Pause: self._pause,
            orders.Resume: self._resume,
            orders.OpenSession: self._open_session,
            orders.ExtendSession: self._extend_session,
            orders.EndSession: self._end_session,
            orders.Sessions: self._sessions,
            orders.PutRecord: self._put_record,
            orders.GetRecord: self._get_record,
            orders.RemoveRecord: self._remove_record,
            orders.GetLoad: self._get_load,
            orders.ResetPrefixCache: self._reset_prefix_cache,
            orders.StartProfile: self._core.profiler.start,
            orders.GetProfileState: self._profile_state,
            orders.StopProfile: self._stop_profile,
            orders.Shutdown: self._shutdown,
        }

    def run(self) -> None:
        """Runs until a shutdown command; a drain is the client's business: it waits, then says shutdown."""
        while not self._stopping:
            self._take_messages()
            if not self._stopping:
                outputs = self._core.step()
                with self._core.profiler.span("output"):
                    self._send_outputs(outputs)

    def _send_outputs(self, outputs: list[RequestOutput]) -> None:
        if outputs:
            for client in self._lines.send_outputs(outputs):
                self._part_with(client)

    def _take_messages(self) -> None:
        """Takes all messages that are there; waits first while the core has nothing to do."""
        patience_s = self._core.patience_s()
        if patience_s != 0.0:
            self._loads.send()
            self._wait(None if patience_s is None else math.ceil(patience_s * 1e3))
        with self._core.profiler.span("messages"):
            for client, kind, payload in self._lines.messages():
                try:
                    self._handlers.get(kind, _take_nothing)(client, payload)
                except msgspec.DecodeError as error:
                    log.error("dropped a message that is none of ours: %s", error)

    def _wait(self, most_ms: int | None) -> None:
        """Waits for something to do. The first time that nothing comes for a while, and nobody waits for anything but
        the end of a lease or a sign of life, is when the core prepares for grammars."""
        if not self._has_rested and (most_ms is None or most_ms > PREPARE_AFTER_MS):
            self._has_rested = True
            if self._poller.poll(PREPARE_AFTER_MS):
                return
            self._core.prepare_for_grammars()
        self._poller.poll(most_ms)

    def _take_request(self, client: int, payload: bytes) -> None:
        try:
            request = wire.decode_request(payload)
            self._lines.own(client, request.request_id)
            refusal = self._core.add(request)
        except msgspec.ValidationError as error:  # a value of another type than the field's got through
            refusal = wire.unreadable_request(payload, error)
        if refusal is not None:
            self._lines.disown([refusal.request_id])
            self._lines.send(client, Kind.OUTPUTS, [refusal])

    def _take_note(self, client: int, payload: bytes) -> None:
        self._core.delivered(wire.decode_note(payload))

    def _take_control(self, client: int, payload: bytes) -> None:
        try:
            reply = self._obey(wire.decode_control(payload))
        except msgspec.ValidationError as error:
            reply = wire.unreadable_control(payload, error)
        self._lines.send(client, Kind.REPLY, reply)

    def _obey(self, request: ControlRequest) -> ControlReply:
        try:
            return ControlReply(call_id=request.call_id, result=self._commands[type(request.order)](request.order))
        except REFUSALS as error:
            return ControlReply(call_id=request.call_id, refusal=refusal_of(error))

    def _abort(self, order: orders.Abort) -> None:
        self._core.abort(order.request_ids)
        self._lines.disown(order.request_ids)

    def _end(self, order: orders.End) -> object:
        ledger = self._core.end(order)
        self._lines.disown([order.request_id])
        return ledger

    def _cancel(self, order: orders.Cancel) -> None:
        self._send_outputs(self._core.cancel(order.request_ids))

    def _cancel_named(self, order: orders.CancelNamed) -> list[str]:
        """Outputs leave before the reply, so whoever asked for it knows that the streams have been told."""
        ended, outputs = self._core.cancel_named(order.tenant, order.names)
        self._send_outputs(outputs)
        return ended

    def _leave(self, order: orders.Leave) -> None:
        self._part_with(order.client)

    def _part_with(self, client: int) -> None:
        """Ends what a client that is gone has asked for."""
        socket = self._lines.incoming_of(client)
        if socket is not None:
            self._poller.unregister(socket)
            self._core.abort(self._lines.leave(client))

    def _ledger(self, order: orders.Ledger) -> object:
        return self._core.ledger(order.tenant, order.name)

    def _live_requests(self, _: orders.LiveRequests) -> object:
        return self._core.live_requests()

    def _pause(self, order: orders.Pause) -> int:
        ended = self._core.pause(order.mode)
        self._send_outputs(ended)
        return len(ended)

    def _resume(self, _: orders.Resume) -> None:
        self._core.resume()

    def _open_session(self, order: orders.OpenSession) -> object:
        return self._core.open_session(order.tenant, order.pin, order.token_ids, order.cache_salt)

    def _extend_session(self, order: orders.ExtendSession) -> object:
        return self._core.extend_session(order.tenant, order.pin)

    def _end_session(self, order: orders.EndSession) -> bool:
        return self._core.end_session(order.tenant, order.pin.session_id)

    def _sessions(self, order: orders.Sessions) -> object:
        return self._core.sessions(order.tenant)

    def _put_record(self, order: orders.PutRecord) -> bool:
        return self._records.put(order.tenant, order.name, order.content, order.limits)

    def _get_record(self, order: orders.GetRecord) -> bytes | None:
        return self._records.get(order.tenant, order.name)

    def _remove_record(self, order: orders.RemoveRecord) -> bool:
        return self._records.remove(order.tenant, order.name)

    def _get_load(self, _: orders.GetLoad) -> object:
        return msgspec.to_builtins(self._core.load())

    def _profile_state(self, _: orders.GetProfileState) -> object:
        return self._core.profiler.state()

    def _stop_profile(self, order: orders.StopProfile) -> object:
        return self._core.profiler.stop(order.number)

    def _reset_prefix_cache(self, _: orders.ResetPrefixCache) -> bool:
        return self._core.reset_prefix_cache()

    def _shutdown(self, _: orders.Shutdown) -> None:
        self._stopping = True
