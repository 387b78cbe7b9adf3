"""The services of skills, as a server offers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chassis.clock import SystemClock
from chassis.ids import new_id
from drover.skill.v1.skill_service_pb2_grpc import add_SkillServiceServicer_to_server
from drover.skill.v1.skill_version_service_pb2_grpc import (
    add_SkillVersionServiceServicer_to_server,
)
from services.registry.rpc.skills.receiving import Receiver
from services.registry.rpc.skills.skills import SkillRpc
from services.registry.rpc.skills.versions import SkillVersionRpc

if TYPE_CHECKING:
    from chassis.grpc.server import GrpcServer
    from services.registry.domain.skills.limits import SkillLimits
    from services.registry.domain.skills.ports import SkillStore
    from services.registry.store.objects.kept import KeptObjects


def add_skill_services(
    server: GrpcServer, store: SkillStore, objects: KeptObjects, limits: SkillLimits
) -> None:
    """Has `server` serve skills out of `store`, and their archives out of `objects`."""
    clock, receiver = SystemClock(), Receiver(objects, limits)
    server.add(add_SkillServiceServicer_to_server, SkillRpc(store, receiver, clock, new_id))
    versions = SkillVersionRpc(store, receiver, objects, clock, new_id)
    server.add(add_SkillVersionServiceServicer_to_server, versions)
