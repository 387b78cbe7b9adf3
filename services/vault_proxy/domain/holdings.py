"""A session's credentials, by the hosts that they are bound to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from catalogue.host_list import HostList
from services.vault_proxy.domain.placeholder import Placeholders
from services.vault_proxy.domain.redaction import redaction
from services.vault_proxy.domain.refusal import Refusal, RefusedError, Why
from services.vault_proxy.domain.rewriting import Table

if TYPE_CHECKING:
    from catalogue.hosts import Host
    from services.vault_proxy.domain.session import EnvironmentCredential

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_MAX_HOSTS: Final = 256

Writing = Callable[[str], str]


class Holdings:
    """A session's credentials and what follows from them, made once for many requests."""

    def __init__(
        self, key: bytes, session_id: str, credentials: Sequence[EnvironmentCredential]
    ) -> None:
        self.placeholders = Placeholders(key, session_id, credentials)
        self.bindings = [
            (credential, None if one is None else HostList(one))
            for credential in credentials
            for one in (credential.allowed_hosts,)
        ]
        self._of_host: dict[str, Bound] = {}

    def of(self, host: Host) -> Bound:
        """What is bound to a host. Hosts are kept: a session asks few, again and again."""
        if (bound := self._of_host.get(host.text)) is None:
            if len(self._of_host) >= _MAX_HOSTS:
                self._of_host.clear()
            bound = self._of_host[host.text] = Bound(self, host)
        return bound


class Bound:
    """The credentials that a host may be given."""

    def __init__(self, holdings: Holdings, host: Host) -> None:
        self.named = [
            one for one, hosts in holdings.bindings if hosts is not None and host in hosts
        ]
        everywhere = [one for one, hosts in holdings.bindings if hosts is None]
        self.ids = {one.id for one in (*self.named, *everywhere)}
        self.in_body = [one for one in (*self.named, *everywhere) if one.in_body]
        self._known = list(holdings.placeholders)
        self._struck: dict[frozenset[str], Table] = {}
        self._bodies: dict[str, Table] = {}

    def struck(self, also: Iterable[EnvironmentCredential]) -> Table:
        """Strikes out what the host is bound to by name, and what else may be in an answer."""
        values = {one.id: one.value for one in (*self.named, *also)}
        key = frozenset(values)
        if (table := self._struck.get(key)) is None:
            table = self._struck[key] = redaction(value.open() for value in values.values())
        return table

    def body(self, writing: Writing) -> Table:
        """Puts values into bodies; what is not to be put there only counts as seen."""
        if (table := self._bodies.get(writing.__name__)) is None:
            put = {one.id: writing(checked(one)).encode() for one in self.in_body}
            table = self._bodies[writing.__name__] = Table(
                {known: put.get(one.id, known) for known, one in self._known}
            )
        return table


def checked(credential: EnvironmentCredential) -> str:
    """The value, unless it could end a header (case V5). Raises `RefusedError`."""
    value = credential.value.open()
    if _CONTROL.search(value):
        raise RefusedError(
            Refusal(
                Why.CREDENTIAL_UNUSABLE,
                f"the value of credential {credential.id} has a line break or another control "
                "character, and is not sent: store it anew without",
            )
        )
    return value
