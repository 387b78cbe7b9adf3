"""V5: no value with a line break is ever put into a request."""

from __future__ import annotations

import pytest

from services.vault_proxy.domain.refusal import RefusedError, Why
from tests.doubles.egress import credential, holdings, placeholder_of, substitution


@pytest.mark.parametrize(
    "value", ["a\r\nX-Admin: 1", "key\n", "key\r", "key\0", "key\x7f", "\tkey"]
)
def test_a_value_with_a_control_character_is_put_neither_into_headers_nor_into_bodies(
    value: str,
) -> None:
    held = holdings(credential(value=value))
    request = substitution(held)
    with pytest.raises(RefusedError) as raised:
        request.headers([(b"authorization", placeholder_of(held))])
    assert raised.value.refusal.reason is Why.CREDENTIAL_UNUSABLE
    assert value not in raised.value.refusal.message
    assert not request.used
    with pytest.raises(RefusedError):
        request.body()
