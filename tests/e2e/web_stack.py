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


@contextmanager
def web_stack(data: Path, **environment: str) -> Iterator[WebStack]:
    """Runs the site first, so that the stack can be told of its port."""
    with (
        running_web_site() as site,
        running_stack(
            data,
            DROVER_EGRESS_ALLOW_PRIVATE=f"127.0.0.1/32:{site.port}",
            DROVER_SEARCH_PROVIDER="searxng",
            DROVER_SEARCH_URL=site.url,
            **environment,
        ) as stack,
    ):
        yield WebStack(stack, site)
