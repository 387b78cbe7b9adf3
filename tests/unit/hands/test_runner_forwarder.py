"""The forwarder inside a sandbox: bytes both ways, in bounds, whatever its peers do."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from services.hands.runner.forwarder import Forwarder
from tests.doubles.ports import free_port

SECONDS = 20.0


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[socket.socket]:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "proxy.sock"))
    listener.listen(64)
    listener.settimeout(SECONDS)
    with listener:
        yield listener


@pytest.fixture
def connect(tmp_path: Path, upstream: socket.socket) -> Callable[[], socket.socket]:
    """Connects to a forwarder that runs. It is a thread for as long as the process is."""
    assert upstream
    port = free_port()
    forwarder = Forwarder(port, str(tmp_path / "proxy.sock"))
    forwarder.start()
    forwarder.start()  # it is there already
    assert forwarder.running

    def connected() -> socket.socket:
        one = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        one.settimeout(SECONDS)
        return one

    return connected


def accepted(upstream: socket.socket) -> socket.socket:
    one, _ = upstream.accept()
    one.settimeout(SECONDS)
    return one


def received(one: socket.socket) -> bytes:
    """All until the end."""
    data = bytearray()
    while chunk := one.recv(1 << 16):
        data += chunk
    return bytes(data)


def test_bytes_go_both_ways_and_each_half_ends_by_itself(
    upstream: socket.socket, connect: Callable[[], socket.socket]
) -> None:
    sent, answer = os.urandom(3 << 20), os.urandom(3 << 20)
    with connect() as program, accepted(upstream) as proxy:
        sending = threading.Thread(target=program.sendall, args=(sent,))
        sending.start()
        got = bytearray()
        while len(got) < len(sent):
            got += proxy.recv(1 << 16)
        sending.join()
        assert bytes(got) == sent
        program.shutdown(socket.SHUT_WR)
        assert received(proxy) == b""
        sending = threading.Thread(target=_send_and_end, args=(proxy, answer))
        sending.start()
        assert received(program) == answer
        sending.join()


def _send_and_end(one: socket.socket, data: bytes) -> None:
    one.sendall(data)
    one.close()


def test_slow_reader_slows_who_writes_and_nobody_else(
    upstream: socket.socket, connect: Callable[[], socket.socket]
) -> None:
    with connect() as program, accepted(upstream) as proxy:
        proxy.setblocking(False)
        sent, deadline = 0, time.monotonic() + 1
        while time.monotonic() < deadline:
            try:
                sent += proxy.send(bytes(1 << 16))
                deadline = time.monotonic() + 0.2
            except BlockingIOError:
                continue
        assert sent < 16 << 20  # what the sockets hold
        with connect() as other, accepted(upstream) as second:
            second.sendall(b"at once")
            assert other.recv(100) == b"at once"
        proxy.settimeout(SECONDS)
        proxy.close()
        assert len(received(program)) == sent


def test_end_that_is_reset_ends_the_other(
    upstream: socket.socket, connect: Callable[[], socket.socket]
) -> None:
    with connect() as program, accepted(upstream) as proxy:
        program.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        program.close()
        assert received(proxy) == b""


def test_without_a_socket_to_connect_to_a_connection_ends(
    upstream: socket.socket, connect: Callable[[], socket.socket]
) -> None:
    Path(upstream.getsockname()).unlink()
    with connect() as program, suppress(ConnectionResetError):
        assert received(program) == b""


def test_port_that_is_taken_is_tried_again_later(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        forwarder = Forwarder(taken.getsockname()[1], str(tmp_path / "none"))
        forwarder.start()
        assert not forwarder.running
    forwarder.start()
    assert forwarder.running


def test_whatever_goes_wrong_it_goes_on(
    upstream: socket.socket,
    connect: Callable[[], socket.socket],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with connect() as first, accepted(upstream), monkeypatch.context() as patched:
        patched.setattr(Forwarder, "_move", _fails)
        first.sendall(b"x")
        with pytest.raises((ConnectionResetError, AssertionError)):
            assert first.recv(1), "it was dropped"
    with connect() as second, accepted(upstream) as proxy:
        second.sendall(b"y")
        assert proxy.recv(1) == b"y"


def _fails(*_: object) -> None:
    raise MemoryError
