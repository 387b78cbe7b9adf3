"""How many connections a session has: of one that has none, nothing is kept."""

from __future__ import annotations

from unittest.mock import Mock

from services.vault_proxy.proxy.egress import Egress


def test_nothing_is_kept_of_a_session_whose_connections_have_ended() -> None:
    egress = Egress(**dict.fromkeys(Egress.__dataclass_fields__.keys() - {"seats"}, Mock()))
    for session_id in ("sesn_1", "sesn_1", "sesn_2"):
        egress.seats[session_id] += 1
    egress.left("sesn_1")
    egress.left("sesn_2")
    assert egress.seats == {"sesn_1": 1}
    egress.left("sesn_1")
    assert not egress.seats
