"""Whom the processes of a test run trust, unless they are told: nobody there is.

A system's roots take a thirtieth of a second to read. Every client over HTTP reads them, every
vault proxy twice, and no test has any use for them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.doubles.certificates import Authority

_ROOTS: Final = "SSL_CERT_FILE"
_OURS: Final = "DROVER_TEST_ROOTS_BEFORE"
"""What was set before; empty for nothing."""


@contextmanager
def nobody_trusted() -> Iterator[None]:
    """For the length of the block, here and in all processes below."""
    if _OURS in os.environ:
        yield
        return
    with tempfile.NamedTemporaryFile("w", prefix="drover-roots-", suffix=".pem") as roots:
        roots.write(Authority("nobody").certificate)
        roots.flush()
        os.environ[_OURS] = os.environ.get(_ROOTS, "")
        os.environ[_ROOTS] = roots.name
        try:
            yield
        finally:
            os.environ.pop(_ROOTS)
            if before := os.environ.pop(_OURS):
                os.environ[_ROOTS] = before


def trusting() -> dict[str, str]:
    """The environment of a process that has to reach the world."""
    environment = dict(os.environ)
    before = environment.pop(_OURS, None)
    if before is not None:
        environment.pop(_ROOTS)
    return environment | ({_ROOTS: before} if before else {})
