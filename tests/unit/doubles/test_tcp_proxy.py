"""The proxy that breaks connections does exactly what it says, and only that."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.doubles.tcp_proxy import TcpProxy, Way


class Echo:
    """A server that answers every byte with itself, and ends when its client does."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                end, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(end,), daemon=True).start()

    @staticmethod
    def _echo(end: socket.socket) -> None:
        with end:
            try:
                while data := end.recv(65536):
                    end.sendall(data)
            except OSError:
                pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def proxy() -> Iterator[TcpProxy]:
    echo = Echo()
    with TcpProxy(echo.port) as proxy:
        yield proxy
    echo.close()


def connected(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=30)


def bound(end: socket.socket) -> int:
    """The port that it is given."""
    end.bind(("127.0.0.1", 0))
    port: int = end.getsockname()[1]
    return port


def received(end: socket.socket, count: int) -> bytes:
    """So many bytes, or fewer where the connection ends before."""
    data = b""
    while len(data) < count and (more := end.recv(count - len(data))):
        data += more
    return data


def test_bytes_pass_unchanged_both_ways_and_the_end_follows_them(proxy: TcpProxy) -> None:
    payload = bytes(range(256)) * 4096
    with connected(proxy) as end:
        sender = threading.Thread(target=lambda: (end.sendall(payload), end.shutdown(1)))
        sender.start()
        assert received(end, len(payload) + 1) == payload
        sender.join()
    traffic = proxy.wait_until(lambda now: now.live == 0)
    assert traffic.passed == {Way.UP: len(payload), Way.DOWN: len(payload)}
    assert (traffic.opened, traffic.cut) == (1, 0)


def test_delay_makes_bytes_late_in_the_direction_that_was_named(proxy: TcpProxy) -> None:
    with connected(proxy) as end:
        proxy.delay(1.0, Way.DOWN)
        start = time.monotonic()
        end.sendall(b"late")
        assert received(end, 4) == b"late"
        assert time.monotonic() - start >= 1.0
        proxy.delay(600, Way.DOWN)
        end.sendall(b"up")
        proxy.wait_until(lambda now: now.passed[Way.UP] == 6)
    with connected(proxy) as end:
        proxy.delay(0)
        end.sendall(b"soon")
        assert received(end, 4) == b"soon"


def test_stalled_direction_holds_bytes_and_ends_until_it_flows(proxy: TcpProxy) -> None:
    with connected(proxy) as end:
        proxy.stall(Way.DOWN)
        end.sendall(b"held")
        end.shutdown(socket.SHUT_WR)
        proxy.wait_until(lambda now: now.held(Way.DOWN) == 4)
        end.settimeout(0.1)
        with pytest.raises(TimeoutError):
            end.recv(1)
        end.settimeout(30)
        proxy.flow()
        assert received(end, 5) == b"held"


def test_stalled_direction_makes_its_sender_wait_in_the_end(proxy: TcpProxy) -> None:
    with connected(proxy) as end:
        proxy.stall(Way.UP)
        end.settimeout(0.2)
        with pytest.raises(TimeoutError):
            end.sendall(b"x" * 64_000_000)


def test_connection_opened_while_stalled_is_stalled_too(proxy: TcpProxy) -> None:
    proxy.stall()
    with connected(proxy) as end:
        end.sendall(b"a")
        proxy.wait_until(lambda now: now.held(Way.UP) == 1)
        proxy.flow(Way.UP)
        proxy.wait_until(lambda now: now.held(Way.DOWN) == 1)
        proxy.flow(Way.DOWN)
        assert received(end, 1) == b"a"


def test_cut_resets_every_connection_and_loses_what_was_held(proxy: TcpProxy) -> None:
    with connected(proxy) as first, connected(proxy) as second:
        proxy.wait_until(lambda now: now.live == 2)
        proxy.stall(Way.DOWN)
        first.sendall(b"lost")
        proxy.wait_until(lambda now: now.held(Way.DOWN) == 4)
        assert proxy.cut() == 2
        for end in (first, second):
            with pytest.raises(ConnectionResetError):
                end.recv(1)
    proxy.flow()
    with connected(proxy) as end:  # new ones are untouched
        end.sendall(b"ok")
        assert received(end, 2) == b"ok"


@pytest.mark.parametrize("count", [0, 1, 5, 9_999])
def test_cut_after_passes_exactly_so_many_bytes_and_then_an_end(
    proxy: TcpProxy, count: int
) -> None:
    with connected(proxy) as end:
        end.sendall(b"before")
        assert received(end, 6) == b"before"
        proxy.cut_after(count, Way.DOWN)
        payload = bytes(number % 251 for number in range(10_000))
        end.sendall(payload)
        assert received(end, 10_000) == payload[:count]
    assert proxy.wait_until(lambda now: now.live == 0).cut == 1
    with connected(proxy) as end:  # it was for one connection
        end.sendall(payload)
        assert received(end, 10_000) == payload


def test_half_close_ends_one_direction_and_leaves_the_other(proxy: TcpProxy) -> None:
    with connected(proxy) as end:
        end.sendall(b"a")
        assert received(end, 1) == b"a"
        proxy.half_close(Way.DOWN)
        assert received(end, 1) == b""
        end.sendall(b"bcd")
        proxy.wait_until(lambda now: now.passed[Way.UP] == 4)


def test_refused_connections_fail_at_once_and_open_ones_stay(proxy: TcpProxy) -> None:
    with connected(proxy) as end:
        end.sendall(b"a")
        assert received(end, 1) == b"a"
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            connected(proxy)
        end.sendall(b"b")
        assert received(end, 1) == b"b"
        proxy.admit()
        with connected(proxy) as again:
            again.sendall(b"c")
            assert received(again, 1) == b"c"


def test_connection_to_a_server_that_is_gone_is_reset() -> None:
    with (
        socket.socket() as gone,  # bound and not listening: the port is nobody else's meanwhile
        TcpProxy(bound(gone)) as proxy,
        pytest.raises(ConnectionResetError),
        connected(proxy) as end,
    ):
        end.recv(1)
