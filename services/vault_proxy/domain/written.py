"""What is asked of texts when a credential is written. No message holds any part of a secret."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final, Never

from catalogue.hosts import Host, HostError, canonical_host, parse_host
from chassis.errors import DroverError, Reason
from chassis.secret import Secret
from services.vault_proxy.domain.server_url import normalised

if TYPE_CHECKING:
    from collections.abc import Iterable

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_VISIBLE: Final = re.compile(r"[!-~]+\Z")
_SCHEME: Final = re.compile(r"\s*(Authorization:\s*)?Bearer(\s|\Z)", re.IGNORECASE)
_PRINTABLE: Final = re.compile(r"[ -~]*\Z")

# What a sandbox cannot do without, and what says where its traffic goes: a placeholder in its place
# would break the sandbox, or try to lead it around the proxy; and what shells set by themselves.
_TAKEN: Final = frozenset(
    {"BASH_ENV", "ENV", "HOME", "IFS", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR"}
    | {"USER", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "NODE_OPTIONS"}
    | {"PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE", "NPM_CONFIG_CAFILE"}
    | {"AWS_CA_BUNDLE", "BUNDLE_SSL_CA_CERT", "CARGO_HTTP_CAINFO", "DENO_CERT", "GEM_PATH"}
    | {"GIT_PAGER", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "NODE_PATH", "PAGER", "PROMPT_COMMAND"}
    | {"_", "BASHOPTS", "BASHPID", "EUID", "GROUPS", "LINENO", "PPID", "RANDOM", "SECONDS"}
    | {"SHELLOPTS", "SRANDOM", "UID"}
)
_TAKEN_PARTS: Final = re.compile(
    r"(DROVER_|LD_|LC_|PYTHON[A-Z]|GIT_CONFIG).*|.*_PROXY\Z", re.IGNORECASE
)


def refuse(path: str, why: str) -> Never:
    """Raises INVALID_ARGUMENT."""
    raise DroverError(Reason.INVALID_ARGUMENT, f"{path}: {why}")


def bearer(path: str, value: str) -> Secret:
    """A token for an `Authorization` header (RFC 9110 §11.2). Raises INVALID_ARGUMENT."""
    _refuse_control_characters(path, value)
    if _SCHEME.match(value):
        refuse(path, "leave out 'Bearer': it is put before the token where that is sent")
    if not _VISIBLE.match(value):
        refuse(path, "must be visible ASCII characters without spaces")
    return Secret(value)


def secret(path: str, value: str) -> Secret:
    """Any other secret. Raises INVALID_ARGUMENT for what could end a header (case V5)."""
    _refuse_control_characters(path, value)
    return Secret(value)


def _refuse_control_characters(path: str, value: str) -> None:
    for character in value:
        # Zl and Zp: some programs end a line at them.
        if unicodedata.category(character) in {"Cc", "Zl", "Zp", "Cs"}:
            refuse(path, f"must not hold the control character U+{ord(character):04X}")


def printable(path: str, value: str) -> str:
    """A text that is sent to a token endpoint, and is no secret. Raises INVALID_ARGUMENT."""
    if not _PRINTABLE.match(value):
        refuse(path, "must be printable ASCII characters")
    return value


def url(path: str, value: str) -> str:
    """`value`, a URL that can be normalised. Raises INVALID_ARGUMENT."""
    try:
        normalised(value)
    except HostError as error:
        refuse(path, str(error))
    return value


def variable(path: str, name: str) -> str:
    """`name`, a variable's that a sandbox may be given. Raises INVALID_ARGUMENT."""
    if not _VARIABLE.match(name):
        refuse(path, "must be letters, digits and underscores, and begin with no digit")
    if name.upper() in _TAKEN or _TAKEN_PARTS.match(name):
        refuse(path, "names a variable that sandboxes need for themselves")
    return name


def hosts(path: str, texts: Iterable[str]) -> list[str]:
    """Canonical forms of names, exact or `*.`, and IPv4 addresses, each once.

    Raises INVALID_ARGUMENT.
    """
    found: dict[str, None] = {}
    for index, text in enumerate(texts):
        try:
            found[_host(text)] = None
        except HostError as error:
            refuse(f"{path}.{index}", str(error))
    return list(found)


def _host(text: str) -> str:
    try:
        host: Host | None = parse_host(text)
    except HostError:
        host = None
    if host is not None and host.address is not None and host.address.version == 4:  # noqa: PLR2004
        return host.text
    return canonical_host(text)
