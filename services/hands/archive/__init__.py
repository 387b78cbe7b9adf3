"""A session's volume as a stream of bytes, and back.

What is in here runs in a process of its own, as the user that owns the volume, over the standard
library alone (`services.hands.archive.program`). The tree is an agent's work, and the stream comes
from a store: both are untrusted.
"""

from __future__ import annotations
