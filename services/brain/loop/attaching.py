"""Files that a request refers to, put into it right before it is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chassis.errors import DroverError
from services.brain.clients.files import TooLargeError
from services.brain.domain import attachments
from services.brain.model.port import ModelError, ModelErrorKind

if TYPE_CHECKING:
    from services.brain.clients.files import Files
    from services.brain.harness.port import ModelRequest

_TOO_LARGE = 413


async def attached(request: ModelRequest, files: Files) -> ModelRequest:
    """`request` with the bytes of its files.

    Raises `ModelError` as if the model's API had: with a status of 413 where the files are more
    than it takes, and to be tried again where the registry is away.
    """
    wanted = attachments.references(request.body)
    if not wanted:
        return request
    try:
        found = await files.read(list(dict.fromkeys(wanted)), attachments.MAX_REQUEST)
        # What is shown twice is sent twice.
        size = len(request.body) + sum(found[one].size for one in wanted)
        if size <= attachments.MAX_REQUEST:
            return replace(request, body=attachments.fill(request.body, found))
        failure = _too_large()
    except TooLargeError:
        failure = _too_large()
    except DroverError as error:
        failure = ModelError(
            ModelErrorKind.REQUEST_FAILED,
            f"a file of the conversation cannot be read: {error.message}",
            retry_after=error.retry_after,
            retryable=True,
        )
    raise failure


def _too_large() -> ModelError:
    return ModelError(
        ModelErrorKind.REQUEST_FAILED,
        f"the request has more than the {attachments.MAX_REQUEST:,} bytes that a model's API takes",
        status=_TOO_LARGE,
        retryable=False,
        overflow=True,
    )
