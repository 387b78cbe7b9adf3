"""What sessions are told whose kind of sandbox can have no way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drover.event.v1 import session_event_pb2 as pb

if TYPE_CHECKING:
    from services.hands.egress.grants import Grant


def missing(grant: Grant, kind: str) -> tuple[pb.SessionError, ...]:
    """What of a session cannot be used in a sandbox of that kind; nothing where it needs none.

    That it has no network is no error by itself: a session may need none.
    """
    lost = [f"the credentials of {', '.join(sorted(grant.variables))}"] if grant.variables else []
    lost += [f"the repository {one.url}" for one in grant.repositories]
    if not lost:
        return ()
    error = pb.SessionError(
        message=(
            f"{kind} sandboxes have no network here, so that these cannot be used: "
            f"{'; '.join(lost)}. Use an environment of another kind of sandbox, or see "
            "docs/sandboxes.md, Network"
        ),
        retry_status=pb.RetryStatus(type=pb.RETRY_STATUS_TYPE_RETRYING),
    )
    error.unknown_error.SetInParent()
    return (error,)
