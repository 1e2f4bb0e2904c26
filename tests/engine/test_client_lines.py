"""Several clients of one core: each gets what it asked for, and whoever leaves holds up nobody."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from octavo.engine import client_lines, wire
from octavo.engine.client_lines import ClientLines
from octavo.engine.wire import Kind
from octavo.request.control import ControlReply
from octavo.request.outputs import FinishReason, RequestOutput


class Client:
    """The other ends of a line."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], addresses: wire.Addresses) -> None:
        self.to_core, self.from_core = context.socket(zmq.PUSH), context.socket(zmq.PULL)
        self.to_core.bind(addresses.input)
        self.from_core.bind(addresses.output)

    def outputs(self) -> list[RequestOutput]:
        assert self.from_core.poll(10_000), "nothing came"
        kind, payload = self.from_core.recv_multipart()
        assert kind == Kind.OUTPUTS.frame
        return wire.decode_outputs(payload)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[ClientLines, list[Client]]]:
    addresses = [wire.addresses(tmp_path, number) for number in range(3)]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    clients = [Client(context, address) for address in addresses]
    lines = client_lines.connect(context, addresses)
    yield lines, clients
    lines.close()
    context.destroy(linger=0)


def output(request_id: str, *, last: bool = False) -> RequestOutput:
    return RequestOutput(request_id=request_id, new_token_ids=[7], finish_reason=FinishReason.LENGTH if last else None)


def test_each_client_gets_the_outputs_of_its_own_requests(world: tuple[ClientLines, list[Client]]) -> None:
    lines, clients = world
    for client, request_id in ((0, "a"), (1, "b"), (1, "c"), (2, "d")):
        lines.own(client, request_id)
    assert lines.send_outputs([output(name) for name in "abcd"] + [output("nobody's")]) == []
    assert [[one.request_id for one in client.outputs()] for client in clients] == [["a"], ["b", "c"], ["d"]]


def test_an_ended_request_is_forgotten(world: tuple[ClientLines, list[Client]]) -> None:
    lines, clients = world
    for request_id in "abc":
        lines.own(1, request_id)
    lines.send_outputs([output("a", last=True)])
    lines.disown(["b"])
    lines.send_outputs([output(name) for name in "abc"])
    assert [[one.request_id for one in clients[1].outputs()] for _ in range(2)] == [["a"], ["c"]]
    assert lines.leave(1) == ["c"]


def test_messages_name_their_client(world: tuple[ClientLines, list[Client]]) -> None:
    lines, clients = world
    for number, client in enumerate(clients):
        client.to_core.send_multipart([b"request", str(number).encode()])
    seen: dict[int, bytes] = {}
    while len(seen) < 3:
        for socket in lines.sockets:
            socket.poll(100)
        seen |= {client: payload for client, _, payload in lines.messages()}
    assert seen == {0: b"0", 1: b"1", 2: b"2"}


def test_nothing_is_sent_to_a_client_that_has_left(world: tuple[ClientLines, list[Client]]) -> None:
    lines, clients = world
    lines.own(2, "a")
    lines.own(0, "b")
    assert lines.leave(2) == ["a"]
    assert lines.leave(2) == []
    assert lines.incoming_of(2) is None
    lines.send(2, Kind.REPLY, ControlReply(call_id=1))
    assert lines.send_outputs([output("a"), output("b")]) == []
    assert [one.request_id for one in clients[0].outputs()] == ["b"]
    assert clients[2].from_core.poll(0) == 0


def test_a_client_that_does_not_read_is_named_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "HIGH_WATER_MARK", 4)
    with zmq.Context() as context:
        lines = client_lines.connect(context, [wire.addresses(tmp_path, number) for number in range(2)])
        lines.own(1, "a")
        sent = [lines.send_outputs([output("a")]) for _ in range(6)]  # nobody has bound the other end
        assert sent == [[], [], [], [], [1], [1]]
        assert lines.leave(1) == ["a"]
        lines.leave(0)
