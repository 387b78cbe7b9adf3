"""A sandbox's connection: who it is, and then one request after the other (cases E3 to E7).

Every request is decided by itself, whatever was said in the connection before it.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from catalogue.hosts import DEFAULT_PORTS, Host, HostError, parse_authority, parse_host, parse_url
from chassis.errors import DroverError
from services.vault_proxy.domain.refusal import Refusal, RefusedError, Why
from services.vault_proxy.domain.target import Scheme, Target
from services.vault_proxy.proxy import answers, parse
from services.vault_proxy.proxy.egress import Asked
from services.vault_proxy.proxy.exchange import Exchange
from services.vault_proxy.proxy.hello import read_hello
from services.vault_proxy.proxy.spans import request_span
from services.vault_proxy.proxy.tunnel import tunnel
from services.vault_proxy.proxy.upstream import Place
from services.vault_proxy.proxy.ways import GitWay, PlainWay, Way
from services.vault_proxy.proxy.wire import LateError, LostError, Wire

if TYPE_CHECKING:
    from services.vault_proxy.domain.ports import SessionPolicy
    from services.vault_proxy.domain.session import SessionFacts
    from services.vault_proxy.proxy.egress import Egress
    from services.vault_proxy.proxy.parse import RequestHead

_PREAMBLE: Final = re.compile(rb"DROVER/1 ([\x21-\x7e]+)\n")
_MAX_PREAMBLE: Final = 8 * 1024
_TLS_RECORD: Final = 22
_CONNECT: Final = "CONNECT"
_NO_AUTHORITY: Final = Refusal(
    Why.POLICY_UNAVAILABLE, "the session's certificates are not at hand: try again later"
)


class Origin:
    """Where requests go: what a tunnel was opened to, or what the last URL named."""

    def __init__(self, scheme: Scheme, host: Host, port: int, shown: str = "") -> None:
        self.scheme = scheme
        self.host = host
        self.port = port
        self.shown = shown or host.with_port(port, scheme)
        self.prefix = f"{scheme}://{self.shown}/"


class Connection:
    """One connection of a sandbox, from its preamble to its end."""

    def __init__(self, wire: Wire, egress: Egress) -> None:
        self._wire = wire
        self._egress = egress
        self._limits = egress.limits
        self._loop = asyncio.get_running_loop()
        self._grant = ""
        self._facts: SessionFacts | None = None
        self._seated = False
        self._last: Origin | None = None
        self._tunnel: Target | None = None
        """The last `CONNECT`: of a request in it that cannot be read no more is known."""

    async def run(self) -> None:
        """Serves it."""
        wire = self._wire
        try:
            await self._preamble()
            if await self._requests(None):
                await wire.linger()
            else:
                wire.close()
        except RefusedError as error:
            await self._say(error.refusal, Asked(self._facts, self._tunnel))
        except (LostError, LateError, ssl.SSLError):
            wire.abort()
        except BaseException:
            wire.abort()
            raise
        finally:
            if self._seated and self._facts is not None:
                self._egress.left(self._facts.session_id)

    async def _preamble(self) -> None:
        """Learns whose connection it is, and that this one may be had."""
        until, waiting = self._loop.time() + self._limits.preamble_seconds, self._wire.waiting
        while (end := waiting.find(b"\n", 0, _MAX_PREAMBLE)) < 0:
            if len(waiting) >= _MAX_PREAMBLE or not await self._wire.more(until):
                raise LostError
        found = _PREAMBLE.fullmatch(self._wire.take(end + 1))
        if found is None:
            raise LostError  # nobody that hands have sent here
        self._grant = found[1].decode()
        facts = (await self._policy()).facts
        seats = self._egress.seats
        if seats[facts.session_id] >= self._limits.connections_per_session:
            most = self._limits.connections_per_session
            message = f"the session has {most} connections open: close some, then try again"
            raise RefusedError(Refusal(Why.LIMIT_EXCEEDED, message, 503))
        seats[facts.session_id] += 1
        self._seated = True

    async def _policy(self) -> SessionPolicy:
        """What the session may do now; nothing where that cannot be found out (case E14)."""
        sessions = self._egress.sessions
        ask = sessions.of_grant if self._facts is None else sessions.again
        try:
            policy = await ask(self._grant)
        except DroverError as error:
            message = "what the session may do cannot be found out at present: try again later"
            raise RefusedError(Refusal(Why.POLICY_UNAVAILABLE, message, 403)) from error
        self._facts = policy.facts
        return policy

    async def _requests(self, origin: Origin | None) -> bool:
        """Serves requests until none may follow; whether the client may be sending all the same."""
        while (raw := await self._raw_head()) is not None:
            head = parse.request(raw)
            if head.method == _CONNECT and origin is None:
                if not await self._connect(head):
                    return True
            elif not await self._request(head, origin):
                return True
        return False

    async def _raw_head(self) -> bytes | None:
        """A request's head; `None` at the end of the connection, or of patience."""
        wire, waiting = self._wire, self._wire.waiting
        try:
            if not waiting and not await wire.more(self._loop.time() + self._limits.idle_seconds):
                return None
        except LateError:
            return None
        until, seen = self._loop.time() + self._limits.head_seconds, 0
        while (end := waiting.find(b"\r\n\r\n", max(0, seen - 3), parse.MAX_HEAD)) < 0:
            if len(waiting) >= parse.MAX_HEAD:
                raise parse.malformed(
                    f"the request's head is longer than {parse.MAX_HEAD} bytes",
                    status=431,
                    reason=Why.LIMIT_EXCEEDED,
                )
            parse.suspicious(waiting, seen)
            seen = len(waiting)
            try:
                if not await wire.more(until):
                    raise LostError
            except LateError:
                message = "the request's head stopped coming: send it without pauses"
                raise RefusedError(Refusal(Why.TIMEOUT, message, 408)) from None
        return wire.take(end + 4)

    async def _say(self, refusal: Refusal, asked: Asked, *, method: str = "") -> None:
        """Records a refusal, tells it, and closes."""
        await self._egress.refused(asked, refusal)
        try:
            self._wire.write(answers.refusal(refusal, bodiless=method == "HEAD"))
        except LostError:
            return
        await self._wire.linger()

    # ---- requests ----

    async def _request(self, head: RequestHead, origin: Origin | None) -> bool:
        """Serves one; whether another may follow."""
        asked, exchange = Asked(self._facts, self._tunnel), None
        try:
            target, path = self._target(head, origin)
            asked = Asked(self._facts, target)
            way = self._way(await self._policy(), target)
            asked = Asked(self._facts, target, way.kind)
            exchange = Exchange(
                egress=self._egress,
                client=self._wire,
                head=head,
                origin_form=path,
                way=way,
                asked=asked,
                still_allowed=lambda: self._still_allowed(target),
            )
            with request_span(asked):
                return await exchange.run()
        except RefusedError as error:
            return await self._refused(head, asked, error.refusal, exchange)

    def _target(self, head: RequestHead, tunnel: Origin | None) -> tuple[Target, str]:
        """What is asked for, and its form for the server. Raises `RefusedError`."""
        if tunnel is not None:
            return _in_tunnel(head, tunnel)
        last = self._last
        if last is None or head.host != last.shown or not head.target.startswith(last.prefix):
            last = self._last = _named_by_url(head)
        # As the path stands in the URL; a URL may end with its host.
        at = head.target.find("/", len("http://"))
        form = head.target[at:] if at >= 0 else ""
        if not form or "?" in head.target[:at]:
            query = head.target.partition("?")[1:]
            form = "/" + "".join(query)
        return _within(head, last, form)

    def _way(self, policy: SessionPolicy, target: Target) -> Way:
        """The way of a request, if it may go any. Raises `RefusedError`."""
        verdict = policy.decide(target)
        if verdict.refusal is not None:
            raise RefusedError(verdict.refusal)
        if verdict.git is not None:
            return GitWay(self._egress.git, verdict.git, policy)
        return PlainWay(policy, target)

    async def _refused(
        self, head: RequestHead, asked: Asked, refusal: Refusal, exchange: Exchange | None
    ) -> bool:
        """Tells a refusal; whether another request may follow."""
        if exchange is not None and exchange.answered:
            await self._egress.refused(asked, refusal)
            raise LostError
        unread = head.has_body if exchange is None else not exchange.body_read
        if unread or not head.keep or refusal.status == HTTPStatus.BAD_REQUEST:
            await self._say(refusal, asked, method=head.method)
            return False
        await self._egress.refused(asked, refusal)
        self._wire.write(answers.refusal(refusal, keep=True, bodiless=head.method == "HEAD"))
        return True

    async def _still_allowed(self, target: Target) -> bool:
        """Whether it would be allowed if it were asked for now."""
        try:
            policy = await self._policy()
        except RefusedError:
            return False
        return policy.decide(target).allowed

    # ---- tunnels ----

    async def _connect(self, head: RequestHead) -> bool:
        """Opens a tunnel and serves what is in it; whether anything may follow."""
        if head.has_body:
            raise parse.malformed("a CONNECT has no body")
        host, port = _authority(head.target, "CONNECT")
        if head.host is not None and _authority(head.host, "Host", port) != (host, port):
            raise _mismatch("CONNECT and Host name different hosts")
        target = Target(_CONNECT, "https", host, port, "")
        asked = Asked(self._facts, target)
        context = None
        try:
            policy = await self._policy()
            verdict = policy.decide(target)
            if verdict.refusal is not None:
                return await self._refused(head, asked, verdict.refusal, None)
            if host not in self._egress.opaque or verdict.git is not None:
                context = self._egress.leaves.context(await policy.authority(), host)
        except DroverError:
            return await self._refused(head, asked, _NO_AUTHORITY, None)
        self._tunnel = target
        self._wire.write(answers.ESTABLISHED)
        until = self._loop.time() + self._limits.head_seconds
        if not self._wire.waiting and not await self._wire.more(until):
            return False
        if self._wire.waiting[0] != _TLS_RECORD:
            await self._requests(Origin("http", host, port))
            return False
        await self._tls(target, asked, context, until)
        return False

    async def _tls(
        self, target: Target, asked: Asked, context: ssl.SSLContext | None, until: float
    ) -> None:
        """Serves what is in TLS: ends it with that context, or passes it on where there is none."""
        host = target.host
        try:
            hello = await read_hello(self._wire, until)
            fronted = not _names(host, hello.name)
            if context is None:
                if fronted or hello.encrypted:
                    raise RefusedError(_fronted(host))  # noqa: TRY301
                await self._opaque(target, asked)
                return
        except RefusedError as error:
            await self._egress.refused(asked, error.refusal)
            raise LostError from error  # the client waits for TLS, and could not read a word
        await self._wire.secure(context, until)
        if fronted:
            await self._say(_fronted(host), asked)
            return
        await self._requests(Origin("https", host, target.port))

    async def _opaque(self, target: Target, asked: Asked) -> None:
        """Passes a tunnel on as it is: nothing is put into it."""
        facts = (await self._policy()).facts
        place = Place(facts.session_id, target.host.text, target.port, secure=False)
        upstream = await self._egress.upstreams.get(place, fresh=True)
        try:
            await self._egress.allowed(asked)
            self._wire.on_gone = upstream.wire.abort
            await tunnel(
                self._wire, upstream.wire, self._limits, lambda: self._still_allowed(target)
            )
        finally:
            self._wire.on_gone = None
            upstream.wire.close()


def _within(head: RequestHead, origin: Origin, form: str) -> tuple[Target, str]:
    """A request for a path of that origin. Raises `RefusedError`."""
    if "#" in form or "\\" in form:
        raise parse.malformed("the path has a fragment or a backslash")
    path, _, query = form.partition("?")
    return Target(head.method, origin.scheme, origin.host, origin.port, path, query), form


def _in_tunnel(head: RequestHead, origin: Origin) -> tuple[Target, str]:
    if head.method == _CONNECT:
        raise parse.malformed("there are no tunnels inside a tunnel")
    if not head.target.startswith("/"):
        raise parse.malformed("inside a tunnel a request names a path: /…")
    if head.host is None:
        raise parse.malformed("there is no Host")
    if head.host != origin.shown:
        named = _authority(head.host, "Host", DEFAULT_PORTS[origin.scheme])
        if named != (origin.host, origin.port):
            raise _mismatch(f"the tunnel was opened to {origin.shown}, and Host is another")
    return _within(head, origin, head.target)


def _named_by_url(head: RequestHead) -> Origin:
    """The origin that a proxy is asked for. Raises `RefusedError`."""
    if head.target.startswith("/") or head.target == "*":
        raise parse.malformed("this is a proxy: a request names its whole URL, http://…")
    try:
        url = parse_url(head.target)
    except HostError as error:
        raise _bad_host("the URL", error) from None
    if url.scheme != "http":
        raise parse.malformed("https goes through a tunnel: open it with CONNECT")
    if head.host is None:
        if head.minor > 0:
            raise parse.malformed("there is no Host")
    elif _authority(head.host, "Host", DEFAULT_PORTS["http"]) != (url.host, url.port):
        raise _mismatch("the URL and Host name different hosts")
    return Origin("http", url.host, url.port, head.host or "")


def _authority(text: str, what: str, default_port: int | None = None) -> tuple[Host, int]:
    try:
        return parse_authority(text, default_port)
    except HostError as error:
        raise _bad_host(what, error) from None


def _names(host: Host, name: str | None) -> bool:
    """Whether a server name is that host's; an address has none (RFC 6066 §3)."""
    if name is None:
        return host.address is not None
    try:
        return parse_host(name) == host
    except HostError:
        return False


def _bad_host(what: str, error: HostError) -> RefusedError:
    return RefusedError(Refusal(Why.HOST_MALFORMED, f"the host of {what} {error}", 400))


def _mismatch(what: str) -> RefusedError:
    return RefusedError(Refusal(Why.HOST_MISMATCH, f"{what}: name one host in both"))


def _fronted(host: Host) -> Refusal:
    message = f"the tunnel was opened to {host}, and TLS asks for another server name, or for none"
    return Refusal(Why.SNI_MISMATCH, f"{message}: name one host in both")
