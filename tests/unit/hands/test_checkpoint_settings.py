"""Where checkpoints are kept, as the settings say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from chassis.errors import CannotStartError
from services.hands.checkpoints.settings import CheckpointOptions


@pytest.mark.parametrize(
    "url", ["/a/directory", "file://relative", "s3://", "http://host", "s3://user:word@bucket"]
)
def test_url_that_is_no_store_keeps_the_hands_from_starting_and_names_the_setting(url: str) -> None:
    options = CheckpointOptions(hands_checkpoints=url)
    with pytest.raises(CannotStartError, match=r"^DROVER_HANDS_CHECKPOINTS: a store's URL") as no:
        options.store()
    assert "word" not in str(no.value)


def test_directory_that_cannot_be_made_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    options = CheckpointOptions(hands_checkpoints=f"file://{tmp_path}/file/store")
    with pytest.raises(CannotStartError, match=r"^DROVER_HANDS_CHECKPOINTS: .*cannot be made"):
        options.store()


def test_without_a_url_there_is_no_store() -> None:
    assert CheckpointOptions().store() is None
