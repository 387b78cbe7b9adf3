"""Where the services keep their data, as the command sees it: found, migrated, examined, hidden."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from chassis.errors import CannotStartError
from chassis.secret import Secret
from cli.databases import ServiceDatabase
from cli.doctor.databases import databases
from cli.doctor.finding import Verdict
from cli.launched import LaunchFailedError
from cli.main import app
from cli.settings import settings_of, shown_value
from cli.stack.installation import Installation
from cli.stack.plan import Plan, public
from tests.doubles.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.postgres import Cluster

SERVER = "postgresql://drover:sesame@db:5432/drover?sslmode=require&password=sesame"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("", "SESSION_", "REGISTRY_", "HANDS_"):
        monkeypatch.delenv(f"DROVER_{variable}DATABASE_URL", raising=False)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is there may take as long as a busy machine makes it."""
    for module in ("examine", "glance"):
        monkeypatch.setattr(f"storage.{module}._PATIENCE", 60.0)


def invoke(*arguments: str, **environment: str) -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": "200", **environment}).invoke(app, list(arguments))
    return result.exit_code, result.output


def test_url_of_a_database_goes_to_the_services_that_have_one_alone(tmp_path: Path) -> None:
    shell = {
        "DROVER_DATABASE_URL": SERVER,
        "DROVER_SESSION_DATABASE_URL": SERVER.replace("sesame", "simsim"),
    }
    plan = Plan.make(host="127.0.0.1", port=8080, brains=2, ports=range(20_000, 20_006))
    holders = {
        order.name: {value for value in order.environment.values() if "postgresql" in value}
        for order in plan.orders(Installation(tmp_path), shell, Secret("k"))
    }
    owners = {"registry", "session", "vault_proxy", "hands"}
    assert {name for name, urls in holders.items() if urls} == owners
    assert holders["registry"] == holders["hands"] == {SERVER}
    assert public(shell) == {}


def test_keys_of_stored_secrets_go_to_the_vault_proxy_alone(tmp_path: Path) -> None:
    shell = {"DROVER_VAULT_KEYS": "1:key", "DROVER_VAULT_TRANSIT_TOKEN": "hvs.token"}
    plan = Plan.make(host="127.0.0.1", port=8080, brains=2, ports=range(20_000, 20_006))
    orders = plan.orders(Installation(tmp_path), shell, Secret("k"))
    holders = [order.name for order in orders if {*shell} & {*order.environment}]
    assert holders == ["vault_proxy"]
    assert public(shell) == {}


def test_the_key_of_the_search_provider_goes_to_the_vault_proxy_alone(tmp_path: Path) -> None:
    shell = {"DROVER_SEARCH_API_KEY": "key", "DROVER_SEARCH_PROVIDER": "brave"}
    plan = Plan.make(host="127.0.0.1", port=8080, brains=2, ports=range(20_000, 20_006))
    orders = plan.orders(Installation(tmp_path), shell, Secret("k"))
    assert [order.name for order in orders if {*shell} & {*order.environment}] == ["vault_proxy"]
    assert public(shell) == {"DROVER_SEARCH_PROVIDER": "brave"}


def test_url_of_a_database_is_shown_without_its_password() -> None:
    for variable in ("DROVER_DATABASE_URL", "DROVER_HANDS_DATABASE_URL"):
        assert shown_value(variable, SERVER) == "postgresql://***@db:5432/drover"
        assert shown_value(variable, "sqlite:////srv/a.db") == "sqlite:////srv/a.db"
        assert shown_value(variable, "postgresql://u:p@ss:word@h/") == "***"


def test_each_service_with_a_database_lists_a_setting_of_its_own() -> None:
    settings = {one.variable: one for one in settings_of(["services.registry.main"])}
    assert settings["DROVER_REGISTRY_DATABASE_URL"].readers == ["registry"]
    assert settings["DROVER_DATABASE_URL"].readers == ["registry"]


def test_database_is_where_the_services_own_setting_says(tmp_path: Path) -> None:
    def place(**environment: str) -> str:
        return ServiceDatabase.of("session", environment, tmp_path).shown

    assert place() == f"{tmp_path}/session.db"
    assert place(DROVER_DATABASE_URL=SERVER) == "db:5432/drover"
    own = "sqlite:////srv/session.db"
    assert place(DROVER_DATABASE_URL=SERVER, DROVER_SESSION_DATABASE_URL=own) == "/srv/session.db"
    with pytest.raises(CannotStartError, match="each service needs its own"):
        place(DROVER_DATABASE_URL=own)


def test_demonstration_keeps_to_its_own_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROVER_DATABASE_URL", SERVER)
    monkeypatch.setenv("DROVER_HANDS_DATABASE_URL", SERVER)
    given: list[dict[str, str]] = []

    def launch(_data: Path, environment: dict[str, str]) -> None:
        given.append(environment)
        raise LaunchFailedError("seen enough")

    monkeypatch.setattr("cli.demo.LaunchedStack", launch)
    assert invoke("demo")[0] == 1
    assert given[0]
    assert SERVER not in given[0].values()


def test_migrate_tells_each_step_once_and_then_that_nothing_is_to_do(
    tmp_path: Path, postgres: Cluster
) -> None:
    url = postgres.new_database()
    code, first = invoke("migrate", "--data", str(tmp_path), DROVER_DATABASE_URL=url)
    assert code == 0
    lines = [line.split() for line in first.splitlines()]
    assert {line[0] for line in lines} == {"registry", "session", "vault_proxy", "hands"}
    assert all(line[-1] == "applied" for line in lines)
    code, second = invoke("migrate", "--data", str(tmp_path), DROVER_DATABASE_URL=url)
    assert code == 0
    assert second.count("has what this release needs") == 4
    assert "@" not in first + second


def test_migrate_takes_one_service_and_leaves_the_others(tmp_path: Path, postgres: Cluster) -> None:
    url = postgres.new_database()
    arguments = ("migrate", "--data", str(tmp_path), "--service", "hands")
    assert invoke(*arguments, DROVER_DATABASE_URL=url)[0] == 0
    schemas = postgres.execute(
        "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'drover%'",
        database=url.rpartition("/")[2],
    )
    assert schemas == "drover_hands"


def test_migrate_brings_files_up_to_date_and_makes_none(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "session.db") as file:
        file.execute("CREATE TABLE schema_version (version INTEGER PRIMARY KEY)")
    file.close()
    code, output = invoke("migrate", "--data", str(tmp_path))
    assert code == 0
    assert "revision 0001 applied" in output
    assert output.count("not there: its service makes it") == 3
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".db"] == ["session.db"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://u:sesame@db/drover", "no database engine of ours"),
        ("postgresql://u:ses@me:x@db/", "special characters of the password"),
        ("postgresql://u:sesame@db:port/drover", "the database's URL cannot be read"),
        ("postgresql://u:sesame@127.0.0.1:{port}/drover?sslmode=maybe", "sslmode"),
        ("postgresql://u:sesame@127.0.0.1:{port}/drover", "no PostgreSQL listens at 127.0.0.1"),
    ],
)
def test_migrate_says_in_one_line_what_is_wrong_with_a_database(
    url: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.migrate.PATIENCE", 0.0)
    url = url.replace("{port}", str(free_port()))
    code, output = invoke("migrate", "--data", str(tmp_path), DROVER_DATABASE_URL=url)
    assert code == 1
    assert says in output
    assert len(output.splitlines()) == 1
    assert "ses" not in output.replace("session", "")


def test_migrate_names_the_services_that_it_knows() -> None:
    code, output = invoke("migrate", "--service", "brain")
    assert code == 2
    assert "registry" in output


def test_doctor_looks_at_the_database_and_changes_nothing(
    tmp_path: Path, postgres: Cluster
) -> None:
    assert [finding.verdict for finding in databases(tmp_path, {})] == [Verdict.FINE]
    url = postgres.new_database()
    environment = {"DROVER_DATABASE_URL": url, "DROVER_HANDS_DATABASE_URL": "sqlite:////srv/h.db"}
    [server, embedded] = databases(tmp_path, environment)
    assert server.verdict is Verdict.OPTIONAL
    assert "not migrated for registry, session" in server.detail
    assert "hands" in embedded.detail
    assert invoke("migrate", "--data", str(tmp_path), DROVER_DATABASE_URL=url)[0] == 0
    [server] = databases(tmp_path, {"DROVER_DATABASE_URL": url})
    assert server.verdict is Verdict.FINE
    assert server.detail.startswith("PostgreSQL 1")
    assert "@" not in server.detail


def test_doctor_says_what_keeps_the_services_from_their_database(
    tmp_path: Path, postgres: Cluster
) -> None:
    nowhere = f"postgresql://u:sesame@127.0.0.1:{free_port()}/drover"
    [finding] = databases(tmp_path, {"DROVER_DATABASE_URL": nowhere})
    assert finding.verdict is Verdict.MISSING
    assert "no PostgreSQL listens" in finding.detail
    url = postgres.new_database()
    [finding] = databases(tmp_path, {"DROVER_DATABASE_URL": f"{url}_gone"})
    assert "make it with `createdb`" in finding.detail
    postgres.execute(
        "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
        database="postgres",
    )
    [finding] = databases(tmp_path, {"DROVER_DATABASE_URL": f"{url.rpartition('/')[0]}/latin"})
    assert "createdb --encoding UTF8" in finding.detail
    [finding] = databases(tmp_path, {"DROVER_DATABASE_URL": "sqlite:////srv/all.db"})
    assert finding.verdict is Verdict.MISSING
