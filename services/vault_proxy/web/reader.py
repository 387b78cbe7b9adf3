"""The process that reads a page: `{"charset", "base", "limit", "seconds"}`, a new line, the page.

What came of it is a line of JSON on standard output. It holds no secret, reaches nothing, and ends
with more than it may use: a page is written by strangers.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Final

from services.vault_proxy.web import charsets, page

_MEMORY: Final = 768 << 20
_FILES: Final = 16


def main() -> None:
    """Reads the page on standard input."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, _FILES))
    head, _, body = sys.stdin.buffer.read().partition(b"\n")
    asked = json.loads(head)
    resource.setrlimit(resource.RLIMIT_CPU, (asked["seconds"], asked["seconds"]))
    html = charsets.decoded(body, asked["charset"], markup=True)
    found = page.read(html, asked["base"], asked["limit"])
    told = {"title": found.title, "text": found.text, "cut": found.cut}
    sys.stdout.buffer.write(json.dumps(told).encode())
    sys.stdout.buffer.flush()
