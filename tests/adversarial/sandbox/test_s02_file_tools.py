"""S2: links, `..`, mounts and swaps after the check, on the file tools and on host-side readers."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from pathlib import Path

import pytest

from services.hands.measure import size_of
from tests.adversarial.sandbox.probes import probe
from tests.doubles import soak
from tests.doubles.hands_stack import HandsStack, text

ROUNDS = int(soak.share(100, least=25))
# Swaps, for as long as it is let: a directory with a link to one outside, and a file likewise.
# What is outside may be written to by the sandbox's user, so that nothing but the tools keeps it.
SWAP = """\
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
os.makedirs("/dev/shm/out", exist_ok=True)
os.makedirs("/workspace/d", exist_ok=True)
for path, content in (("/dev/shm/out/f", "outside needle"), ("/workspace/d/f", "inside needle"),
                      ("/workspace/file", "inside needle")):
    with open(path, "w") as file:
        file.write(content)
os.symlink("/dev/shm/out", "/workspace/dlink")
os.symlink("/dev/shm/out/f", "/workspace/flink")
open("/workspace/swapping", "w").close()
while os.path.exists("/workspace/swapping"):
    for one, other in ((b"/workspace/d", b"/workspace/dlink"),
                       (b"/workspace/file", b"/workspace/flink")):
        if libc.renameat2(-100, one, -100, other, 2) == 0:
            continue
        # A kernel that cannot exchange them: a tool may make anew what is aside for a moment.
        for old, new in ((one, b"/workspace/aside"), (other, one), (b"/workspace/aside", other)):
            try:
                os.rename(old, new)
            except OSError:
                pass
"""


async def test_tools_follow_no_link_out(hands: HandsStack) -> None:
    await hands.bash("ln -s /etc/passwd a; ln -s / b; ln -s ../../proc/1/environ c")
    for path in ("a", "b/etc/passwd", "c", "../etc/passwd", "/workspace/../etc/passwd"):
        for tool, more in (
            ("read", {}),
            ("write", {"content": "x"}),
            ("edit", {"old_string": "root", "new_string": "x"}),
        ):
            result = await hands.run(tool, file_path=path, **more)
            assert "outside the session's" in text(result), path
    assert text(await hands.run("grep", pattern="root")) == "no matches"
    assert text(await hands.run("glob", pattern="b/etc/*")) == "no matches"
    for tool in ("grep", "glob"):
        for path in ("b", "b/etc", "..", "/proc/self/root/etc"):
            result = await hands.run(tool, pattern="*" if tool == "glob" else "root", path=path)
            assert "outside the session's" in text(result), path


@pytest.mark.asyncio(loop_scope="module")
async def test_no_link_mount_or_overlay_brings_in_what_is_outside(shared: HandsStack) -> None:
    told = await probe(
        shared,
        "found['hard'] = [failed(os.link, source, '/workspace/hard' + str(number))\n"
        "    for number, source in enumerate(('/etc/passwd', '/usr/bin/env', '/proc/cpuinfo',\n"
        "                                     '/run/agent/main.py'))]\n"
        "libc.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]\n"
        "def mounted(*given):\n"
        "    return 0 if libc.mount(*given) == 0 else ctypes.get_errno()\n"
        "found['bind'] = mounted(b'/etc', b'/workspace', None, 4096, None)\n"
        "found['tmpfs'] = mounted(b'x', b'/workspace', b'tmpfs', 0, None)\n"
        "found['overlay'] = mounted(b'x', b'/workspace', b'overlay', 0,\n"
        "    b'lowerdir=/etc,upperdir=/tmp,workdir=/tmp')\n"
        "found['remount'] = mounted(b'', b'/usr', None, 32 | 4096, None)\n",
    )
    assert 0 not in told.pop("hard")
    assert set(told.values()) == {1}


async def test_swaps_after_the_check_lead_no_tool_out(hands: HandsStack) -> None:
    await hands.run("write", file_path="/tmp/swap.py", content=SWAP)  # noqa: S108  # its own
    await hands.bash(
        "python3 /tmp/swap.py >/tmp/swap.log 2>&1 & while [ ! -e swapping ]; do :; done"
    )
    shown = []
    for number in range(ROUNDS):
        for path in ("d/f", "file"):
            shown.append(await hands.run("read", file_path=path))
            await hands.run("write", file_path=path, content=f"inside needle {number}")
            await hands.run("edit", file_path=path, old_string="inside", new_string="inside !")
    for _ in range(max(4, ROUNDS // 4)):
        shown.append(await hands.run("grep", pattern="needle"))
        shown.append(await hands.run("grep", pattern="needle", path="d"))
        await hands.run("glob", pattern="d/*")
    assert not [text(result) for result in shown if "outside needle" in text(result)]
    assert any("inside" in text(result) for result in shown)
    # The race was on to its end.
    assert await hands.bash("kill -0 $! && rm swapping && wait && cat /tmp/swap.log") == ""
    left = await hands.bash("cat /dev/shm/out/f; echo; echo /dev/shm/out/*")
    assert left == "outside needle\n/dev/shm/out/f"


async def test_watcher_of_the_disk_measures_nothing_outside(tmp_path: Path) -> None:
    """A host-side reader: what a session swaps under it does not lead it to the host's files."""
    outside, root = tmp_path / "outside", tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (outside / "b").mkdir(parents=True)
    (outside / "b" / "large").write_bytes(b"x" * (4 << 20))
    (root / "link").symlink_to(outside)
    libc, done = ctypes.CDLL(None), threading.Event()

    def swap() -> None:
        while not done.is_set():
            libc.renameat2(-100, bytes(root / "a"), -100, bytes(root / "link"), 2)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        sizes = await asyncio.to_thread(lambda: [size_of(root) for _ in range(20 * ROUNDS)])
    finally:
        done.set()
        thread.join()
    assert max(sizes) < 4 << 20


async def test_deleting_a_workspace_leaves_what_its_links_name(
    hands: HandsStack, tmp_path: Path
) -> None:
    """Another host-side reader: a session's end."""
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o755)
    (kept / "file").write_text("of the host", encoding="utf-8")
    await hands.bash(f"ln -s {kept} a; ln -s {kept}/file b; mkdir c; ln -s {kept} c/d; chmod 0 c")
    workspaces = hands.pool._workspaces
    volume = workspaces.find("sesn_1")
    assert volume is not None
    await hands.executor.release("sesn_1")
    await workspaces.remove(volume)
    assert not volume.root.exists()
    assert (kept / "file").read_text(encoding="utf-8") == "of the host"
    assert kept.stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86-64")
@pytest.mark.asyncio(loop_scope="module")
async def test_descriptors_of_files_cannot_be_had_by_handle(shared: HandsStack) -> None:
    told = await probe(shared, "found['made'] = call(303, -100, b'/workspace', 0, 0, 0)\n")
    assert told["made"] == 1
