"""Sizes and times of the built-in tools (SEMANTICS §1)."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

RESULT_CHARACTERS = 100_000
"""A longer result is written to a file in the sandbox; the model gets a preview and the path."""
PREVIEW_HEAD = 2_000
"""Characters of such a result's beginning that the preview shows."""
PREVIEW_TAIL = 8_000
"""Characters of its end that the preview shows."""
BASH_OUTPUT = 100 * KIB
"""Bytes of a command's output that are kept at least: the last ones."""
SPILL_BYTES = 8 * MIB
"""Bytes of a command's output that its file keeps from the beginning."""
FOLLOW_BYTES = BASH_OUTPUT
"""Bytes of a command's output that whoever follows it is told at a time: the last ones."""
FOLLOW_TOTAL = 8 * MIB
"""Bytes of it in all."""
FOLLOW_SECONDS = 0.05
"""Seconds from one time to the next: a command that prints a lot is not slowed by it."""
TEXT_FILE = 256 * KIB
"""Bytes of text that `read` returns and of a file that `edit` changes."""
IMAGE_BASE64 = 5 * MIB
"""Bytes of an image in base64."""
PDF_FILE = 20 * MIB
"""Bytes of a PDF."""
GLOB_PATHS = 200
GREP_OUTPUT = 99_800
"""Bytes of matches: within 100 KiB, and short enough never to need a file."""
GREP_LINE = 2_000
"""Characters of a matching line."""
WALK_ENTRIES = 200_000
"""Directory entries that one glob or grep looks at."""
SEARCH_SECONDS = 30.0
"""Seconds that one glob or grep may take."""
INLINE_FILE = 1 * MIB
"""A larger file is read by a child, so that reading it delays nothing else."""
