"""The first process of a container, where the agent's program is what the container runs.

The first process has the namespace's orphans to reap, cannot be killed from inside, and takes
everything along when it ends. So it is one that does nothing else, and the agent is its child.
"""

from __future__ import annotations

import os

from services.hands.runner import hardening


def divide(filter_path: str) -> None:
    """Returns in the agent. Ends with an error where the filter cannot be installed.

    Neither process lets others of its user open what its descriptors are.
    """
    hardening.hide()
    if os.path.exists(filter_path):  # noqa: PTH110  # pathlib is slow to import
        with open(filter_path, "rb") as file:  # noqa: PTH123
            hardening.filter_calls(file.read())
    agent = os.fork()
    if agent == 0:
        return
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    while True:
        pid, status = os.wait()
        if pid == agent:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
