"""Who acts: told to the services that write it down, of every request in whose name they do so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from chassis.errors import DroverError, Reason
from drover.api.v1.annotations_pb2 import KEY_KIND_API, KEY_KIND_WORK_ITEM
from drover.memory.v1.memory_pb2 import Actor

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.descriptor import Descriptor

    from gateway.auth import Caller

_FIELD: Final = "actor"


def signer(request: Descriptor) -> Callable[[Any, Caller], None] | None:
    """What puts its caller in a request of this type; `None` for types that do not ask for it."""
    field = request.fields_by_name.get(_FIELD)
    if field is None or field.message_type is None:
        return None
    return _sign if field.message_type.full_name == Actor.DESCRIPTOR.full_name else None


def _sign(message: Any, caller: Caller) -> None:  # noqa: ANN401  # any with such a field
    actor: Actor = message.actor
    if caller.kind == KEY_KIND_API:
        actor.api_actor.api_key_id = caller.key_id
    elif caller.kind == KEY_KIND_WORK_ITEM:
        actor.session_actor.session_id = caller.session_id
    else:
        raise DroverError(Reason.PERMISSION_DENIED, "an environment key acts for nobody")
