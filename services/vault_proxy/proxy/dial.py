"""Connections to the outside: a name is resolved, judged and dialled as one act (case E8)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Final, Protocol

from services.vault_proxy.domain.refusal import Why

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from services.vault_proxy.domain.ports import Addresses

Address = IPv4Address | IPv6Address
Resolve = Callable[[str], Awaitable[Sequence[Address]]]

_MAX_TRIED: Final = 6
"""Addresses of one name that are tried, at most."""
_RESOLVERS: Final = 64
"""Names that are looked up at once: the system's resolver blocks a thread for each."""


class DialError(Exception):
    """No connection came about.

    `reason` is a word for logs and headers; `message` says what happened and what would help.
    """

    def __init__(self, reason: Why, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class AddressDeniedError(DialError):
    """The name leads to where nothing may be reached: a private network, Drover itself."""


class UnreachableError(DialError):
    """There is no such name, or nobody answers. `late` tells a time-out."""

    def __init__(self, reason: Why, message: str, *, late: bool = False) -> None:
        super().__init__(reason, message)
        self.late = late


class Dialler(Protocol):
    """Connects to hosts that have been allowed. The one way out for every part of this process."""

    async def connect(self, host: str, port: int, *, within: float) -> socket.socket:
        """A connected, non-blocking TCP socket, which the caller owns and closes.

        `host` is a canonical name or an IP address in text. All addresses that it resolves to are
        judged, and one of those is dialled without a second look-up. `within` is seconds for all
        of it. Raises `AddressDeniedError` and `UnreachableError`.
        """
        ...


class JudgingDialler:
    """See `Dialler`. A name with good and bad addresses is reached at its good ones alone."""

    def __init__(self, addresses: Addresses, resolve: Resolve) -> None:
        self._addresses = addresses
        self._resolve = resolve

    async def connect(self, host: str, port: int, *, within: float) -> socket.socket:
        """As the port says."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        try:
            async with asyncio.timeout_at(until):
                found = await self._found(host)
        except TimeoutError:
            message = f"the name {host} was not resolved in time: try again later"
            raise UnreachableError(Why.HOST_TIMEOUT, message, late=True) from None
        judged = [(address, self._addresses.judge(address, port)) for address in found]
        allowed = [address for address, refusal in judged if refusal is None][:_MAX_TRIED]
        if not allowed:
            refusal = next(refusal for _, refusal in judged if refusal is not None)
            raise AddressDeniedError(refusal.reason, refusal.message)
        late = False
        for number, address in enumerate(allowed):
            # Who does not answer must leave time for the others.
            share = (until - loop.time()) / (len(allowed) - number)
            try:
                async with asyncio.timeout(share):
                    return await _dial(address, port)
            except TimeoutError:
                late = True
            except OSError:
                late = False
        what = "does not answer in time" if late else "cannot be connected to"
        raise UnreachableError(
            Why.HOST_TIMEOUT if late else Why.HOST_UNREACHABLE,
            f"{host} port {port} {what}: see whether host and port are right, or try again later",
            late=late,
        )

    async def _found(self, host: str) -> Sequence[Address]:
        try:
            return [ip_address(host)]
        except ValueError:
            pass
        try:
            found = await self._resolve(host)
        except OSError:
            found = ()
        if not found:
            message = f"the name {host} does not resolve: see whether it is right"
            raise UnreachableError(Why.HOST_UNREACHABLE, message)
        return found


class AnyAddress:
    """Judges nothing: for addresses that are the operator's own word, as those of git hosts."""

    def judge(self, address: Address, port: int) -> None:  # noqa: ARG002
        """Anything goes."""
        return


@asynccontextmanager
async def system_resolver() -> AsyncIterator[Resolve]:
    """The system's own resolver, in threads of its own."""
    loop = asyncio.get_running_loop()
    threads = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="resolve")

    async def resolve(name: str) -> Sequence[Address]:
        return await loop.run_in_executor(threads, _look_up, name)

    try:
        yield resolve
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _look_up(name: str) -> Sequence[Address]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    addresses = (ip_address(str(entry[4][0]).partition("%")[0]) for entry in found)
    return list(dict.fromkeys(addresses))


async def _dial(address: Address, port: int) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.get_running_loop().sock_connect(opened, (str(address), port))
    except BaseException:
        opened.close()
        raise
    return opened
