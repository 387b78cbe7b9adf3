"""Which sandbox an environment's metadata asks for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drover.environment.v1.environment_pb2 import CloudConfig

KINDS: Final = ("local", "docker")
_KIND: Final = "drover.sandbox"
_IMAGE: Final = "drover.sandbox_image"
_IMAGE_NAME: Final = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]{0,254}")


def choose(cloud: CloudConfig, metadata: Mapping[str, str]) -> None:
    """Writes to `cloud` what `metadata` says of the sandbox.

    Raises INVALID_ARGUMENT for a kind that there is not, and for an image where the kind has none.
    """
    kind, image = metadata.get(_KIND, ""), metadata.get(_IMAGE, "")
    if kind and kind not in KINDS:
        raise DroverError(
            Reason.INVALID_ARGUMENT, f"metadata.{_KIND}: must be one of {', '.join(KINDS)}"
        )
    if image and kind == "local":
        raise DroverError(
            Reason.INVALID_ARGUMENT, f"metadata.{_IMAGE}: local sandboxes are made of no image"
        )
    if image and not _IMAGE_NAME.fullmatch(image):
        raise DroverError(Reason.INVALID_ARGUMENT, f"metadata.{_IMAGE}: not the name of an image")
    cloud.sandbox, cloud.image = kind, image
