"""S12 for checkpoints: a store that gives back what nobody has stored. The stream is refused."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.hands.archive.bounds import BROUGHT, PARTS, ArchiveRefused, Bounds
from services.hands.archive.header import (
    DIRECTORY,
    END,
    FILE,
    HARD_LINK,
    MANIFEST,
    SYMLINK,
    Header,
    encode,
    padding,
)
from services.hands.archive.pack import Packer
from services.hands.archive.unpack import Unpacker

MIB = 1 << 20
HEAD = b'{"format": 1}'
ROOT = Header(DIRECTORY, b"workspace", mode=0o755)


def file(path: bytes, data: bytes = b"data") -> bytes:
    return encode(Header(FILE, path, len(data))) + data + bytes(padding(len(data)))


def archive(*entries: Header | bytes, manifest: bytes = HEAD, end: bytes = END) -> bytes:
    blocks = [entry if isinstance(entry, bytes) else encode(entry) for entry in entries]
    return gzip.compress(file(MANIFEST, manifest) + b"".join(blocks) + end, 1)


def raw(kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, size
    return info.tobuf(tarfile.USTAR_FORMAT)


def unpack(data: bytes, root: Path, *, entries: int = 1000, size: int = MIB) -> None:
    root.mkdir(exist_ok=True)
    directory = os.open(root, os.O_RDONLY)
    try:
        Unpacker(io.BytesIO(data).read, Bounds(entries, size)).unpack(directory)
    finally:
        os.close(directory)


HOSTILE: dict[str, tuple[bytes, str]] = {
    "parent": (archive(ROOT, file(b"workspace/../../escaped")), "no directory"),
    "dots": (archive(ROOT, file(b"workspace/..")), "no name"),
    "root": (archive(file(b"/etc/escaped")), "no directory"),
    "absolute": (archive(Header(DIRECTORY, b"/workspace", mode=0o755)), "no directory"),
    "beside": (archive(file(b"escaped")), "beside"),
    "part that is a file": (archive(file(b"workspace")), "is none"),
    "part that is a link": (archive(Header(SYMLINK, b"workspace", target=b"/")), "is none"),
    "through a link": (
        archive(ROOT, Header(SYMLINK, b"workspace/l", target=b"/tmp"), file(b"workspace/l/x")),
        "no directory",
    ),
    "link made a directory": (
        archive(
            ROOT,
            Header(SYMLINK, b"workspace/l", target=b"/tmp"),
            Header(DIRECTORY, b"workspace/l", mode=0o755),
        ),
        "twice",
    ),
    "file through a link": (
        archive(ROOT, Header(SYMLINK, b"workspace/l", target=b"/tmp/x"), file(b"workspace/l")),
        "twice",
    ),
    "hard link out": (
        archive(ROOT, Header(HARD_LINK, b"workspace/h", target=b"workspace/../../secret")),
        "nowhere",
    ),
    "hard link to the root": (
        archive(ROOT, Header(HARD_LINK, b"workspace/h", target=b"/etc/passwd")),
        "nowhere",
    ),
    "hard link through a link": (
        archive(
            ROOT,
            Header(SYMLINK, b"workspace/l", target=b"/etc"),
            Header(HARD_LINK, b"workspace/h", target=b"workspace/l/passwd"),
        ),
        "nowhere",
    ),
    "device": (archive(ROOT, encode(Header(tarfile.CHRTYPE, b"workspace/null"))), "kind"),
    "pipe": (archive(ROOT, encode(Header(tarfile.FIFOTYPE, b"workspace/pipe"))), "kind"),
    "GNU long name": (archive(ROOT, encode(Header(tarfile.GNUTYPE_LONGNAME, b"x"))), "kind"),
    "old directory left": (
        archive(ROOT, Header(DIRECTORY, b"home", mode=0o755), file(b"workspace/late")),
        "no directory",
    ),
    "another format": (archive(manifest=b'{"format": 2}'), "does not know"),
    "no manifest": (gzip.compress(encode(ROOT) + END), "no checkpoint"),
    "nonsense manifest": (archive(manifest=b"[1"), "no checkpoint"),
    "no end": (archive(ROOT, end=b""), "too early"),
    "half an end": (archive(ROOT, end=bytes(512) + b"x" * 512), "end is damaged"),
    "something behind": (archive(ROOT, end=END + b"more"), "behind its end"),
    "something behind the stream": (archive(ROOT) + b"more", "behind its end"),
    "not compressed": (b"\0" * 4096, "decompressed"),
    "empty": (b"", "too early"),
    "checksum": (archive(b"x" * 512), "damaged"),
    "endless header": (
        archive(raw(tarfile.XHDTYPE, 1 << 30)),
        "too long",
    ),
    "4 PB": (
        archive(ROOT, encode(Header(FILE, b"workspace/big", 512, real=4 << 50)) + b"1\n0\n0\n"),
        "too large",
    ),
    "sparse beyond its end": (
        archive(
            ROOT,
            encode(Header(FILE, b"workspace/s", 1024, real=100))
            + b"1\n50\n512\n".ljust(512, b"\0")
            + bytes(512),
        ),
        "impossible pieces",
    ),
    "sparse with too many pieces": (
        archive(ROOT, encode(Header(FILE, b"workspace/s", 1024, real=100)) + b"9999999\n"),
        "too many pieces",
    ),
    "sparse that lies about its size": (
        archive(
            ROOT,
            encode(Header(FILE, b"workspace/s", 5120, real=100))
            + b"1\n0\n50\n".ljust(512, b"\0")
            + bytes(512),
        ),
        "impossible size",
    ),
    "NUL in a name": (
        archive(ROOT, encode(Header(FILE, b"workspace/\xffzero")).replace(b"zero", b"ze\0o", 1)),
        "no file can have",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_s12_stream_that_nobody_has_stored_is_refused_and_reaches_nothing(
    name: str, tmp_path: Path
) -> None:
    data, why = HOSTILE[name]
    (tmp_path / "secret").write_text("of the host")
    with pytest.raises(ArchiveRefused, match=why):
        unpack(data, tmp_path / "volume")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["secret", "volume"]
    assert (tmp_path / "secret").read_text() == "of the host"
    assert (tmp_path / "secret").stat().st_nlink == 1
    assert {entry.name for entry in (tmp_path / "volume").iterdir()} <= {*PARTS, *BROUGHT}


def test_s12_bomb_is_stopped_at_its_bound(tmp_path: Path) -> None:
    bomb = archive(ROOT, file(b"workspace/bomb", bytes(32 * MIB)))
    assert len(bomb) < MIB
    with pytest.raises(ArchiveRefused, match="too large"):
        unpack(bomb, tmp_path / "volume")
    assert (tmp_path / "volume" / "workspace" / "bomb").stat().st_size == 0
    many = archive(ROOT, *(encode(Header(FILE, b"workspace/%d" % n)) for n in range(200)))
    with pytest.raises(ArchiveRefused, match="too many files"):
        unpack(many, tmp_path / "many", entries=100)


def test_s12_header_whose_size_is_negative_is_refused(tmp_path: Path) -> None:
    block = bytearray(encode(Header(FILE, b"workspace/x"))[-512:])
    block[124:136] = b"\xff" * 12
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(struct.unpack("512B", block))
    with pytest.raises(ArchiveRefused, match="impossible size"):
        unpack(archive(ROOT, bytes(block)), tmp_path / "volume")


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    root = tmp_path_factory.mktemp("honest")
    for part in PARTS:
        (root / part).mkdir()
    place = root / "workspace"
    (place / "a").write_bytes(os.urandom(3000))
    (place / ("é" * 60)).mkdir()
    (place / "l").symlink_to("/etc/passwd")
    os.link(place / "a", place / "b")
    with (place / "s").open("wb") as sparse:
        sparse.truncate(MIB)
        sparse.seek(100_000)
        sparse.write(b"x")
    stream = io.BytesIO()
    directory = os.open(root, os.O_RDONLY)
    Packer(stream.write, Bounds(100, MIB)).pack(directory)
    os.close(directory)
    return gzip.decompress(stream.getvalue())


@given(at=st.integers(0, 1 << 20), value=st.binary(min_size=1, max_size=8), cut=st.booleans())
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_s12_any_damage_is_refused_or_stays_within_the_volume(
    honest: bytes, tmp_path_factory: pytest.TempPathFactory, at: int, value: bytes, cut: bool
) -> None:
    place = tmp_path_factory.mktemp("damaged", numbered=True)
    at %= len(honest)
    damaged = honest[:at] if cut else honest[:at] + value + honest[at + len(value) :]
    try:
        unpack(gzip.compress(damaged, 1), place / "volume")
    except (ArchiveRefused, OSError):
        pass
    finally:
        assert [entry.name for entry in place.iterdir()] == ["volume"]
        assert {entry.name for entry in (place / "volume").iterdir()} <= {*PARTS, *BROUGHT}
