"""Two workspaces of one installation."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.adversarial.tenancy.asking import Services
from tests.adversarial.tenancy.world import Tenant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.stack import Stack


@dataclass(frozen=True)
class Tenants:
    """Whose things are asked for, and who asks."""

    ada: Tenant
    bob: Tenant


@pytest.fixture(scope="module")
def tenants(live_stack: Stack) -> Iterator[Tenants]:
    """Two workspaces that have one of everything."""
    live_stack.model.reset()
    with ExitStack() as opened:
        services = Services(live_stack, opened)
        ada, bob = (Tenant(live_stack, services, f"wrkspc_{name}") for name in ("ada", "bob"))
        for tenant in (ada, bob):
            tenant.make()
        yield Tenants(ada, bob)
        for tenant in (ada, bob):
            tenant.let_go()
    live_stack.model.reset()
