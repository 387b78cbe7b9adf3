"""Pages of strangers, read in a process of their own: this one holds keys, and serves others."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import structlog

from services.vault_proxy.web.failures import Code, WebError
from services.vault_proxy.web.page import Page

# What is in there needs the standard library alone, and none of this process's environment.
_PROGRAM: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from services.vault_proxy.web.reader import main; main()"
)
_PACKAGES: Final = Path(__file__).parents[3]
CPU_SECONDS: Final = 10

_log = structlog.get_logger("vault_proxy.web")


class PageReader:
    """Reads HTML, a few pages at a time; others wait."""

    def __init__(self, at_once: int = 4, seconds: int = CPU_SECONDS) -> None:
        """`seconds` are a processor's, for one page."""
        self._free = asyncio.Semaphore(at_once)
        self._seconds = seconds

    async def read(self, html: bytes, *, charset: str, base: str, limit: int) -> Page:
        """What the page says, up to `limit` characters. Raises `WebError`."""
        asked = {"charset": charset, "base": base, "limit": limit, "seconds": self._seconds}
        async with self._free:
            given = json.dumps(asked).encode() + b"\n" + html
            done = await asyncio.to_thread(_run, given, 2.0 * self._seconds)
        if done is None:
            _log.warning("page_unreadable", size=len(html))
            raise WebError(Code.TOO_LARGE, "The page is too intricate to be read.")
        told = json.loads(done)
        return Page(told["title"], told["text"], cut=told["cut"])


def _run(given: bytes, seconds: float) -> bytes | None:
    """What the process wrote; `None` where it was ended."""
    try:
        done = subprocess.run(  # noqa: S603  # this program, and our own arguments
            (sys.executable, "-I", "-S", "-c", _PROGRAM, str(_PACKAGES)),
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None
