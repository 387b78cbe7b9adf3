"""Claude on Google's Vertex AI: the model in the path, server-sent events as everywhere.

The SDK's `AsyncAnthropicVertex` adds the access token, whatever the path is. Its own rewriting of
`/v1/messages` needs the request as a dictionary, so the path is given as it would make it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast
from urllib.parse import quote

from services.brain.model.envelope import model_of, open_envelope, seal
from services.brain.model.platform import API_VERSION, Letter, MessagesApi

if TYPE_CHECKING:
    from collections.abc import Sequence

    import anthropic

GOOGLE_AUTH: Final = {"google.auth": "vertex", "requests": "vertex"}


class Vertex(MessagesApi):
    """`Platform` over `streamRawPredict`.

    The environment is the SDK's and google-auth's own: CLOUD_ML_REGION,
    ANTHROPIC_VERTEX_PROJECT_ID, GOOGLE_APPLICATION_CREDENTIALS or the machine's service account;
    ANTHROPIC_VERTEX_BASE_URL.
    """

    def __init__(self) -> None:
        super().__init__(
            "anthropic",
            "AsyncAnthropicVertex",
            advice=(
                "CLOUD_ML_REGION, ANTHROPIC_VERTEX_PROJECT_ID, the Google credentials "
                "(GOOGLE_APPLICATION_CREDENTIALS), and the project's access to the model"
            ),
            provider="gcp.vertex_ai",
            libraries=GOOGLE_AUTH,
        )

    def address(self, client: object, body: bytes, betas: Sequence[str]) -> Letter:
        """See `Platform.address`. Raises ValueError where no project is named."""
        vertex = cast("anthropic.AsyncAnthropicVertex", client)
        if not vertex.project_id:
            msg = f"no project is named: check {self.advice}"
            raise ValueError(msg)
        envelope = open_envelope(body, ("model",))
        place = "/".join(
            f"{kind}/{quote(name, safe='@:')}"
            for kind, name in (
                ("projects", vertex.project_id),
                ("locations", vertex.region),
                ("publishers/anthropic/models", model_of(envelope)),
            )
        )
        return Letter(
            f"/{place}:streamRawPredict",
            seal(envelope.members, anthropic_version=API_VERSION),
            {"anthropic-beta": ",".join(betas)} if betas else {},
        )
