"""How packages of the system are installed, by root, into the system that is to be an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from services.hands.domain.packages import Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ENVIRONMENT: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "SHELL": "/bin/sh",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "DEBIAN_FRONTEND": "noninteractive",
    "TMPDIR": "/var/tmp",  # noqa: S108  # on the disk: what is unpacked may not fit into memory
}
"""Of root's, where the system is installed."""
_GENERATED: Final = ("/var/lib/apt/lists", "/var/cache/apt", "/var/tmp", "/var/log/apt")  # noqa: S108


def _get(proxy: str, bundle: str) -> Sequence[str]:
    told = {
        "APT::Sandbox::User": "root",  # to read the way out's socket takes one user, not two
        "Acquire::http::Proxy": proxy,
        "Acquire::https::Proxy": proxy,
        "Acquire::https::CaInfo": bundle,
        "Acquire::Retries": "2",
        "Acquire::Languages": "none",
        "APT::Update::Error-Mode": "any",
        "APT::Cmd::Pattern-Only": "true",  # a name that is none is no expression that finds others
        "APT::Color": "0",
        "Dpkg::Use-Pty": "0",
    }
    return ["apt-get", "-qq", *(part for pair in told.items() for part in ("-o", "=".join(pair)))]


def refresh(network: Mapping[str, str]) -> Step:
    """Reads the indexes that the image's sources name, by the way out that these variables tell."""
    return Step([*_get(network["http_proxy"], network["SSL_CERT_FILE"]), "update"])


def install(packages: Sequence[str], network: Mapping[str, str]) -> Step:
    """Installs packages that were found fit, and takes none away."""
    return Step(
        [
            *_get(network["http_proxy"], network["SSL_CERT_FILE"]),
            *("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"),
            *("install", "--yes", "--no-install-recommends", "--no-remove", "--allow-downgrades"),
            *("--", *packages),
        ]
    )


AUDIT: Final = Step(("/bin/sh", "-c", 'found=$(dpkg --audit) && test -z "$found"'))
"""Fails where anything is half installed."""
TIDY: Final = (
    # Nothing there may raise a process's rights. What was only needed meanwhile is no part of it.
    Step(
        ("find", "/", "-xdev", "-type", "f", "-perm", "/6000", "-exec", "chmod", "a-s", "{}", "+")
    ),
    Step(("find", *_GENERATED, "-xdev", "-type", "f", "-delete")),
)
