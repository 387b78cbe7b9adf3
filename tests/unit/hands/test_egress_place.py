"""What a sandbox is given of its way out, and what it is told."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from services.hands.backends import bubblewrap, inside
from services.hands.backends.port import SandboxSpec, Volume
from services.hands.domain.limits import Limits
from services.hands.egress import refusal
from services.hands.egress.place import Place, system_bundle
from services.hands.egress.variables import NETWORK, placeholders

SYSTEM = b"-----BEGIN CERTIFICATE-----\nthe system's\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "egress" / "hand_1", SYSTEM)


def test_socket_is_for_the_sandboxs_user_alone(place: Place) -> None:
    owner = 200_123 if os.geteuid() == 0 else None
    with place.lay_out(owner):
        found = (place.way_out.directory / "proxy.sock").stat()
        assert stat.S_ISSOCK(found.st_mode)
        assert stat.S_IMODE(found.st_mode) == 0o600
        assert found.st_uid == (os.getuid() if owner is None else owner)
    place.remove()
    assert not place.way_out.directory.exists()


def test_certificates_are_written_in_place_and_are_one_sessions(place: Place) -> None:
    """The sandbox has the file mounted: another of its name would not be seen."""
    with place.lay_out(None):
        bundle, alone = place.way_out.bundle, place.way_out.directory / "session.crt"
        before = bundle.stat().st_ino
        place.trust("first " * 100)
        place.trust("second")
        assert bundle.read_bytes() == b"second\n" + SYSTEM
        assert alone.read_bytes() == b"second\n"
        assert bundle.stat().st_ino == before
        place.trust("")
        assert (bundle.read_bytes(), alone.read_bytes()) == (SYSTEM, b"")


def test_bundle_is_the_first_that_the_machine_has(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(SYSTEM)
    assert system_bundle([str(tmp_path / "a"), str(tmp_path / "b")]) == SYSTEM
    assert system_bundle([str(tmp_path / "a")]) == b""


def test_placeholders_cannot_undo_the_sandboxs_own_environment() -> None:
    given = {
        "API_KEY": "drover_placeholder_1",
        "HTTPS_PROXY": "http://elsewhere",
        "PATH": "/tmp",  # noqa: S108  # a value that must not count
        "NODE_OPTIONS": "x",
        "two words": "x",
        "1ST": "x",
        "NUL": "a\0b",
        "LONG": "x" * 40_000,
    }
    assert placeholders(given) == {"API_KEY": "drover_placeholder_1"}


def test_every_variable_leads_to_the_forwarder_or_to_the_certificates() -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        assert NETWORK[name] == "http://127.0.0.1:3128"
    assert NETWORK["no_proxy"] == NETWORK["NO_PROXY"] == "localhost,127.0.0.1,::1"
    bundle = f"{inside.EGRESS_DIRECTORY}/ca-certificates.crt"
    for name in ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "PIP_CERT", "npm_config_cafile"):
        assert NETWORK[name] == bundle


def test_bubblewrap_mounts_the_way_out_read_only_where_there_is_one(place: Place) -> None:
    volume = Volume(Path("/data/workspaces/sesn_1"), 200_000)
    without = SandboxSpec("hand_1", volume, Limits())
    spec = SandboxSpec("hand_1", volume, Limits(), way_out=place.way_out)

    def told(one: SandboxSpec) -> list[str]:
        data = Path("/data")
        given = bubblewrap.arguments(one, agent=data, etc=data, at=lambda path: path)
        return list(given)

    at = told(spec).index(inside.EGRESS_DIRECTORY)
    assert told(spec)[at - 2 : at] == ["--ro-bind", str(place.way_out.directory)]
    assert inside.EGRESS_DIRECTORY not in told(without)
    assert "--unshare-net" in told(spec)


def test_refusal_is_a_whole_answer_that_says_why_in_its_first_line_too() -> None:
    head, _, body = refusal.no_grant("it is away").answer().partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 502 Bad Gateway (egress unavailable: vault_proxy_unavailable)"
    assert "x-drover-egress: unavailable; reason=vault_proxy_unavailable" in lines
    assert f"content-length: {len(body)}" in lines
    error = json.loads(body)["error"]
    assert error["type"] == "egress_unavailable"
    assert "it is away" in error["message"]
