"""As the official image begins: a database with the password of a file, then the server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DATA = Path("/var/lib/postgresql/data/cluster")
PROGRAMS = next(Path("/usr/lib/postgresql").glob("*/bin"))


def main() -> None:
    user, database = os.environ["POSTGRES_USER"], os.environ["POSTGRES_DB"]
    if not (DATA / "PG_VERSION").exists():
        made = ("-D", DATA, "--no-sync", "--encoding=UTF8", "--locale=C", f"--username={user}")
        password = ("--pwfile", os.environ["POSTGRES_PASSWORD_FILE"])
        access = ("--auth-local=trust", "--auth-host=scram-sha-256")
        run("initdb", *made, *password, *access)
        with (DATA / "pg_hba.conf").open("a") as rules:
            rules.write("host all all all scram-sha-256\n")
        run("postgres", "--single", "-D", DATA, "postgres", given=f"CREATE DATABASE {database};\n")
    server = (
        str(PROGRAMS / "postgres"),
        "-D",
        str(DATA),
        "-c",
        "listen_addresses=*",
        *sys.argv[2:],
    )
    os.execv(server[0], server)  # noqa: S606


def run(program: str, *arguments: str | Path, given: str = "") -> None:
    subprocess.run(
        [PROGRAMS / program, *arguments],
        check=True,
        input=given,
        text=True,
        stdout=subprocess.DEVNULL,
    )


if __name__ == "__main__":
    main()
