"""What is delivered for watching Drover fits the rest. `test_up_on_postgres` has its metrics."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.e2e.monitoring import MONITORING, named
from tests.e2e.stack import ROOT

PAGE = (ROOT / "docs" / "monitoring.md").read_text()
ALERTS: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]


def test_every_service_that_is_scraped_is_one_of_the_containers_at_its_port() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    jobs = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["scrape_configs"]
    for job in jobs:
        (found,) = job["dns_sd_configs"]
        (name,) = found["names"]
        assert name == job["job_name"].replace("_", "-")
        listens = services[name]["environment"]["DROVER_METRICS_LISTEN"]
        assert listens.rpartition(":")[2] == str(found["port"])
    asked = {one for rule in ALERTS for one in re.findall(r'job="(\w+)"', rule["expr"])}
    assert asked == {job["job_name"] for job in jobs}


def test_every_alert_says_what_is_amiss_and_where_to_look() -> None:
    for rule in ALERTS:
        assert rule["labels"]["severity"] in {"page", "ticket"}, rule["alert"]
        assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]
        assert f"`{rule['alert']}`" in PAGE, rule["alert"]
    told = set(re.findall(r"`(Drover[A-Z]\w+)`", PAGE))
    assert told == {rule["alert"] for rule in ALERTS}


def test_every_metric_that_is_asked_for_is_described() -> None:
    """By its name, or by the end of it behind the name before."""
    for name in named():
        base = re.sub(r"_(bucket|sum|count|total)$", "", name)
        short = [base.removeprefix("_".join(base.split("_")[:n])) for n in range(1, 4)]
        assert base.startswith("process_") or any(one in PAGE for one in (base, *short)), name


def test_what_containers_of_the_overlay_are_given_is_there() -> None:
    overlay = yaml.safe_load((MONITORING / "compose.yml").read_text())
    for service in overlay["services"].values():
        for volume in service["volumes"]:
            place = volume.partition(":")[0]
            assert not place.startswith(".") or (ROOT / place).exists(), place
