"""`python -m cli.probe [ADDRESS]`: whether a process answers, for the health checks of containers.

One question, and the exit code says what came of it: 0 that it serves, 1 that it does not. It runs
again and again beside what it asks, so it imports next to nothing: of gRPC the library alone.
"""

from __future__ import annotations

import os
import socket
import sys
from binascii import Error as Base64Error
from binascii import a2b_base64
from pathlib import Path
from typing import Final

from identity.names import name_of
from identity.table import Caller

SECONDS: Final = 4.0
"""How long an answer may take."""

_ANY: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104
_SERVING: Final = b"\x08\x01"
"""`grpc.health.v1.HealthCheckResponse` with the status SERVING."""
_UNIX: Final = "http+unix:"
_HEALTH: Final = "/grpc.health.v1.Health/Check"
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def probe(address: str, tls_dir: Path | None, seconds: float = SECONDS) -> str:
    """Why what listens at `address` does not serve; empty if it does.

    `http://host:port/path`, or `http+unix:/socket:/path`, must answer 200; anything else is a gRPC
    server's, which is asked for its health. With `tls_dir` it must be who this directory's
    certificate is of: a process is asked with what is its own.
    """
    if address.startswith(("http://", _UNIX)):
        return _http(address, seconds)
    return _grpc(address, tls_dir, seconds)


def _http(address: str, seconds: float) -> str:
    if address.startswith(_UNIX):
        where, _, path = address.removeprefix(_UNIX).rpartition(":/")
        host = "localhost"
    else:
        where, _, path = address.removeprefix("http://").partition("/")
        host = where
    try:
        with _connected(where, seconds) as asked:
            request = f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            asked.sendall(request.encode())
            with asked.makefile("rb") as answer:
                line = answer.readline(256).split(b" ", 2)
    except (OSError, ValueError) as error:
        return f"{address} does not answer: {error}"
    if len(line) > 1 and line[1] == b"200":
        return ""
    return f"{address} answered {b' '.join(line[1:2]).decode(errors='replace') or 'no HTTP'}"


def _connected(where: str, seconds: float) -> socket.socket:
    """A connection to `/socket` or `host:port`. Raises `OSError`, and `ValueError` for no port."""
    if not where.startswith("/"):
        host, _, port = where.rpartition(":")
        return socket.create_connection((host.strip("[]"), int(port)), timeout=seconds)
    asked = socket.socket(socket.AF_UNIX)
    asked.settimeout(seconds)
    try:
        asked.connect(where)
    except OSError:
        asked.close()
        raise
    return asked


def _grpc(address: str, tls_dir: Path | None, seconds: float) -> str:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what it has to say is in errors
    import grpc  # noqa: PLC0415  # not needed to ask over HTTP

    direct = [("grpc.enable_http_proxy", 0)]  # its variables are for the outside world
    try:
        if tls_dir is None:
            channel = grpc.insecure_channel(address, options=direct)
        else:
            authorities, key, chain = (
                (tls_dir / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt")
            )
            names = "grpc.ssl_target_name_override", "grpc.default_authority"
            channel = grpc.secure_channel(
                address,
                grpc.ssl_channel_credentials(authorities, key, chain),
                options=[*direct, *((option, _shown(chain)) for option in names)],
            )
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"
    except ValueError as error:
        return f"{tls_dir}: {error}"
    with channel:
        try:
            answer = channel.unary_unary(_HEALTH, bytes, bytes)(b"", timeout=seconds)
        except grpc.RpcError as error:
            return f"{address} does not answer: {error.code().name} {error.details()}"
    return "" if answer == _SERVING else f"{address} does not serve now"


def _shown(chain: bytes) -> str:
    """The name in a certificate. Who is asked verifies it; a library to read it takes 60 ms."""
    text = chain.decode("ascii", "replace").partition(_BEGIN)[2].partition(_END)[0]
    try:
        certificate = a2b_base64(text)
    except Base64Error:
        certificate = b""
    for caller in Caller:
        name = name_of(caller).encode()
        if b"\x82" + bytes((len(name),)) + name in certificate:  # a DNS name, as DER has it
            return name.decode()
    raise ValueError("tls.crt is nobody's certificate")


def asked(arguments: list[str]) -> str:
    """Why the process does not serve that is named, or else the one that `DROVER_LISTEN` places."""
    listen = os.environ.get("DROVER_LISTEN", "")
    address = arguments[0] if arguments else listen
    if not address:
        return "name an address, host:port or http://host:port/path, or set DROVER_LISTEN"
    host, colon, port = address.rpartition(":")
    directory = os.environ.get("DROVER_TLS_DIR", "")
    return probe(f"{_ANY.get(host, host)}{colon}{port}", Path(directory) if directory else None)


def main() -> None:
    """Asks once."""
    if why := asked(sys.argv[1:]):
        sys.exit(f"probe: {why}")


if __name__ == "__main__":
    main()
