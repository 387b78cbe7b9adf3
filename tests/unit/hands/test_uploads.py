"""Which files are brought into a sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from chassis.clock import SystemClock
from drover.file.v1.file_pb2 import File, FileScope
from services.hands.bringing.bringer import Errand, NotBrought
from services.hands.domain.mounts import MountedFile
from services.hands.files.source import Source
from services.hands.files.uploads import Uploads

DATA = b"text\n"


class Files:
    """One for each id, of the session that the id says."""

    @asynccontextmanager
    async def file(
        self, workspace_id: str, file_id: str
    ) -> AsyncIterator[tuple[File, AsyncIterator[bytes]]]:
        about = File(id=file_id, size_bytes=len(DATA), sha256=sha256(DATA).hexdigest())
        if session_id := file_id.removeprefix("file_"):
            about.scope.CopyFrom(FileScope(id=session_id))
        yield about, self._pieces()

    async def _pieces(self) -> AsyncIterator[bytes]:
        yield DATA


@pytest.mark.parametrize(("owner", "comes"), [("sesn_1", True), ("sesn_2", False), ("", False)])
async def test_a_file_comes_to_its_own_session_alone(
    tmp_path: Path, owner: str, *, comes: bool
) -> None:
    uploads = Uploads(Files(), Source(SystemClock(), free_bytes=0))
    errand = Errand("sesn_1", "wrkspc_1", tmp_path, "new")
    bringing = uploads.bring(MountedFile(f"file_{owner}", "a"), errand)
    if comes:
        await bringing
        assert (tmp_path / "new").read_bytes() == DATA
    else:
        with pytest.raises(NotBrought, match="not a file of this session") as refused:
            await bringing
        assert not refused.value.away
        assert not [*tmp_path.iterdir()]
