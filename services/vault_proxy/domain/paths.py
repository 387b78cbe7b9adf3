"""Which requests are meant by rules about methods and paths (case E11)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from catalogue.host_list import HostList
from catalogue.hosts import HostError, canonical_host

if TYPE_CHECKING:
    from services.vault_proxy.domain.target import Target

_METHOD: Final = re.compile(r"[A-Z][A-Z-]{0,31}\Z")
_DECODINGS: Final = 3
_KEYS: Final = {"effect", "hosts", "methods", "paths"}


@dataclass(frozen=True, slots=True)
class PathRule:
    """Denies or allows requests to `hosts`, by method and path. No methods, no paths: every one.

    `about` says in a few words what is meant. `spelt` narrows the hosts by how the whole name is
    spelt. `tenants`: each such name has one owner, so that who lists the very name means it.
    """

    allow: bool
    hosts: HostList
    methods: frozenset[str]
    paths: tuple[re.Pattern[str], ...]
    about: str = ""
    spelt: re.Pattern[str] | None = None
    tenants: bool = False

    @classmethod
    def of(
        cls,
        hosts: Sequence[str],
        methods: Sequence[str] = (),
        paths: Sequence[str] = (),
        *,
        allow: bool = False,
        about: str = "",
        spelt: str = "",
        tenants: bool = False,
    ) -> PathRule:
        """A rule of patterns: of hosts as they are listed, of paths with `*` for anything."""
        return cls(
            allow,
            HostList(hosts),
            frozenset(methods),
            tuple(map(_glob, paths)),
            about,
            re.compile(spelt) if spelt else None,
            tenants,
        )

    def means(self, target: Target) -> bool:
        """Whether the request is meant.

        A denied path is denied in every spelling that some server may read as it; an allowed one is
        allowed as it stands alone.
        """
        if self.methods and target.method not in self.methods:
            return False
        if target.host not in self.hosts:
            return False
        if self.spelt is not None and not self.spelt.match(target.host.text):
            return False
        if not self.paths:
            return True
        if self.allow:
            return _plain(target.path) and any(one.fullmatch(target.path) for one in self.paths)
        spellings = _spellings(target.path)
        return any(one.fullmatch(path) for one in self.paths for path in spellings)


def operator_rules(text: str) -> tuple[PathRule, ...]:
    """The rules of `DROVER_EGRESS_RULES`: a JSON list, in the order in which they are asked.

    Each is an object of `effect` ("allow" or "deny") and `hosts`, and may have `methods` and
    `paths`. Raises `ValueError`, which says what is amiss.
    """
    try:
        given = json.loads(text) if text.strip() else []
    except ValueError:
        given = None
    if not isinstance(given, list):
        msg = (
            'must be a JSON list of rules such as {"effect": "deny", "hosts": ["example.com"], '
            '"methods": ["POST"], "paths": ["/upload/*"]}'
        )
        raise ValueError(msg)  # noqa: TRY004  # that is what settings report
    return tuple(_operator_rule(number, rule) for number, rule in enumerate(given))


def _operator_rule(number: int, rule: Any) -> PathRule:  # noqa: ANN401  # of a JSON text
    def bad(what: str) -> ValueError:
        return ValueError(f"rule {number}: {what}")

    if not isinstance(rule, dict) or not {"effect", "hosts"} <= rule.keys() <= _KEYS:
        raise bad("must be an object of effect, hosts, and perhaps methods and paths")
    if rule["effect"] not in ("allow", "deny"):
        raise bad("effect must be allow or deny")
    lists = {key: rule.get(key, []) for key in ("hosts", "methods", "paths")}
    for key, value in lists.items():
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise bad(f"{key} must be a list of texts")
    if not lists["hosts"]:
        raise bad("hosts must name a host")
    try:
        hosts = [canonical_host(host) for host in lists["hosts"]]
    except HostError as error:
        raise bad(f"hosts: {error}") from None
    if not all(map(_METHOD.match, lists["methods"])):
        raise bad("methods must be in capital letters, such as POST")
    if not all(path.startswith("/") for path in lists["paths"]):
        raise bad("paths must begin with a slash, such as /upload/*")
    return PathRule.of(
        hosts,
        lists["methods"],
        lists["paths"],
        allow=rule["effect"] == "allow",
        about="a rule of the operator",
    )


def _glob(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def _plain(path: str) -> bool:
    """Whether every server reads the path alike."""
    return not (set("%\\;") & set(path) or "//" in path or "/." in path)


def _spellings(path: str) -> set[str]:
    """What servers may make of a path: decoded or not, dots and empty segments resolved, ..."""
    found = {path}
    decoded = path
    for _ in range(_DECODINGS):
        decoded = unquote(decoded, errors="replace")
        found.add(decoded)
    found |= {one.replace("\\", "/") for one in found}
    found |= {_resolved(one) for one in found}
    return found | {one.lower() for one in found}


def _resolved(path: str) -> str:
    kept: list[str] = []
    for segment in path.split("/"):
        name = segment.partition(";")[0]
        if name == "..":
            del kept[-1:]
        elif name not in ("", "."):
            kept.append(name)
    closed = path.endswith("/") and kept
    return "/" + "/".join(kept) + ("/" if closed else "")
