"""A network of its own for a process under test, and ways to cut it off: namespaces and nftables.

Needs root, iproute2 and nftables. Where it cannot be made the test fails: a partition that was not
tried proves nothing.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NETWORK: Final = "198.18"
"""For tests of networks (RFC 2544): no address of it is anybody's."""

_TABLE: Final = "inet drover_partition"


class Namespace:
    """A network namespace with one wire to the machine.

    `outside` is the machine's address on the wire, `inside` the namespace's.
    """

    def __init__(self, name: str, subnet: str) -> None:
        self.name = name
        self.outside = f"{subnet}.1"
        self.inside = f"{subnet}.2"

    @property
    def prefix(self) -> tuple[str, ...]:
        """What a command line begins with to run in here. The pid is the command's own."""
        return ("ip", "netns", "exec", self.name)

    def cut(self, *ports: int) -> None:
        """Drops, both ways and without a word, what is to or from these TCP ports; none is all.

        What is said within the namespace stays. Replaces an earlier cut.
        """
        rules = ["drop"]
        if ports:
            which = ", ".join(map(str, ports))
            rules = [f"tcp {end} {{ {which} }} drop" for end in ("dport", "sport")]
        chains = []
        for hook, interface in (("input", "iifname"), ("output", "oifname")):
            own = [f"type filter hook {hook} priority 0", f"{interface} lo accept"]
            chains.append("\n".join([f"chain {hook} {{", *own, *rules, "}"]))
        self.heal()
        self._nft("\n".join([f"table {_TABLE} {{", *chains, "}"]))

    def heal(self) -> None:
        """Lets everything pass again."""
        self._nft(f"table {_TABLE}\ndelete table {_TABLE}")

    def make(self) -> None:
        """Makes the namespace and its wire."""
        wire = f"v{self.name[-8:]}"
        _run("ip", "netns", "add", self.name)
        _run("ip", "link", "add", wire, "type", "veth", "peer", "eth0", "netns", self.name)
        _run("ip", "address", "add", f"{self.outside}/30", "dev", wire)
        _run("ip", "link", "set", wire, "up")
        _run("ip", "-n", self.name, "address", "add", f"{self.inside}/30", "dev", "eth0")
        _run("ip", "-n", self.name, "link", "set", "eth0", "up")
        _run("ip", "-n", self.name, "link", "set", "lo", "up")

    def remove(self) -> None:
        """Removes the namespace, and the wire with it."""
        _run("ip", "netns", "delete", self.name)

    def _nft(self, script: str) -> None:
        _run(*self.prefix, "nft", "-f", "-", script=script + "\n")


@contextmanager
def namespace() -> Iterator[Namespace]:
    """A namespace of the test's own. Processes in it must have ended when the block ends."""
    for program, package in (("ip", "iproute2"), ("nft", "nftables")):
        assert shutil.which(program), f"partitions need {program} (Debian: {package})"
    mark = secrets.token_hex(4)
    subnet = f"{_NETWORK}.{secrets.randbelow(255)}"
    made = Namespace(f"drover-{mark}", subnet)
    made.make()
    try:
        yield made
    finally:
        made.remove()


def _run(*command: str, script: str = "") -> None:
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
