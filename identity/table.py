"""Which process may call which method of which: the one table that is asked.

A right is here because some process of Drover makes that call: none follows from a service as a
whole. (`Follow` and `HandOver` are here for brains of other makers, which drive hands as ours do.)
Beside this table every call needs the installation's secret, and the workspace that it names bounds
what it reaches.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet


class Caller(StrEnum):
    """Who a certificate can say that one is."""

    GATEWAY = "gateway"
    SESSION = "session"
    BRAIN = "brain"
    HANDS = "hands"
    VAULT_PROXY = "vault_proxy"
    REGISTRY = "registry"
    OPERATOR = "operator"
    """A person with the installation's own keys, by the commands of `drover`."""


EVERYONE: Final = frozenset(Caller)

GATEWAY: Final = Caller.GATEWAY
SESSION: Final = Caller.SESSION
BRAIN: Final = Caller.BRAIN
HANDS: Final = Caller.HANDS
VAULT_PROXY: Final = Caller.VAULT_PROXY
OPERATOR: Final = Caller.OPERATOR

PUBLIC: Final = frozenset({GATEWAY, OPERATOR})
"""What has a route of the HTTP API: the gateway calls it for clients, operators for themselves."""

TABLE: Final[Mapping[str, Mapping[str, AbstractSet[Caller]]]] = {
    "drover.about.v1.AboutService": {
        "GetAbout": {GATEWAY},
    },
    "drover.agent.v1.AgentService": {
        "CreateAgent": PUBLIC,
        "GetAgent": PUBLIC,
        "UpdateAgent": PUBLIC,
        "ListAgents": PUBLIC,
        "ArchiveAgent": PUBLIC,
        "ListAgentVersions": PUBLIC,
        "ResolveAgent": {SESSION},
        "ReviseSessionAgent": {SESSION},
    },
    "drover.brain.v1.BrainService": {
        "Wake": {SESSION},
    },
    "drover.environment.v1.EnvironmentKeyService": {
        "CreateEnvironmentKey": PUBLIC,
        "ListEnvironmentKeys": PUBLIC,
        "RevokeEnvironmentKey": PUBLIC,
        "AuthenticateEnvironmentKey": {GATEWAY},
    },
    "drover.environment.v1.EnvironmentService": {
        "CreateEnvironment": PUBLIC,
        "GetEnvironment": PUBLIC | {SESSION},
        "UpdateEnvironment": PUBLIC,
        "ListEnvironments": PUBLIC,
        "DeleteEnvironment": PUBLIC,
        "ArchiveEnvironment": PUBLIC,
    },
    "drover.file.v1.FileService": {
        "UploadFile": PUBLIC | {HANDS},
        "GetFile": PUBLIC,
        "ListFiles": PUBLIC | {SESSION, HANDS},
        "DeleteFile": PUBLIC | {SESSION},
        "DownloadFile": PUBLIC,
        "ReadFile": {BRAIN, HANDS},
        "CopyFiles": {SESSION},
        "DeleteSessionFiles": {SESSION},
        "ReopenSessionFiles": {SESSION},
    },
    "drover.hands.v1.HandsService": {
        "Provision": {BRAIN},
        "Execute": {BRAIN},
        "Follow": {BRAIN},
        "Cancel": {BRAIN},
        "Release": {SESSION},
        "HandOver": {BRAIN},
        "ListTools": {BRAIN},
    },
    "drover.key.v1.ApiKeyService": {
        "CreateApiKey": PUBLIC,
        "GetApiKey": PUBLIC,
        "ListApiKeys": PUBLIC,
        "RevokeApiKey": PUBLIC,
        "AuthenticateApiKey": {GATEWAY},
    },
    "drover.memory.v1.MemoryService": {
        "CreateMemory": PUBLIC | {HANDS},
        "GetMemory": PUBLIC,
        "UpdateMemory": PUBLIC | {HANDS},
        "ListMemories": PUBLIC,
        "DeleteMemory": PUBLIC | {HANDS},
        "FollowMemories": {HANDS},
    },
    "drover.memory.v1.MemoryStoreService": {
        "CreateMemoryStore": PUBLIC,
        "GetMemoryStore": PUBLIC | {SESSION},
        "UpdateMemoryStore": PUBLIC,
        "ListMemoryStores": PUBLIC,
        "DeleteMemoryStore": PUBLIC,
        "ArchiveMemoryStore": PUBLIC,
    },
    "drover.memory.v1.MemoryVersionService": {
        "GetMemoryVersion": PUBLIC,
        "ListMemoryVersions": PUBLIC,
        "RedactMemoryVersion": PUBLIC,
    },
    "drover.session.v1.CheckpointService": {
        "SaveCheckpoint": {BRAIN},
    },
    "drover.session.v1.OperationsService": {
        "ListActiveSessions": PUBLIC,
    },
    "drover.session.v1.ResourceService": {
        "ListSessionResources": PUBLIC,
        "GetSessionResource": PUBLIC,
        "UpdateSessionResource": PUBLIC,
        "AddSessionResource": PUBLIC,
        "DeleteSessionResource": PUBLIC,
    },
    "drover.session.v1.SessionService": {
        "CreateSession": PUBLIC,
        "GetSession": PUBLIC | {BRAIN, VAULT_PROXY},
        "UpdateSession": PUBLIC,
        "ListSessions": PUBLIC,
        "DeleteSession": PUBLIC,
        "ArchiveSession": PUBLIC,
        "ForkSession": PUBLIC,
        "GetEvents": PUBLIC | {BRAIN},
        "EmitEvents": PUBLIC,
        "StreamEvents": PUBLIC,
        "GetThread": PUBLIC,
        "ListThreads": PUBLIC,
        "GetThreadEvents": PUBLIC,
        "StreamThreadEvents": PUBLIC,
        "ExportSession": {OPERATOR},
        "ImportSession": {OPERATOR},
        "HoldLease": {BRAIN},
    },
    "drover.skill.v1.SkillService": {
        "CreateSkill": PUBLIC,
        "GetSkill": PUBLIC,
        "ListSkills": PUBLIC,
        "DeleteSkill": PUBLIC,
    },
    "drover.skill.v1.SkillVersionService": {
        "CreateSkillVersion": PUBLIC,
        "GetSkillVersion": PUBLIC,
        "ListSkillVersions": PUBLIC,
        "DeleteSkillVersion": PUBLIC,
        "DownloadSkillVersion": PUBLIC | {HANDS},
    },
    "drover.vault.v1.CredentialProxyService": {
        "GetHoldings": {OPERATOR},
        "OpenGrant": {HANDS},
        "RevokeGrants": {HANDS},
        "ListTools": {HANDS},
        "Call": {HANDS},
        "Fetch": {HANDS},
        "Search": {HANDS},
    },
    "drover.vault.v1.VaultAuditService": {
        "ListVaultAudit": PUBLIC,
    },
    "drover.vault.v1.VaultCredentialService": {
        "CreateCredential": PUBLIC,
        "GetCredential": PUBLIC,
        "UpdateCredential": PUBLIC,
        "ListCredentials": PUBLIC,
        "DeleteCredential": PUBLIC,
        "ArchiveCredential": PUBLIC,
        "ValidateCredential": PUBLIC,
    },
    "drover.vault.v1.VaultKeyService": {
        "RotateKeys": {OPERATOR},
        "GetKeys": {OPERATOR},
    },
    "drover.vault.v1.VaultService": {
        "CreateVault": PUBLIC,
        "GetVault": PUBLIC,
        "UpdateVault": PUBLIC,
        "ListVaults": PUBLIC,
        "DeleteVault": PUBLIC,
        "ArchiveVault": PUBLIC,
        "CheckVaults": {SESSION},
        "PutSessionSecret": {SESSION},
        "CopySessionSecrets": {SESSION},
        "ForgetSession": {SESSION},
    },
    "drover.work.v1.WorkService": {
        "GetWork": PUBLIC,
        "UpdateWork": PUBLIC,
        "ListWork": PUBLIC,
        "PollWork": PUBLIC,
        "AckWork": PUBLIC,
        "HeartbeatWork": PUBLIC,
        "GetWorkStats": PUBLIC,
        "StopWork": PUBLIC,
        "AuthenticateWorkItem": {GATEWAY},
    },
    "grpc.health.v1.Health": {
        "Check": EVERYONE,
        "List": EVERYONE,
        "Watch": EVERYONE,
    },
    "grpc.reflection.v1alpha.ServerReflection": {
        "ServerReflectionInfo": EVERYONE,  # the contract is no secret
    },
}
"""Of every service and method that a process of Drover serves, who may call it."""


def callers(method: str) -> AbstractSet[Caller]:
    """Who may call a method, named as gRPC does: `/package.Service/Method`.

    One that the table does not know is nobody's.
    """
    root, _, path = method.partition("/")
    service, _, name = path.partition("/")
    return frozenset() if root else TABLE.get(service, {}).get(name, frozenset())


def may_call(caller: str, method: str) -> bool:
    """Whether a process may call a method, named as `callers` takes it."""
    return caller in callers(method)
