"""What a sandbox looks like from inside, whatever made it."""

from __future__ import annotations

from typing import Final

from services.hands.backends.agent_files import COMPILED_FILE, MAIN_FILE

BASH: Final = "/bin/bash"
AGENT_DIRECTORY: Final = "/run/agent"
EGRESS_DIRECTORY: Final = "/run/drover/egress"
"""Where the way out of the sandbox is, if it has one."""
SYSTEM_CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
"""What programs trust that are told nothing else."""
SESSION: Final = ("/workspace", "/mnt/session")
"""Where a session's directories are."""
CONTROL_DIRECTORY: Final = "/run/shell"
AGENT: Final = ("-I", "-S", f"{AGENT_DIRECTORY}/{MAIN_FILE}")
"""What Python is told to run. A file, not the directory: `runpy` would be imported for that."""
COMPILED_AGENT: Final = (*AGENT[:-1], f"{AGENT_DIRECTORY}/{COMPILED_FILE}")
"""What the Python is told that the agent's files were laid out for."""
ENVIRONMENT: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
    "HOME": "/mnt/session/home",
    "USER": "agent",
    "LOGNAME": "agent",
    "SHELL": BASH,
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
}
"""The whole environment of a sandbox's commands."""

_MIB: Final = 1024 * 1024
SHARED_MEMORY: Final = 64 * _MIB
"""Bytes of /dev/shm."""
RUN_BYTES: Final = 16 * _MIB
"""Bytes of /run, which only the agent's side writes to."""
CONTROL_BYTES: Final = 4 * _MIB
"""Bytes of the agent's own directory."""
