"""A namespace that is cut off drops what it is told to, says nothing, and heals."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.doubles.partition import Namespace, namespace

ECHO = """
import socket, sys
listener = socket.create_server((sys.argv[1], 0))
print(listener.getsockname()[1], flush=True)
while True:
    end, _ = listener.accept()
    while data := end.recv(100):
        end.sendall(data)
"""


@contextmanager
def echo(net: Namespace) -> Iterator[int]:
    """A server in the namespace; its port."""
    command = [*net.prefix, sys.executable, "-c", ECHO, net.inside]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.kill()


def said(end: socket.socket, words: bytes) -> bytes:
    end.sendall(words)
    return end.recv(100)


@pytest.fixture
def net() -> Iterator[Namespace]:
    with namespace() as made:
        yield made


def test_connection_hangs_while_cut_and_goes_on_once_healed(net: Namespace) -> None:
    with echo(net) as port, socket.create_connection((net.inside, port), timeout=30) as end:
        assert said(end, b"before") == b"before"
        net.cut()
        end.settimeout(0.3)
        with pytest.raises(TimeoutError):
            said(end, b"after")
        net.heal()
        end.settimeout(60)
        assert end.recv(100) == b"after"


def test_new_connection_is_neither_made_nor_refused_while_cut(net: Namespace) -> None:
    with echo(net) as port:
        net.cut()
        with pytest.raises(TimeoutError):
            socket.create_connection((net.inside, port), timeout=0.3)


def test_cut_of_one_port_leaves_the_others(net: Namespace) -> None:
    with echo(net) as kept, echo(net) as lost:
        net.cut(lost)
        with pytest.raises(TimeoutError):
            socket.create_connection((net.inside, lost), timeout=0.3)
        with closing(socket.create_connection((net.inside, kept), timeout=30)) as end:
            assert said(end, b"kept") == b"kept"
