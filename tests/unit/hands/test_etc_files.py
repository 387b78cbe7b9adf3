from __future__ import annotations

from pathlib import Path

from services.hands.backends.etc_files import lay_out, release


def test_only_what_everybody_may_read_is_copied(tmp_path: Path) -> None:
    system = tmp_path / "etc"
    (system / "fonts/conf").mkdir(parents=True)
    (system / "ssl/private").mkdir(parents=True)
    (system / "ssl/private/key.pem").write_text("secret")
    (system / "fonts/conf/ca.crt").write_text("public")
    (system / "fonts/conf/odd.key").write_text("secret")
    (system / "fonts/conf/odd.key").chmod(0o600)
    (system / "fonts/conf/link").symlink_to("/usr/share/ca")
    (system / "localtime").symlink_to("/usr/share/zoneinfo/UTC")
    for name in ("shadow", "machine-id", "resolv.conf", "fstab", "environment"):
        (system / name).write_text("secret")
    made = tmp_path / "made"
    lay_out(made, system)
    lay_out(made, system)
    names = {str(path.relative_to(made)) for path in made.rglob("*") if not path.is_dir()}
    assert names == {
        *("fonts/conf/ca.crt", "fonts/conf/link", "localtime"),
        *("passwd", "group", "hosts", "hostname", "nsswitch.conf"),
    }
    assert (made / "fonts/conf/link").readlink() == Path("/usr/share/ca")


def test_release_is_the_systems_name_and_version(tmp_path: Path) -> None:
    place = tmp_path / "os-release"
    assert release(place) == ""
    place.write_text('PRETTY_NAME="x"\nVERSION_ID="12"\nID=debian\n')
    assert release(place) == 'ID=debian VERSION_ID="12"'
