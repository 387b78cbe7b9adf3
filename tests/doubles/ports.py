"""Free ports for servers under test."""

from __future__ import annotations

from cli.stack.ports import choose


def free_port() -> int:
    """A loopback port that is free now, and that no outgoing connection takes while it is.

    A client that knocks at a server that is down would else get to talk to itself in the end.
    """
    return choose(1)[0]
