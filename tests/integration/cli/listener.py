"""A service as the supervisor knows one: listens where it is told and ends on SIGTERM."""

from __future__ import annotations

import os
import signal
import socket
import sys


def main() -> None:
    host, _, port = os.environ["DROVER_LISTEN"].rpartition(":")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with socket.create_server((host, int(port))) as server:
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(f"{os.getpid()} {os.environ.get('SECRET', '')}\n".encode())


if __name__ == "__main__":
    main()
