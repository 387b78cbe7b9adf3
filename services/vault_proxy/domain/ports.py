"""What the rooms of the vault proxy ask of each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

    from drover.session.v1.session_pb2 import Session
    from drover.vault.v1.credential_proxy_service_pb2 import CallResponse, ListToolsResponse
    from services.vault_proxy.domain.audit import AuditEntry
    from services.vault_proxy.domain.refusal import Refusal
    from services.vault_proxy.domain.session import (
        EnvironmentCredential,
        SessionAuthority,
        SessionFacts,
    )
    from services.vault_proxy.domain.target import Target
    from services.vault_proxy.domain.verdict import Answer, GitRoute, Use, Verdict

Headers = Sequence[tuple[bytes, bytes]]


# ---- what the wire asks of the policy ----


class Stream(Protocol):
    """Rewrites bytes as they pass, across the borders of chunks."""

    @property
    def holding(self) -> bool:
        """Whether anything is held back. After a pause it should go on: see `finish`."""
        ...

    def feed(self, chunk: bytes) -> bytes:
        """What may go on now; what could still be part of something is held back."""
        ...

    def finish(self) -> bytes:
        """What was held back, at the end, or after a pause."""
        ...


class Substitution(Protocol):
    """Credentials of one request: put in on the way out, struck out of the answer."""

    @property
    def bound(self) -> bool:
        """Whether values may be in the answer; known once `headers` and `body` were called.

        If so, ask for the answer with identity encoding.
        """
        ...

    @property
    def used(self) -> bool:
        """Whether a value was put into this request, or into the rest of its body may be.

        If so, refuse an answer that is encoded all the same with UNREADABLE_ANSWER: nothing can be
        struck out of it.
        """
        ...

    @property
    def uses(self) -> Sequence[Use]:
        """What was asked for so far, for the audit trail: complete once the body is through."""
        ...

    def headers(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """The headers with values for placeholders. Called first. Raises `RefusedError`."""
        ...

    def body(self) -> Stream | None:
        """Puts values into the body, or `None` where it passes as it is.

        Called for a request with a body, before its headers are sent. The length may change: of a
        body that is substituted the sender counts anew, or sends it chunked. Raises `RefusedError`.
        """
        ...

    def answer_headers(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """The answer's headers without values, which are struck out of their names as well."""
        ...

    def answer(self) -> Stream | None:
        """Strikes values out of the answer's body, or `None` where none can be in it.

        The length stays: what is struck out is replaced by as many bytes.
        """
        ...


class SessionPolicy(Protocol):
    """What one session may do, as of now. For one request: ask `Sessions` again for the next."""

    @property
    def facts(self) -> SessionFacts:
        """Whose policy it is."""
        ...

    def decide(self, target: Target) -> Verdict:
        """Whether the request may go out; for a `CONNECT`, whether any request to there might."""
        ...

    def substitution(self, target: Target) -> Substitution:
        """The credentials of one request that was allowed."""
        ...

    async def authority(self) -> SessionAuthority:
        """What signs certificates in the session's name."""
        ...


class Sessions(Protocol):
    """Grants, and what they open."""

    async def of_grant(self, grant: str) -> SessionPolicy:
        """What the grant's session may do, at most a second old. Raises `RefusedError`."""
        ...

    async def again(self, grant: str) -> SessionPolicy:
        """The same for a connection that began with the grant while that was good.

        It may have ended by itself since then, not been taken back. Raises `RefusedError`.
        """
        ...


class Addresses(Protocol):
    """Judges where a name leads to, after its resolution (case E8)."""

    def judge(self, address: IPv4Address | IPv6Address, port: int) -> Refusal | None:
        """Why that address and port may not be dialled, or `None`."""
        ...


class Audit(Protocol):
    """The audit trail."""

    async def record(self, entry: AuditEntry) -> None:
        """Records a decision. Waits where the trail cannot keep up: none goes unrecorded."""
        ...


# ---- what the policy asks of others ----


class Credentials(Protocol):
    """Vaults, as the egress proxy needs them."""

    async def environment_credentials(
        self, workspace_id: str, vault_ids: Sequence[str]
    ) -> Sequence[EnvironmentCredential]:
        """The live ones of the vaults, in their order. Of two with one name the first counts."""
        ...

    def revision(self) -> int:
        """Grows whenever this process changes a vault or a credential. Cheap: asked per request."""
        ...


class Sealer(Protocol):
    """Encrypts what this process keeps (AES-256-GCM, envelope); `bound_to` is authenticated."""

    async def seal(self, plain: bytes, bound_to: bytes) -> bytes:
        """The sealed form. Raises UNAVAILABLE while the key provider does not answer."""
        ...

    async def open(self, sealed: bytes, bound_to: bytes) -> bytes:
        """What was sealed. Raises `DroverError`."""
        ...


class SigningKeys(Protocol):
    """Keys derived from the installation's, which the key provider wraps."""

    def derived(self, purpose: str) -> bytes:
        """32 bytes, always the same for a purpose, the same in every replica."""
        ...


class SessionReader(Protocol):
    """SessionService, as this process asks it."""

    async def get(self, workspace_id: str, session_id: str) -> Session:
        """The session as it is now. Raises `DroverError`: NOT_FOUND, UNAVAILABLE."""
        ...


class GitRules(Protocol):
    """Repositories of sessions; asked before any other rule."""

    def judge(self, facts: SessionFacts, target: Target) -> Verdict | None:
        """`None` where the request is not git's business, and is judged as any other.

        For a `CONNECT`: allowed where the session has a repository at that host and port, and to be
        terminated.
        """
        ...


class GitProxy(Protocol):
    """What the wire asks about a request whose verdict has a `GitRoute`.

    Such a request goes to the route's upstream, with its path and query as they came: the address
    is the operator's word and not judged, its certificate is. Bodies pass both ways as they are,
    whatever their size; placeholders are neither put in nor struck out.
    """

    async def request(
        self, facts: SessionFacts, route: GitRoute, headers: Headers
    ) -> list[tuple[bytes, bytes]]:
        """The headers as the upstream is to get them, but for hop-by-hop and framing ones.

        `Host` is the upstream's, the repository's token is put in, whatever the sandbox sent to
        identify itself is left out. Raises `RefusedError`.
        """
        ...

    def answer(self, status: int, headers: Headers) -> Answer:
        """What the sandbox is told, once the upstream's status and headers are there."""
        ...


class ToolServers(Protocol):
    """MCP servers of sessions. Both raise `DroverError`, as the RPCs say."""

    async def list_tools(self, facts: SessionFacts, server: str) -> ListToolsResponse:
        """What the server offers."""
        ...

    async def call(
        self, facts: SessionFacts, server: str, tool: str, arguments: str, call_id: str
    ) -> CallResponse:
        """Calls one of its tools, once. `arguments` is the JSON text of an object."""
        ...
