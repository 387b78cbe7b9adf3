from __future__ import annotations

from pathlib import Path

from services.hands.backends.etc_files import lay_out


def test_only_what_everybody_may_read_is_copied(tmp_path: Path) -> None:
    system = tmp_path / "etc"
    (system / "ssl/certs").mkdir(parents=True)
    (system / "ssl/private").mkdir()
    (system / "ssl/private/key.pem").write_text("secret")
    (system / "ssl/certs/ca.crt").write_text("public")
    (system / "ssl/certs/odd.key").write_text("secret")
    (system / "ssl/certs/odd.key").chmod(0o600)
    (system / "ssl/certs/link").symlink_to("/usr/share/ca")
    (system / "localtime").symlink_to("/usr/share/zoneinfo/UTC")
    for name in ("shadow", "machine-id", "resolv.conf", "fstab", "environment"):
        (system / name).write_text("secret")
    made = tmp_path / "made"
    lay_out(made, system)
    lay_out(made, system)
    names = {str(path.relative_to(made)) for path in made.rglob("*") if not path.is_dir()}
    assert names == {
        *("ssl/certs/ca.crt", "ssl/certs/link", "localtime"),
        *("passwd", "group", "hosts", "hostname", "nsswitch.conf"),
    }
    assert (made / "ssl/certs/link").readlink() == Path("/usr/share/ca")
