from __future__ import annotations

import pytest

from chassis.errors import CannotStartError
from identity.settings import PeerSettings


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in PeerSettings.model_fields:
        monkeypatch.delenv(f"DROVER_{name.upper()}", raising=False)


def test_several_brains_are_named_with_commas(monkeypatch):
    monkeypatch.setenv("DROVER_BRAIN_ADDRESSES", "127.0.0.1:1, 127.0.0.1:2,")
    assert PeerSettings().brain_addresses == ("127.0.0.1:1", "127.0.0.1:2")


def test_token_lies_under_the_data_directory(tmp_path):
    settings = PeerSettings(data_dir=tmp_path)
    settings.token_file.parent.mkdir()
    settings.token_file.write_text("s3cret\n")
    assert settings.token_file == tmp_path / "run" / "token"
    assert settings.token().open() == "s3cret"


def test_secret_that_is_not_there_is_told_with_its_file(tmp_path):
    with pytest.raises(CannotStartError, match=f"{tmp_path}/run/token .*DROVER_TOKEN_FILE"):
        PeerSettings(data_dir=tmp_path).token()


def test_service_that_nobody_has_placed_is_told_with_its_variable():
    with pytest.raises(CannotStartError, match="DROVER_SESSION_ADDRESS is not set"):
        PeerSettings().address_of("session")


@pytest.mark.parametrize(("held", "told"), [(b" \n", "is empty"), (b"\xff\xfe", "it is no text")])
def test_file_without_a_secret_in_it_is_named(tmp_path, held, told):
    file = tmp_path / "token"
    file.write_bytes(held)
    with pytest.raises(CannotStartError, match=f"{file}.*{told}"):
        PeerSettings(token_file=file).token()
