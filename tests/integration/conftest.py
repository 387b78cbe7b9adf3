"""What the suites here would make again for each of their tests, and always the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from unittest import mock

import pytest

from gateway import main
from gateway.services import SERVED
from gateway.transcode.openapi import describe
from gateway.transcode.routes import Contract


@pytest.fixture(scope="session", autouse=True)
def one_contract() -> Iterator[None]:
    """The gateways of a process share what they compile of the services' descriptors."""
    compiled = cache(lambda: Contract(SERVED))
    shared = mock.patch.multiple(main, Contract=lambda _: compiled(), describe=cache(describe))
    with shared:
        yield
