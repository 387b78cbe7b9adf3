"""Which script the rehearsal model follows for a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.brain.model.rehearsal.analysis import table_script
from services.brain.model.rehearsal.errands import errands_script, find_errands, wants_together
from services.brain.model.rehearsal.script import play
from services.brain.model.rehearsal.table import find_table

if TYPE_CHECKING:
    from services.brain.model.rehearsal.conversation import Conversation
    from services.brain.model.rehearsal.script import Answer, Script


def answer(conversation: Conversation) -> Answer:
    """What the model says and calls next. The same conversation gives the same answer."""
    return play(_chosen(conversation), conversation)


def _chosen(conversation: Conversation) -> Script:
    table = find_table(conversation)
    if table is not None:
        return table_script(table)
    errands = find_errands(conversation.text)
    if errands:
        return errands_script(errands, together=wants_together(conversation.text))
    return _chat(conversation)


def _chat(conversation: Conversation) -> Script:
    """A friendly text; a generator like the others, though it makes no call."""
    yield from ()
    words = len(conversation.text.split())
    return (
        f"Hello! Your message of {words} word{'' if words == 1 else 's'} reached me, but it holds "
        "nothing that my script can act on. I can run commands that you put in backticks (try "
        '`uname -a`), read and write files ("write hello to notes.txt, then read it back"), and '
        "work through a CSV that you paste or attach."
    )
