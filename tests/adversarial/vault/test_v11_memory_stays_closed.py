"""V11: nothing shows what a process knows: no dump, no `/proc`, no traceback, repr or pickle."""

from __future__ import annotations

import copy
import ctypes
import io
import json
import os
import pickle
import resource
import string
import subprocess
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
import structlog

from chassis.secret import Secret
from chassis.telemetry import logs
from services.vault_proxy import main
from services.vault_proxy.crypto.environment_keys import EnvironmentKeys
from services.vault_proxy.crypto.sealer import InstallationKey
from services.vault_proxy.domain.sealed import Sealed, WrappedKey
from services.vault_proxy.domain.session import EnvironmentCredential
from tests.doubles.vault import environment_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.stack import Stack

CANARY = "sk-canary-4Jd0"
_NOBODY = 65_534
_GET_DUMPABLE = 3

_HOLDER = f"""
import ctypes, os, sys
from services.vault_proxy.undumpable import keep_memory_closed
os.setgroups([]); os.setgid({_NOBODY}); os.setuid({_NOBODY})
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
if sys.argv[1] == "closed":
    keep_memory_closed()
secret = "{CANARY}"
print("ready", flush=True)
sys.stdin.read()
"""
_READER = f"""
import os, sys
os.setgroups([]); os.setgid({_NOBODY}); os.setuid({_NOBODY})
for name in ("mem", "environ", "maps"):
    try:
        with open(f"/proc/{{sys.argv[1]}}/{{name}}", "rb", buffering=0) as file:
            file.read(0)
            print(name, "open")
    except OSError as error:
        print(name, "closed")
"""


def held(state: str) -> Iterator[int]:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, state], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"ready\n"
        yield holder.pid
    finally:
        holder.stdin.close()
        holder.stdout.close()
        holder.wait()


def read_by_another(pid: int) -> dict[str, str]:
    run = [sys.executable, "-c", _READER, str(pid)]
    told = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    return dict(line.split() for line in told.splitlines())  # type: ignore[misc]


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_another_process_of_the_same_user_reads_none_of_its_memory() -> None:
    for pid in held("open"):
        assert set(read_by_another(pid).values()) == {"open"}  # what the test would notice
    for pid in held("closed"):
        assert set(read_by_another(pid).values()) == {"closed"}


def test_the_vault_proxy_leaves_no_core_dump(stack: Stack) -> None:
    limits = Path(f"/proc/{stack.pid('vault_proxy')}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max core file size")]
    assert line.split()[4:6] == ["0", "0"]


def test_the_vault_proxys_own_start_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    dumpable = ctypes.CDLL(None).prctl(_GET_DUMPABLE, 0, 0, 0, 0)
    limits: list[tuple[int, tuple[int, int]]] = []
    seen: list[int] = []
    monkeypatch.setattr(resource, "setrlimit", lambda *limit: limits.append(limit))
    monkeypatch.setattr(main.lifecycle, "configured", lambda *_, **__: _Settings())
    monkeypatch.setattr(
        main.lifecycle,
        "run",
        lambda *_, **__: seen.append(ctypes.CDLL(None).prctl(_GET_DUMPABLE, 0, 0, 0, 0)),
    )
    try:
        main.main()
    finally:
        ctypes.CDLL(None).prctl(4, dumpable, 0, 0, 0)
    assert seen == [0]
    assert limits == [(resource.RLIMIT_CORE, (0, 0))]


class _Settings:
    log_level, stop_seconds = "info", 10.0


def holders() -> list[object]:
    secret = Secret(CANARY)
    return [
        secret,
        [secret],
        {"value": secret},
        EnvironmentCredential("vcrd_1", "vlt_1", "KEY", secret, None, in_header=True, in_body=True),
        Sealed(WrappedKey("file:1", CANARY.encode()), CANARY.encode()),
        InstallationKey(CANARY.encode()),
        EnvironmentKeys(environment_keys(1)),
    ]


@pytest.mark.parametrize("holder", holders(), ids=lambda holder: type(holder).__name__)
def test_nothing_that_holds_a_secret_shows_it(holder: object) -> None:
    shown = [repr(holder), f"{holder}", f"{holder!r:>80}", "%s" % (holder,), str([holder])]  # noqa: UP031
    shown.append(string.Formatter().format("{0} {0!s} {0!a}", holder))
    assert CANARY not in "".join(shown)
    assert "AQEBAQ" not in "".join(shown)


def test_a_secret_is_neither_copied_nor_written_out() -> None:
    secret = Secret(CANARY)
    for write in (pickle.dumps, copy.deepcopy, copy.copy, json.dumps, orjson.dumps):
        with pytest.raises(TypeError) as refused:
            write(secret)
        assert CANARY not in str(refused.value)
    with pytest.raises(TypeError):
        vars(secret)
    with pytest.raises(AttributeError, match="attribute"):
        "{.value}".format(secret)  # noqa: UP032


def test_no_traceback_and_no_log_line_shows_a_secret_that_a_frame_holds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(secret: Secret) -> None:
        opened = secret.open()
        raise ValueError(len(opened))

    logs.setup("vault_proxy", "debug")
    try:
        fails(Secret(CANARY))
    except ValueError as error:
        told = io.StringIO()
        traceback.print_exception(error, file=told)
        structlog.get_logger().exception("failed", secret=Secret(CANARY), value=[Secret(CANARY)])
    finally:
        structlog.reset_defaults()
    written = capsys.readouterr()
    assert "failed" in written.err
    assert CANARY not in written.err + written.out + told.getvalue()
