"""What runs inside a sandbox: a small agent that speaks frames on its standard input.

It depends on nothing but the system's Python (3.9 or newer), started with `python3 -I -S`, and it
is no security boundary: it runs with the rights of the commands that it runs, and the host
believes nothing that it says.

A session waits for it to start, so it imports little: `typing`, `json`, `re` and `contextlib` would
each cost more than the rest together, and `os` as much as an eighth of Python's own start: what it
has of `posix` is taken from there. What needs them is imported when it is first used.
"""

from __future__ import annotations
