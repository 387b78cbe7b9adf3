"""`drover backup` and `drover restore`: all that an installation keeps on this machine."""

from __future__ import annotations
