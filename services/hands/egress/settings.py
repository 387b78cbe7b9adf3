"""Settings of the sandboxes' way out."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from chassis.settings import Settings
from services.hands.egress.proxy import ProxyAddress


def _checked(text: str) -> str:
    if text:
        ProxyAddress(text)
    return text


class EgressOptions(Settings):
    """How sandboxes reach the vault proxy."""

    egress_address: Annotated[str, AfterValidator(_checked)] = Field(
        default="",
        description="Where the vault proxy takes the sandboxes' connections (its "
        "DROVER_EGRESS_LISTEN): host:port, or unix: and a path. Unset: sandboxes have no network.",
    )
    hands_egress_connections: int = Field(
        default=128, ge=1, le=4096, description="Connections out of one sandbox at once."
    )
