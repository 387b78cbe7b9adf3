from __future__ import annotations

import socket
from pathlib import Path

import pytest

from chassis.errors import CannotStartError
from chassis.secret import Secret
from cli.stack import ports
from cli.stack.installation import Installation
from cli.stack.order import Order
from cli.stack.plan import Plan, public
from identity.settings import PeerSettings
from services.brain.settings import BrainSettings
from services.hands.settings import HandsSettings

SHELL = {
    "PATH": "/bin",
    "DROVER_LOG_LEVEL": "debug",
    "DROVER_API_KEY": "drv_client",
    "ANTHROPIC_API_KEY": "sk-model",
    "AWS_SECRET_ACCESS_KEY": "aws",
}


@pytest.fixture
def plan() -> Plan:
    return Plan.make(host="127.0.0.1", port=8080, brains=2, ports=range(20_000, 20_006))


@pytest.fixture
def orders(plan: Plan, tmp_path: Path) -> dict[str, Order]:
    made = plan.orders(Installation(tmp_path), SHELL, Secret("drv_client"))
    return {order.name: order for order in made}


def test_stack_is_one_process_per_service_and_as_many_brains_as_wanted(plan: Plan) -> None:
    assert {part.name: part.module for part in plan.parts} == {
        "registry": "services.registry.main",
        "session": "services.session.main",
        "vault_proxy": "services.vault_proxy.main",
        "hands": "services.hands.main",
        "brain-1": "services.brain.main",
        "brain-2": "services.brain.main",
        "gateway": "gateway.main",
    }
    assert len({part.address for part in plan.parts}) == len(plan.parts)
    assert plan.modules.count("services.brain.main") == 1


def test_every_process_is_told_where_it_and_the_others_listen(
    orders: dict[str, Order], monkeypatch: pytest.MonkeyPatch
) -> None:
    for order in orders.values():
        for name, value in order.environment.items():
            monkeypatch.setenv(name, value)
        settings = PeerSettings()
        assert settings.session_address == "127.0.0.1:20001"
        assert settings.registry_address == "127.0.0.1:20000"
        assert settings.vault_proxy_address == "127.0.0.1:20002"
        assert settings.hands_address == "127.0.0.1:20003"
        assert settings.brain_addresses == ("127.0.0.1:20004", "127.0.0.1:20005")
        assert settings.token_file == settings.data_dir / "run" / "token"
    assert orders["session"].environment["DROVER_LISTEN"] == "127.0.0.1:20001"
    assert orders["gateway"].environment["DROVER_LISTEN"] == "127.0.0.1:8080"
    assert orders["brain-2"].environment["DROVER_BRAIN_NAME"] == "brain-2"


def test_every_process_is_given_the_certificate_of_its_kind_and_no_other(
    orders: dict[str, Order],
) -> None:
    for name, order in orders.items():
        own = Path(order.environment["DROVER_TLS_DIR"])
        assert (own.parent.name, own.name) == ("tls", name.partition("-")[0])
        assert not [one for one in order.environment.values() if "tls" in one and one != str(own)]


def test_model_credentials_go_to_brains_only(orders: dict[str, Order]) -> None:
    holders = {name for name, order in orders.items() if "sk-model" in order.environment.values()}
    assert holders == {"brain-1", "brain-2"}
    assert "sk-model" not in public(SHELL).values()
    assert "aws" not in public(SHELL).values()


def test_client_key_goes_to_the_gateway_only(orders: dict[str, Order]) -> None:
    holders = {name for name, order in orders.items() if "drv_client" in order.environment.values()}
    assert holders == {"gateway"}
    assert public(SHELL) == {"PATH": "/bin", "DROVER_LOG_LEVEL": "debug"}


def test_every_process_is_scraped_at_a_port_of_its_own(plan: Plan, tmp_path: Path) -> None:
    shell = SHELL | {"DROVER_METRICS_LISTEN": "127.0.0.1:9100"}
    orders = plan.orders(Installation(tmp_path), shell, Secret("drv_client"))
    addresses = [order.environment["DROVER_METRICS_LISTEN"] for order in orders]
    assert addresses == [f"127.0.0.1:{9100 + number}" for number in range(len(plan.parts))]


def test_sandboxes_have_one_way_out_which_leads_to_no_part_of_the_stack(
    plan: Plan, tmp_path: Path
) -> None:
    given = {
        "DROVER_METRICS_LISTEN": "127.0.0.1:9100",
        "DROVER_EGRESS_OWN_ADDRESSES": "10.0.0.1:3000",
        "DROVER_HANDS_DATABASE_URL": "postgresql://user:secret@10.0.0.2,10.0.0.3:6432/drover",
        "DROVER_SESSION_DATABASE_URL": "postgresql://user:secret@[::2]:6432/drover",
    }
    made = plan.orders(Installation(tmp_path), SHELL | given, Secret("drv_client"))
    orders = {order.name: order.environment for order in made}
    place = f"unix:{tmp_path}/run/egress.sock"
    assert orders["vault_proxy"]["DROVER_EGRESS_LISTEN"] == place
    assert orders["hands"]["DROVER_EGRESS_ADDRESS"] == place
    text = orders["vault_proxy"]["DROVER_EGRESS_OWN_ADDRESSES"]
    own = text.split(",")
    assert "secret" not in text
    assert {"10.0.0.2:5432", "10.0.0.3:6432", "[::2]:6432"} <= {*own}
    assert {"10.0.0.1:3000", "127.0.0.1:8080", "127.0.0.1:9100", "127.0.0.1:9106"} <= {*own}
    assert not any(
        "DROVER_EGRESS_LISTEN" in orders[name] for name in orders.keys() - {"vault_proxy"}
    )


def test_place_to_be_scraped_at_that_is_none_is_refused(plan: Plan, tmp_path: Path) -> None:
    shell = SHELL | {"DROVER_METRICS_LISTEN": "9100"}
    with pytest.raises(CannotStartError, match="DROVER_METRICS_LISTEN must be host:port"):
        plan.orders(Installation(tmp_path), shell, Secret("drv_client"))


@pytest.mark.parametrize(
    "told",
    [
        {},
        {
            "DROVER_DRAIN_SECONDS": "5",
            "DROVER_BRAIN_DRAIN_SECONDS": "30",
            "DROVER_HANDS_DRAIN_SECONDS": "60",
        },
    ],
)
def test_every_process_has_the_time_to_stop_that_it_gives_itself(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: dict[str, str]
) -> None:
    for variable, value in told.items():
        monkeypatch.setenv(variable, value)
    kinds = {"brain-1": BrainSettings, "brain-2": BrainSettings, "hands": HandsSettings}
    for order in plan.orders(Installation(tmp_path), told, Secret("drv_client")):
        settings = kinds.get(order.name, PeerSettings)()
        assert order.stop_seconds == settings.stop_seconds, order.name


def test_order_survives_the_wire_and_hides_its_environment(orders: dict[str, Order]) -> None:
    order = orders["brain-1"]
    assert Order.decode(order.encode()).opened(order.sealed()) == order
    # What forks all has read none of it.
    assert Order.decode(order.encode()).environment == {}
    assert "sk-model" not in repr(order)


def test_chosen_ports_are_free_distinct_and_never_given_to_outgoing_connections() -> None:
    chosen = ports.choose(20)
    assert len(set(chosen)) == 20
    assert all(ports.is_free("127.0.0.1", port) for port in chosen)
    assert max(chosen) < ports.lowest_outgoing()


def test_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not ports.is_free("127.0.0.1", server.getsockname()[1])
