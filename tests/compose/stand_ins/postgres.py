"""As the official image begins: a superuser with the password of a file, scripts, the server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DATA = Path("/var/lib/postgresql/data/cluster")
SCRIPTS = Path("/docker-entrypoint-initdb.d")
PROGRAMS = next(Path("/usr/lib/postgresql").glob("*/bin"))


def main() -> None:
    if not (DATA / "PG_VERSION").exists():
        user, password = os.environ["POSTGRES_USER"], os.environ["POSTGRES_PASSWORD_FILE"]
        made = ("-D", DATA, "--no-sync", "--encoding=UTF8", "--locale=C", f"--username={user}")
        access = ("--auth-local=trust", "--auth-host=scram-sha-256")
        run(PROGRAMS / "initdb", *made, "--pwfile", password, *access)
        with (DATA / "pg_hba.conf").open("a") as rules:
            rules.write("host all all all scram-sha-256\n")
        control = (PROGRAMS / "pg_ctl", "-D", DATA, "-w")
        run(*control, "-o", "-c listen_addresses=", "start")
        for script in sorted(SCRIPTS.iterdir()):
            run("sh", script)
        run(*control, "stop")
    server = (
        str(PROGRAMS / "postgres"),
        "-D",
        str(DATA),
        "-c",
        "listen_addresses=*",
        *sys.argv[2:],
    )
    os.execv(server[0], server)  # noqa: S606


def run(*command: str | Path) -> None:
    path = f"{PROGRAMS}:{os.environ['PATH']}"
    subprocess.run(command, check=True, env={**os.environ, "PATH": path}, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
