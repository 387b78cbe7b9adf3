"""The operator's directory: what is made, renewed and replaced, and that all go on meanwhile."""

from __future__ import annotations

import stat
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest

from chassis.errors import CannotStartError
from identity import files
from identity.credentials import Credentials
from identity.folder import Folder, FolderError, Rotation
from identity.table import Caller
from tests.unit.identity.conftest import NOW

LATER = NOW + timedelta(days=300)


@pytest.fixture(autouse=True)
def _no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "certs")
    made.create(NOW)
    return made


def held(folder: Folder) -> dict[Caller, bytes]:
    return {one: (folder.root / one / "tls.crt").read_bytes() for one in Caller}


def copied(folder: Folder, place: Path) -> Path:
    """A process's files as it read them when it started."""
    place.mkdir(parents=True)
    for file in (folder.root / "session").iterdir():
        (place / file.name).write_bytes(file.read_bytes())
        (place / file.name).chmod(0o600)
    return place


def believes(one: Path, other: Path) -> bool:
    """Whether who started with one directory takes who started with the other."""
    both = one.parent / f"{one.name}-{other.name}"
    both.mkdir(exist_ok=True)
    for name, source in (("ca.crt", one), ("tls.crt", other), ("tls.key", other)):
        (both / name).write_bytes((source / name).read_bytes())
        (both / name).chmod(0o600)
    try:
        Credentials.read(both, "session", NOW)
    except CannotStartError:
        return False
    return True


def test_every_process_and_the_operator_get_what_is_theirs_and_no_key_that_signs(folder):
    for caller in Caller:
        directory = folder.root / caller
        assert {file.name for file in directory.iterdir()} == {"ca.crt", "tls.crt", "tls.key"}
        assert stat.S_IMODE((directory / "tls.key").stat().st_mode) == 0o600
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert Credentials.read(directory, caller, NOW)
    assert stat.S_IMODE((folder.root / "ca").stat().st_mode) == 0o700
    assert stat.S_IMODE((folder.root / "ca" / "ca.key").stat().st_mode) == 0o600
    assert {one.name for one in folder.show()} == {"authority", *Caller}


def test_what_is_there_is_never_made_over(folder):
    before = held(folder)
    with pytest.raises(FolderError, match="drover certs renew"):
        folder.create(NOW)
    assert folder.create(NOW, if_missing=True) == []
    assert held(folder) == before


@pytest.mark.parametrize("name", ["ca.crt", "tls.crt", "tls.key"])
def test_only_what_is_missing_is_made(folder, name):
    before = held(folder)
    (folder.root / "hands" / name).unlink()
    assert folder.create(NOW, if_missing=True) == [Caller.HANDS]
    after = held(folder)
    assert {one for one in Caller if after[one] != before[one]} == {Caller.HANDS}
    assert Credentials.read(folder.root / "hands", "hands", NOW)


def test_those_that_end_soon_are_renewed_and_the_others_are_left(folder):
    folder.renew(LATER, None)
    (folder.root / "brain" / "tls.crt").write_bytes(
        folder._authority("ca").issue("brain", NOW, 30).certificate
    )
    assert folder.renew(NOW, timedelta(days=60)) == [Caller.BRAIN]
    assert folder.renew(NOW, timedelta(days=60)) == []
    assert Credentials.read(folder.root / "brain", "brain", NOW)


def test_nothing_is_signed_without_the_authoritys_key(folder):
    (folder.root / "ca" / "ca.key").unlink()
    with pytest.raises(FolderError, match=r"ca\.key, without which nothing is signed: put it back"):
        folder.renew(NOW, None)


def test_authority_that_has_expired_signs_nothing_and_is_replaced(folder):
    then = NOW + timedelta(days=3651)
    with pytest.raises(FolderError, match="drover certs rotate"):
        folder.renew(then, None)
    folder.trust_next(then)
    folder.sign_by_next(then)
    assert Credentials.read(folder.root / "brain", "brain", then)


def test_what_is_asked_of_a_directory_that_is_none_leaves_nothing_there(tmp_path):
    folder = Folder(tmp_path / "mistyped")
    for ask in (lambda: folder.renew(NOW, None), lambda: folder.trust_next(NOW)):
        with pytest.raises(FolderError, match="drover certs create"):
            ask()
    assert not folder.root.exists()


@pytest.mark.parametrize("crash", range(2))
def test_rotation_that_broke_off_while_it_cleaned_up_is_gone_on_with(folder, monkeypatch, crash):
    folder.trust_next(NOW)
    left, unlink = crash, Path.unlink

    def failing(path, *args, **options):
        nonlocal left
        left -= path.name.startswith("next.")
        if left == -1:
            raise OSError(5, "Input/output error", str(path))
        unlink(path, *args, **options)

    with monkeypatch.context() as broken:
        broken.setattr(Path, "unlink", failing)
        with pytest.raises(OSError, match="Input/output"):
            folder.sign_by_next(NOW)
    folder.sign_by_next(NOW)
    folder.retire_previous()
    assert {file.name for file in (folder.root / "ca").iterdir()} == {"ca.crt", "ca.key", "lock"}
    for caller in Caller:
        assert Credentials.read(folder.root / caller, caller, NOW)


def test_processes_of_every_two_steps_in_a_row_take_each_other(folder, tmp_path):
    started = [copied(folder, tmp_path / "before")]
    folder.trust_next(NOW)
    started.append(copied(folder, tmp_path / "trusted"))
    folder.sign_by_next(NOW)
    started.append(copied(folder, tmp_path / "signed"))
    folder.retire_previous()
    started.append(copied(folder, tmp_path / "retired"))
    for number, (one, other) in product(range(3), ((0, 1), (1, 0), (1, 1))):
        assert believes(started[number + one], started[number + other]), (number, one, other)
    # And in the end nobody is believed whom the old authority has signed.
    assert not believes(started[3], started[0])
    assert not believes(started[0], started[3])
    assert folder.rotation is Rotation.NONE
    assert {file.name for file in (folder.root / "ca").iterdir()} == {"ca.crt", "ca.key", "lock"}


def test_steps_out_of_their_order_are_refused_and_say_which_is_next(folder):
    with pytest.raises(FolderError, match="--step trust"):
        folder.sign_by_next(NOW)
    with pytest.raises(FolderError, match="--step trust"):
        folder.retire_previous()
    folder.trust_next(NOW)
    with pytest.raises(FolderError, match="--step trust"):
        folder.retire_previous()
    folder.sign_by_next(NOW)
    with pytest.raises(FolderError, match="--step retire"):
        folder.trust_next(NOW)


@pytest.mark.parametrize("crash", range(0, 41, 2))
def test_rotation_that_broke_off_anywhere_is_gone_on_with(folder, monkeypatch, crash):
    """Every write of every step fails once; the step is repeated."""
    left = crash

    def failing(write):
        def once(path, data, **options):
            nonlocal left
            left -= 1
            if left == -1:
                raise OSError(28, "No space left on device", str(path))
            write(path, data, **options)

        return once

    for where in ("identity.folder", "identity.authority"):
        monkeypatch.setattr(f"{where}.write_private", failing(files.write_private))
    for step in (folder.trust_next, folder.sign_by_next, lambda _now: folder.retire_previous()):
        try:
            step(NOW)
        except OSError:
            step(NOW)
    assert folder.rotation is Rotation.NONE
    assert all(one.current for one in folder.show())
    for caller in Caller:
        assert Credentials.read(folder.root / caller, caller, NOW)
