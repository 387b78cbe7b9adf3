"""Results that are too long to show: whole in a file of the session's, and a preview of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import DroverError
from drover.event.v1.content_pb2 import ContentBlock, TextBlock
from services.hands.backends.port import BackendUnavailable
from services.hands.domain.address import session_of
from services.hands.domain.toolset import FILE_TOOL_SECONDS, ToolCall
from services.hands.hand import HandDied
from services.hands.runner import limits
from services.hands.runner.output import clean, preview

if TYPE_CHECKING:
    from drover.hands.v1.hands_service_pb2 import ExecuteResponse
    from services.hands.custody import Custody
    from services.hands.pool import Pool
    from services.hands.under_way import Execution

MAX_FILE: Final = 4 * limits.MIB
"""Characters of a result that its file keeps."""

_DIRECTORY: Final = "/mnt/session/tool_outputs"
_UNSAFE_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_JOINT: Final = "\n\n"

_log = structlog.get_logger("hands.spilling")


class Spilling:
    """Writes through the session's own hand: what a sandbox may have made of its directories is
    nothing that a process outside should walk through."""

    def __init__(self, pool: Pool, custody: Custody) -> None:
        self._pool = pool
        self._custody = custody

    async def shorten(
        self, under_way: Execution, result: ExecuteResponse, *, spills: bool = True
    ) -> None:
        """Leaves of `result` what may be shown of it (SEMANTICS §1). Raises nothing.

        Without `spills` there is no sandbox for a file, and the rest is lost.
        """
        texts = [block.text.text for block in result.content if block.HasField("text")]
        if sum(map(len, texts)) <= limits.RESULT_CHARACTERS:
            return
        whole = clean(_JOINT.join(texts))
        path = f"{_DIRECTORY}/{_UNSAFE_NAME.sub('_', under_way.call_id)}.txt"
        file = whole[:MAX_FILE]
        kept = spills and await self._write(under_way, path, file)
        where = "and could not be written to a file"
        if kept:
            where = f"and is in {path}"
            if file is not whole:
                where = f"and {path} has the first {MAX_FILE}"
        shown = preview(
            whole[: limits.PREVIEW_HEAD], whole[-limits.PREVIEW_TAIL :], len(whole), where
        )
        others = [block for block in result.content if not block.HasField("text")]
        del result.content[:]
        result.content.extend([ContentBlock(text=TextBlock(text=shown)), *others])

    async def _write(self, under_way: Execution, path: str, text: str) -> bool:
        call = ToolCall("write", {"file_path": path, "content": text}, FILE_TOOL_SECONDS)
        try:
            if not self._pool.has(under_way.where):
                await self._custody.check(session_of(under_way.where), "")
            async with self._pool.use(under_way.where, under_way.recipe) as hand:
                reply = await hand.run(under_way.call_id, call)
        except (DroverError, BackendUnavailable, HandDied) as error:
            _log.warning("result_not_spilled", call_id=under_way.call_id, reason=str(error))
            return False
        return not reply.is_error
