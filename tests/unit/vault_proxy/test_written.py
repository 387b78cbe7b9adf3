from __future__ import annotations

import pytest

from chassis.errors import DroverError
from services.hands.backends import inside
from services.hands.domain.packages import VARIABLES
from services.hands.egress.variables import NETWORK, placeholders
from services.vault_proxy.domain import written

_SHELLS_OWN = ["_", "BASHOPTS", "EUID", "PPID", "RANDOM", "SHELLOPTS", "UID"]


@pytest.mark.parametrize(
    "name", sorted({*NETWORK, *inside.ENVIRONMENT, *VARIABLES, *_SHELLS_OWN, "LD_PRELOAD"})
)
def test_no_credential_has_the_name_of_a_variable_that_would_hide_it(name: str) -> None:
    with pytest.raises(DroverError, match="a variable that sandboxes need"):
        written.variable("auth.secret_name", name)


@pytest.mark.parametrize("name", ["WEATHER_KEY", "AWS_SECRET_ACCESS_KEY", "_KEY", "key1"])
def test_a_name_that_is_taken_for_a_credential_reaches_the_sandbox(name: str) -> None:
    taken = written.variable("auth.secret_name", name)
    assert placeholders({taken: "drover_placeholder_x"}) == {name: "drover_placeholder_x"}


@pytest.mark.parametrize(
    "token", ["Bearer abc", "bearer abc", "Authorization: Bearer abc", "Bearer"]
)
def test_a_token_is_given_without_the_word_that_is_put_before_it(token: str) -> None:
    with pytest.raises(DroverError, match="leave out 'Bearer'") as refused:
        written.bearer("auth.token", token)
    assert "abc" not in str(refused.value)


@pytest.mark.parametrize("token", ["abc", "Bearer-abc", "bearerabc"])
def test_a_token_may_begin_like_that_word(token: str) -> None:
    assert written.bearer("auth.token", token).matches(token)
