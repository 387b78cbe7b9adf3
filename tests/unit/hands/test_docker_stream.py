from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

import pytest

from services.hands.backends.docker.stream import attach, opened


def piece(stream: int, data: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize("step", [1, 3, 8, 11, 1000])
async def test_output_is_whole_however_it_was_cut(step: int) -> None:
    ours, theirs = socket.socketpair()
    reader, writer, stream = await opened(ours)
    sent = piece(1, b"abc") + piece(1, b"") + piece(2, b"noise") + piece(1, b"d" * 50)
    for start in range(0, len(sent), step):
        theirs.sendall(sent[start : start + step])
        await asyncio.sleep(0)
    theirs.close()
    assert await reader.read() == b"abc" + b"d" * 50
    assert stream.ended.is_set()
    writer.close()


async def test_complaint_before_the_first_word_is_passed_on() -> None:
    ours, theirs = socket.socketpair()
    reader, writer, _ = await opened(ours)
    theirs.sendall(piece(2, b"no python\n"))
    theirs.close()
    assert await reader.read() == b"no python\n"
    writer.close()


async def test_flood_waits_in_the_engine_and_not_in_memory() -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    reader, writer, _ = await opened(ours)
    frame, sent, idle = piece(1, b"x" * 65536), 0, 0
    while idle < 20:
        try:
            sent += theirs.send(frame)
            idle = 0
        except BlockingIOError:
            idle += 1
        await asyncio.sleep(0)
    assert sent < 4 << 20
    assert len(await reader.readexactly(100_000)) == 100_000
    writer.close()
    theirs.close()


def test_engine_that_does_not_attach_is_an_error(tmp_path: Path) -> None:
    path = f"{tmp_path}/s"
    with socket.create_server(path, family=socket.AF_UNIX) as server:

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(ConnectionError, match="attaches nobody"):
            attach(path, "1.41", "abc", seconds=30)
        thread.join()
