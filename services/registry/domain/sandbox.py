"""Which sandbox an environment's metadata asks for, and how large a one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from catalogue.sandboxes import KINDS, MEASURES, amount
from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drover.environment.v1.environment_pb2 import CloudConfig

_KIND: Final = "drover.sandbox"
_IMAGE: Final = "drover.sandbox_image"
_DROVERS_OWN: Final = "drover."
_KNOWN: Final = frozenset({_KIND, _IMAGE, *(f"{_DROVERS_OWN}{one.name}" for one in MEASURES)})
_IMAGE_NAME: Final = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]{0,254}")


def choose(cloud: CloudConfig, metadata: Mapping[str, str], ceilings: Mapping[str, float]) -> None:
    """Writes to `cloud` what `metadata` says of the sandbox.

    Raises INVALID_ARGUMENT for what Drover does not know, for a kind that there is not, for an
    image where the kind has none, and for limits that are no number between the least that is of
    use and the operator's ceiling.
    """
    for key in sorted(metadata):
        if key.startswith(_DROVERS_OWN) and key not in _KNOWN:
            raise DroverError(
                Reason.INVALID_ARGUMENT,
                f"metadata.{key}: not known, only {', '.join(sorted(_KNOWN))}",
            )
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
    cloud.ClearField("limits")
    for measure in MEASURES:
        key = f"{_DROVERS_OWN}{measure.name}"
        if text := metadata.get(key, ""):
            try:
                value = amount(measure, text, ceilings[measure.name])
            except ValueError as error:
                raise DroverError(Reason.INVALID_ARGUMENT, f"metadata.{key}: {error}") from error
            setattr(cloud.limits, measure.name, value)
