"""The services that workers meet behind the gateway, in memory: whose keys are whose, and work."""

from __future__ import annotations

import hashlib
from typing import Any

from chassis.errors import DroverError, Reason
from drover.environment.v1 import environment_key_service_pb2 as keys_pb
from drover.environment.v1 import environment_key_service_pb2_grpc as keys_grpc
from drover.work.v1 import work_pb2, work_service_pb2_grpc
from drover.work.v1 import work_service_pb2 as work_api
from tests.doubles.asked import Asked, stamp

ENVIRONMENT_KEY, OTHER_ENVIRONMENT_KEY = "drover_env_of-env-1", "drover_env_of-env-2"
WORK_TOKEN, OTHER_WORK_TOKEN = "drover_work_of-work-1", "drover_work_of-work-2"


class EnvironmentKeys(Asked, keys_grpc.EnvironmentKeyServiceServicer):
    """`holders` are the environments that keys open, by the keys."""

    def __init__(self) -> None:
        super().__init__()
        self.holders = {ENVIRONMENT_KEY: "env_1", OTHER_ENVIRONMENT_KEY: "env_2"}

    async def CreateEnvironmentKey(self, request, context):
        self.note(request)
        return keys_pb.CreateEnvironmentKeyResponse(environment_key=self._key(key="drover_env_x"))

    async def ListEnvironmentKeys(self, request, context):
        self.note(request)
        return keys_pb.ListEnvironmentKeysResponse(data=[self._key()])

    async def RevokeEnvironmentKey(self, request, context):
        self.note(request)
        return keys_pb.RevokeEnvironmentKeyResponse(environment_key=self._key(revoked_at=stamp()))

    async def AuthenticateEnvironmentKey(self, request, context):
        self.note(request)
        for key, environment_id in self.holders.items():
            if _digest(key) == request.digest:
                return keys_pb.AuthenticateEnvironmentKeyResponse(
                    workspace_id="wrkspc_default", environment_id=environment_id, key_id="envkey_1"
                )
        raise DroverError(Reason.UNAUTHENTICATED, "there is no such environment key")

    @staticmethod
    def _key(**fields: Any) -> Any:
        made = keys_pb.CreateEnvironmentKeyResponse().environment_key
        made.MergeFrom(type(made)(id="envkey_1", environment_id="env_1", hint="abcd", **fields))
        made.created_at.CopyFrom(stamp())
        return made


class Works(Asked, work_service_pb2_grpc.WorkServiceServicer):
    """`items` are the work items that tokens open, by the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.items = {
            WORK_TOKEN: item("work_1", "env_1", "sesn_1"),
            OTHER_WORK_TOKEN: item("work_2", "env_1", "sesn_2"),
        }

    def stop(self, token: str) -> None:
        self.items[token].state = work_pb2.WORK_STATE_STOPPED

    async def AuthenticateWorkItem(self, request, context):
        self.note(request)
        for token, found in self.items.items():
            if _digest(token) == request.digest:
                return found
        raise DroverError(Reason.UNAUTHENTICATED, "there is no such token")

    async def GetWork(self, request, context):
        self.note(request)
        return work_api.GetWorkResponse(work=self._work())

    async def UpdateWork(self, request, context):
        self.note(request)
        return work_api.UpdateWorkResponse(work=self._work())

    async def ListWork(self, request, context):
        self.note(request)
        return work_api.ListWorkResponse(data=[self._work()])

    async def PollWork(self, request, context):
        self.note(request)
        return work_api.PollWorkResponse()

    async def AckWork(self, request, context):
        self.note(request)
        return work_api.AckWorkResponse(work=self._work())

    async def HeartbeatWork(self, request, context):
        self.note(request)
        return work_api.HeartbeatWorkResponse(last_heartbeat="1", lease_extended=True, state=3)

    async def GetWorkStats(self, request, context):
        self.note(request)
        return work_api.GetWorkStatsResponse(stats=work_pb2.WorkQueueStats(depth=1))

    async def StopWork(self, request, context):
        self.note(request)
        return work_api.StopWorkResponse(work=self._work())

    @staticmethod
    def _work() -> work_pb2.Work:
        made = work_pb2.Work(id="work_1", environment_id="env_1", state=3)
        made.data.session.id = "sesn_1"
        made.created_at.CopyFrom(stamp())
        return made


def item(work_id: str, environment_id: str, session_id: str) -> Any:
    """What a work item's token opens."""
    return work_api.AuthenticateWorkItemResponse(
        workspace_id="wrkspc_default",
        environment_id=environment_id,
        session_id=session_id,
        work_id=work_id,
        state=work_pb2.WORK_STATE_ACTIVE,
    )


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
