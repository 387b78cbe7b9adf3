"""Skills as users have them: folders with a SKILL.md."""

from __future__ import annotations

import io
import zipfile
from typing import Final

DESCRIPTION: Final = "Counts the bytes of what it is given"
_SCRIPT: Final = '#!/bin/sh\necho "$(wc -c) bytes"\n'


def skill_md(name: str, description: str = DESCRIPTION, body: str = "Run scripts/digest.") -> str:
    """A SKILL.md."""
    return f"---\nname: {name}\ndescription: {description}\n---\n\n# {name}\n\n{body}\n"


def script_skill(name: str) -> list[tuple[str, bytes]]:
    """The files of a skill with a script, as the official client uploads a folder."""
    return [
        (f"{name}/SKILL.md", skill_md(name).encode()),
        (f"{name}/scripts/digest", _SCRIPT.encode()),
    ]


def zipped_skill(name: str, **more: str) -> tuple[str, bytes, str]:
    """The same as one archive, with the script's permission to be executed."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(f"{name}/SKILL.md", skill_md(name, **more))
        script = zipfile.ZipInfo(f"{name}/scripts/digest")
        script.external_attr = 0o100755 << 16
        archive.writestr(script, _SCRIPT)
    return (f"{name}.zip", packed.getvalue(), "application/zip")
