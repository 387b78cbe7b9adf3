"""What a process is told of its own certificate before anything is served."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from chassis.errors import CannotStartError
from identity.authority import Authority, place
from identity.credentials import Credentials
from identity.names import caller_of, name_of
from identity.table import Caller
from tests.unit.identity.conftest import NOW


@pytest.fixture
def own(certificates: Path, tmp_path: Path) -> Path:
    """A directory of the session service's, to be spoilt."""
    shutil.copytree(certificates / "session", tmp_path / "own")
    return tmp_path / "own"


def refused(directory: Path, caller: str = "session", later: timedelta = timedelta()) -> str:
    with pytest.raises(CannotStartError) as told:
        Credentials.read(directory, caller, NOW + later)
    return str(told.value)


def test_every_caller_has_a_name_of_its_own_that_hosts_may_have():
    names = {name_of(caller) for caller in Caller}
    assert len(names) == len(Caller)
    assert all(name.replace("-", "").replace(".", "").isalnum() for name in names)
    assert all(caller_of(name_of(caller)) is caller for caller in Caller)
    assert caller_of("evil.drover.internal") is caller_of("session") is None


@pytest.mark.parametrize("caller", Caller)
def test_certificate_serves_its_caller_both_ways(certificates, caller):
    found = Credentials.read(certificates / caller, caller)
    assert found.caller is caller
    own = x509.load_pem_x509_certificate(found.chain)
    usage = own.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [name_of(caller)]
    assert not own.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_key_is_never_shown(certificates):
    found = Credentials.read(certificates / "session", "session")
    assert "PRIVATE" not in repr(found)
    assert b"PRIVATE" in found.key


@pytest.mark.parametrize("name", ["ca.crt", "tls.crt", "tls.key"])
def test_missing_file_is_named_with_what_makes_it(own, name):
    (own / name).unlink()
    told = refused(own)
    assert f"{own / name} cannot be read" in told
    assert "`drover certs create`" in told


@pytest.mark.parametrize("name", ["ca.crt", "tls.crt", "tls.key"])
def test_file_that_is_something_else_is_named(own, name):
    (own / name).write_text("hello")
    assert str(own / name) in refused(own)


def test_certificate_of_another_service_is_refused_by_both_names(certificates):
    told = refused(certificates / "vault_proxy")
    assert "vault-proxy.drover.internal" in told
    assert "this process is session.drover.internal" in told


def test_expired_certificate_is_refused_and_one_that_is_not_valid_yet(own):
    assert "drover certs renew" in refused(own, later=timedelta(days=366))
    assert "machine's clock" in refused(own, later=-timedelta(days=1))


def test_key_of_another_certificate_is_refused(own, certificates):
    shutil.copy(certificates / "brain" / "tls.key", own / "tls.key")
    assert "is not the key of" in refused(own)


def test_certificate_of_another_authority_is_refused(own):
    (own / "ca.crt").write_bytes(Authority.make(NOW).pem)
    assert "is not signed by an authority" in refused(own)


def test_certificate_of_an_authority_that_has_expired_is_refused(tmp_path):
    short = Authority.make(NOW, days=2)
    issued = short.issue("session", NOW, days=30)
    place(tmp_path, short.pem, issued)
    found = Credentials.read(tmp_path, "session", NOW)
    assert found.expires <= NOW + timedelta(days=2)  # no longer than its authority
    assert "expired" in refused(tmp_path, later=timedelta(days=3))


def test_any_of_several_authorities_is_enough(own):
    with (own / "ca.crt").open("ab") as file:
        file.write(Authority.make(NOW).pem)
    assert Credentials.read(own, "session", NOW).caller is Caller.SESSION


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620])
def test_key_that_others_may_use_is_refused_with_its_mode(own, mode):
    (own / "tls.key").chmod(mode)
    told = refused(own)
    assert f"mode {mode:04o}" in told
    assert f"chmod 600 {own / 'tls.key'}" in told


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_key_of_another_owner_is_its_owners_alone(own):
    (own / "tls.key").chmod(0o640)
    assert Credentials.read(own, "session", NOW)  # root's, as a cluster mounts it
    os.chown(own / "tls.key", 10_001, 10_001)
    assert "mode 0640" in refused(own)
