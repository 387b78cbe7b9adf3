"""Which stack a command talks to, and the official client for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cli.stack import ports
from cli.stack.installation import Installation

if TYPE_CHECKING:
    from pathlib import Path

    from anthropic import Anthropic

DEFAULT_URL = "http://127.0.0.1:8080"


class NoTargetError(Exception):
    """Nothing says which stack or key to use; the message says how to name one."""


@dataclass(frozen=True, slots=True)
class Target:
    """A running stack as a client sees it."""

    url: str
    key: str = field(repr=False)

    def client(self) -> Anthropic:
        """The official client. Only this target's key is used, whatever the environment holds."""
        from anthropic import Anthropic

        return Anthropic(base_url=self.url, api_key=self.key)


def resolve(url: str | None, key: str | None, data: Path) -> Target:
    """The target that is named, else the stack that runs over the directory `data`.

    Raises `NoTargetError` if no key is known, or if the one that is kept has no stack to open.
    """
    installation = Installation(data)
    address = installation.address_file("gateway")
    if url is None:
        if address.exists():
            url = ports.url_of(address.read_text().strip())
        elif key is None and installation.kept_key() is not None:
            msg = (
                f"no stack runs over {data}: start it with `drover up`, name another directory "
                f"with --data, or give --url"
            )
            raise NoTargetError(msg)
        else:
            url = DEFAULT_URL
    if key is None:
        key = installation.kept_key()
        if key is None:
            msg = (
                f"no API key: start a stack with `drover up`, name its directory with --data "
                f"(now {data}), or give --api-key or DROVER_API_KEY"
            )
            raise NoTargetError(msg)
    return Target(url.rstrip("/"), key)
