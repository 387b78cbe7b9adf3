"""A stack whose sessions may read a web site on this machine, and search with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.doubles.web_site import WebSite, running_web_site
from tests.e2e.stack import Stack, running_stack


class WebStack(NamedTuple):
    """The stack and the site."""

    stack: Stack
    site: WebSite

    def reset(self) -> None:
        """As if both were new."""
        self.stack.wait_ready()
        self.stack.model.reset()
        self.site.forget()


def searching(site: WebSite, *others: int) -> dict[str, str]:
    """What a stack is told of the site, and of other ports that its sessions may reach."""
    return {
        "DROVER_EGRESS_ALLOW_PRIVATE": ",".join(
            f"127.0.0.1/32:{port}" for port in (site.port, *others)
        ),
        "DROVER_SEARCH_PROVIDER": "searxng",
        "DROVER_SEARCH_URL": site.url,
    }


@contextmanager
def web_stack(data: Path, **environment: str) -> Iterator[WebStack]:
    """Runs the site first, so that the stack can be told of its port."""
    with (
        running_web_site() as site,
        running_stack(data, **searching(site), **environment) as stack,
    ):
        yield WebStack(stack, site)
