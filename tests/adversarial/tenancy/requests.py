"""A request to every method that names something of a workspace, right in all else.

The ids stand in it by name; whose they are is for the tests to say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tests.adversarial.tenancy.asking import Ask
from tests.e2e.driving import MODEL, TOOLSET, user_message
from tests.e2e.skills import skill_md

BEARER: Final = {"type": "static_bearer", "mcp_server_url": "https://a.example", "token": "t"}
REPOSITORY: Final = {
    "type": "github_repository",
    "url": "https://github.com/o/r",
    "authorization_token": "ghp_secret",
}
PRIVATE: Final = "private"
"""What whatever has a content has in it."""

SUMS: Final = ({"file": {"path": "sums/SKILL.md", "data": skill_md("sums", PRIVATE).encode()}},)
FILE: Final = ({"data": PRIVATE.encode()},)
SHOWN: Final = {
    "type": "user.message",
    "content": [{"type": "document", "source": {"type": "file", "file_id": "{file_id}"}}],
}
SESSION: Final[Mapping[str, Any]] = {"agent": "{agent_id}", "environment_id": "{environment_id}"}
AGENT: Final = {"name": "clerk", "model": MODEL, "tools": [TOOLSET]}
FARM: Final = {"environment_id": "farm_id"}
CUSTOM: Final = {"type": "custom", "skill_id": "{skill_id}"}
GENERATION: Final = 7
_CALL: Final = {"sessionId": "{session_id}", "generation": GENERATION}
_BASH: Final = {"callId": "sevt_forged", "name": "bash", "input": '{"command": "touch forged"}'}
_GRANT: Final = {"grant": "{grant}"}
_CHECKPOINT: Final = {"format": {"harness": "h", "version": "1"}, "seq": 1, "data": "AAAA"}


def _given(**resource: str) -> Mapping[str, Any]:
    return {**SESSION, "resources": [resource]}


PUBLIC: Final = (
    Ask("AgentService.CreateAgent", {**AGENT, "skills": [CUSTOM]}),
    Ask("AgentService.GetAgent"),
    Ask("AgentService.GetAgent", query="version=1"),
    Ask("AgentService.UpdateAgent", {"name": "renamed"}),
    Ask("AgentService.UpdateAgent", {"version": 1, "skills": [CUSTOM]}),
    Ask("AgentService.ListAgents"),
    Ask("AgentService.ArchiveAgent"),
    Ask("AgentService.ListAgentVersions"),
    Ask("EnvironmentService.CreateEnvironment", {"name": "another"}),
    Ask("EnvironmentService.GetEnvironment"),
    Ask("EnvironmentService.UpdateEnvironment", {"name": "renamed"}),
    Ask("EnvironmentService.ListEnvironments"),
    Ask("EnvironmentService.DeleteEnvironment"),
    Ask("EnvironmentService.ArchiveEnvironment"),
    Ask("EnvironmentKeyService.CreateEnvironmentKey", {"name": "k"}, at=FARM),
    Ask("EnvironmentKeyService.ListEnvironmentKeys", at=FARM),
    Ask("EnvironmentKeyService.RevokeEnvironmentKey", at=FARM),
    Ask("FileService.UploadFile", pieces=FILE),
    Ask("FileService.GetFile"),
    Ask("FileService.ListFiles"),
    Ask("FileService.ListFiles", query="ids={file_id}"),
    Ask("FileService.ListFiles", query="scope_id={session_id}"),
    Ask("FileService.DeleteFile"),
    Ask("FileService.DownloadFile", at={"file_id": "output_id"}),
    Ask("SkillService.CreateSkill", pieces=SUMS),
    Ask("SkillService.GetSkill"),
    Ask("SkillService.ListSkills"),
    Ask("SkillService.DeleteSkill"),
    Ask("SkillVersionService.CreateSkillVersion", pieces=SUMS),
    Ask("SkillVersionService.GetSkillVersion"),
    Ask("SkillVersionService.ListSkillVersions"),
    Ask("SkillVersionService.DeleteSkillVersion"),
    Ask("SkillVersionService.DownloadSkillVersion"),
    Ask("MemoryStoreService.CreateMemoryStore", {"name": "Notes"}),
    Ask("MemoryStoreService.GetMemoryStore"),
    Ask("MemoryStoreService.UpdateMemoryStore", {"name": "renamed"}),
    Ask("MemoryStoreService.ListMemoryStores"),
    Ask("MemoryStoreService.DeleteMemoryStore"),
    Ask("MemoryStoreService.ArchiveMemoryStore"),
    Ask("MemoryService.CreateMemory", {"path": "/forged.md", "content": "x"}),
    Ask("MemoryService.GetMemory", query="view=full"),
    Ask("MemoryService.UpdateMemory", {"content": "forged"}),
    Ask("MemoryService.ListMemories", query="view=full"),
    Ask("MemoryService.DeleteMemory"),
    Ask("MemoryVersionService.GetMemoryVersion", query="view=full"),
    Ask("MemoryVersionService.ListMemoryVersions"),
    Ask("MemoryVersionService.ListMemoryVersions", query="memory_id={memory_id}"),
    Ask("MemoryVersionService.ListMemoryVersions", query="session_id={session_id}"),
    Ask("MemoryVersionService.RedactMemoryVersion"),
    Ask("SessionService.CreateSession", SESSION),
    Ask("SessionService.CreateSession", {**SESSION, "vault_ids": ["{vault_id}"]}),
    Ask("SessionService.CreateSession", _given(type="file", file_id="{file_id}")),
    Ask(
        "SessionService.CreateSession",
        _given(type="memory_store", memory_store_id="{memory_store_id}"),
    ),
    Ask(
        "SessionService.CreateSession",
        {
            **SESSION,
            "agent": {
                "type": "agent_with_overrides",
                "id": "{agent_id}",
                "skills": [{**CUSTOM, "version": "{version}"}],
            },
        },
    ),
    Ask("SessionService.CreateSession", {**SESSION, "initial_events": [SHOWN]}),
    Ask("SessionService.GetSession"),
    Ask("SessionService.UpdateSession", {"title": "renamed"}),
    Ask("SessionService.ListSessions"),
    Ask("SessionService.ListSessions", query="agent_id={agent_id}"),
    Ask("SessionService.ListSessions", query="memory_store_id={memory_store_id}"),
    Ask("SessionService.DeleteSession"),
    Ask("SessionService.ArchiveSession"),
    Ask("SessionService.ForkSession", {}),
    Ask("SessionService.ForkSession", {"event_id": "{event_id}"}),
    Ask("SessionService.GetEvents"),
    Ask("SessionService.EmitEvents", {"events": [user_message("forged")]}),
    Ask("SessionService.EmitEvents", {"events": [SHOWN]}),
    Ask(
        "SessionService.EmitEvents",
        {"events": [{"type": "user.interrupt", "session_thread_id": "{thread_id}"}]},
    ),
    Ask("SessionService.StreamEvents"),
    Ask("SessionService.GetThread"),
    Ask("SessionService.ListThreads"),
    Ask("SessionService.GetThreadEvents"),
    Ask("SessionService.StreamThreadEvents"),
    Ask("ResourceService.ListSessionResources"),
    Ask("ResourceService.GetSessionResource"),
    Ask(
        "ResourceService.UpdateSessionResource",
        {"authorization_token": "ghp_forged"},
        at={"resource_id": "repository_id"},
    ),
    Ask(
        "ResourceService.AddSessionResource",
        {
            "type": "file",
            "file_id": "{file_id}",
            "mount_path": "/mnt/session/uploads/again.txt",
        },
    ),
    Ask("ResourceService.DeleteSessionResource"),
    Ask("WorkService.GetWork", at=FARM),
    Ask("WorkService.UpdateWork", {"metadata": {"k": "forged"}}, at=FARM),
    Ask("WorkService.ListWork", at=FARM),
    Ask("WorkService.PollWork", at=FARM),
    Ask("WorkService.AckWork", at=FARM),
    Ask("WorkService.HeartbeatWork", at=FARM),
    Ask("WorkService.GetWorkStats", at=FARM),
    Ask("WorkService.StopWork", {"force": True}, at=FARM),
    Ask("VaultService.CreateVault", {"display_name": "Ada"}),
    Ask("VaultService.GetVault"),
    Ask("VaultService.UpdateVault", {"display_name": "renamed"}),
    Ask("VaultService.ListVaults"),
    Ask("VaultService.DeleteVault"),
    Ask("VaultService.ArchiveVault"),
    Ask(
        "VaultCredentialService.CreateCredential",
        {"auth": BEARER | {"mcp_server_url": "https://c.example"}},
    ),
    Ask("VaultCredentialService.GetCredential"),
    Ask("VaultCredentialService.UpdateCredential", {"display_name": "renamed"}),
    Ask("VaultCredentialService.ListCredentials"),
    Ask("VaultCredentialService.DeleteCredential"),
    Ask("VaultCredentialService.ArchiveCredential"),
    Ask("VaultCredentialService.ValidateCredential"),
    Ask("ApiKeyService.CreateApiKey", {"scopes": ["read"]}),
    Ask("ApiKeyService.GetApiKey"),
    Ask("ApiKeyService.ListApiKeys"),
    Ask("ApiKeyService.RevokeApiKey"),
    Ask("OperationsService.ListActiveSessions"),
    Ask("VaultAuditService.ListVaultAudit"),
    Ask("VaultAuditService.ListVaultAudit", query="vault_id={vault_id}"),
    Ask("VaultAuditService.ListVaultAudit", query="credential_id={credential_id}"),
    Ask("VaultAuditService.ListVaultAudit", query="session_id={session_id}"),
)
"""What clients ask, and operators."""

INTERNAL: Final = (
    Ask("AgentService.ResolveAgent", {"selection": {"agent": {"id": "{agent_id}"}}}),
    Ask("BrainService.Wake", {"sessionId": "{session_id}"}),
    Ask("CheckpointService.SaveCheckpoint", {**_CALL, "checkpoint": _CHECKPOINT}),
    Ask("CredentialProxyService.OpenGrant", {"sessionId": "{session_id}", "handId": "h"}),
    Ask("CredentialProxyService.RevokeGrants", {"sessionId": "{session_id}"}),
    Ask("CredentialProxyService.ListTools", {**_GRANT, "mcpServerName": "s"}),
    Ask(
        "CredentialProxyService.Call",
        {**_GRANT, "mcpServerName": "s", "tool": "t", "callId": "c"},
    ),
    Ask("CredentialProxyService.Fetch", {**_GRANT, "url": "https://a.example", "callId": "c"}),
    Ask("CredentialProxyService.Search", {**_GRANT, "query": "sums", "callId": "c"}),
    Ask(
        "FileService.CopyFiles",
        {
            "sessionId": "{session_id}",
            "copies": [{"fileId": "{file_id}", "copyId": "{copy_id}"}],
        },
    ),
    Ask("FileService.DeleteSessionFiles", {"sessionId": "{session_id}"}),
    Ask("FileService.ReopenSessionFiles", {"sessionId": "{session_id}"}),
    Ask("FileService.ReadFile", {"fileId": "{file_id}"}),
    Ask("MemoryService.FollowMemories", {"stores": [{"memoryStoreId": "{memory_store_id}"}]}),
    Ask("SessionService.ExportSession", {"sessionId": "{session_id}"}),
    Ask(
        "SessionService.HoldLease",
        {"requests": [{"open": {"sessionId": "{session_id}", "holder": "forged"}}]},
    ),
    Ask("VaultService.CheckVaults", {"vaultIds": ["{vault_id}"]}),
    Ask(
        "VaultService.PutSessionSecret",
        {"sessionId": "{session_id}", "resourceId": "{repository_id}", "value": "forged"},
    ),
    Ask(
        "VaultService.CopySessionSecrets",
        {
            "sessionId": "{session_id}",
            "toSessionId": "{farm_session_id}",
            "resourceIds": ["{repository_id}"],
        },
    ),
    Ask("VaultService.ForgetSession", {"sessionId": "{session_id}"}),
)
"""What services ask each other, where what is unknown is refused, or nothing is done."""

HANDS: Final = (
    Ask("HandsService.Provision", _CALL),
    Ask("HandsService.Execute", {**_CALL, **_BASH}),
    Ask("HandsService.Follow", {"call": {**_CALL, **_BASH}}),
    Ask("HandsService.Cancel", {**_CALL, "callIds": ["sevt_forged"]}),
    Ask("HandsService.ListTools", {**_CALL, "mcpServerNames": ["s"]}),
    Ask("HandsService.HandOver", {**_CALL, "hand": "build", "toSessionId": "{farm_session_id}"}),
    Ask("HandsService.Release", {"sessionId": "{session_id}", "generation": GENERATION}),
    Ask("HandsService.Release", {"sessionId": "{session_id}", "hand": "build", "generation": 9}),
    Ask("HandsService.Release", {"sessionId": "{session_id}", "purge": True}),
)
"""What is asked of hands, which know of a session what they were told first."""

BROUGHT: Final = tuple(
    Ask(
        "HandsService.Execute",
        {
            "sessionId": "{farm_session_id}",
            "hand": "{copy_id}",  # one that is new each time
            "callId": "{copy_id}",
            "name": "bash",
            "input": json.dumps({"command": f"cat {where}/*"}),
            "mounts": given,
        },
    )
    for where, given in (
        (
            "/mnt/session/uploads",
            {"files": [{"fileId": "{file_id}", "mountPath": "/mnt/session/uploads/a.txt"}]},
        ),
        (
            "/mnt/skills/sums",
            {"skills": [{"skillId": "{skill_id}", "version": "{version}", "directory": "sums"}]},
        ),
        (
            "/mnt/memory/a",
            {
                "memoryStores": [
                    {"memoryStoreId": "{memory_store_id}", "mountPath": "/mnt/memory/a"}
                ]
            },
        ),
    )
)
"""What is brought into a hand, and read there: it is looked up for the session's workspace."""

OF_NO_WORKSPACE: Final = {
    "AboutService.GetAbout": "says what a process is",
    "AgentService.ReviseSessionAgent": "reads nothing",
    "ApiKeyService.AuthenticateApiKey": "says whose a key is",
    "CredentialProxyService.GetHoldings": "counts for the operator",
    "EnvironmentKeyService.AuthenticateEnvironmentKey": "says whose a key is",
    "SessionService.ImportSession": "makes what it is given, and takes the place of nothing",
    "VaultKeyService.GetKeys": "the installation's keys",
    "VaultKeyService.RotateKeys": "the installation's keys",
    "WorkService.AuthenticateWorkItem": "says whose a token is",
}

QUIET: Final = frozenset(
    {
        "CredentialProxyService.RevokeGrants",
        "FileService.DeleteSessionFiles",
        "FileService.ListFiles",
        "FileService.ReopenSessionFiles",
        "HandsService.Release",
        "MemoryService.FollowMemories",
        "MemoryVersionService.ListMemoryVersions",
        "SessionService.ListSessions",
        "VaultAuditService.ListVaultAudit",
        "VaultService.CopySessionSecrets",
        "VaultService.ForgetSession",
        "VaultService.PutSessionSecret",
        "WorkService.ListWork",
        "WorkService.PollWork",
    }
)
"""What answers that there is nothing, or does nothing, where others say NOT_FOUND."""

QUEUES: Final = frozenset({"WorkService.ListWork", "WorkService.PollWork"})
"""Those of them that say so of an environment, too: the gateway knows whose it is."""

OTHERWISE: Final = {
    ("FileService.CopyFiles", "session_id"): "OK",
    ("SessionService.ForkSession", "event_id"): "INVALID_ARGUMENT",
    ("SessionService.EmitEvents", "thread_id"): "INVALID_ARGUMENT",
    ("CredentialProxyService.Call", "grant"): "PERMISSION_DENIED",
    ("CredentialProxyService.Fetch", "grant"): "PERMISSION_DENIED",
    ("CredentialProxyService.ListTools", "grant"): "PERMISSION_DENIED",
    ("CredentialProxyService.Search", "grant"): "PERMISSION_DENIED",
}
"""How else it is answered when one thing is named: all the same as what is not there."""

FOUND: Final = {
    "BrainService.Wake": ("OK FAILED_PRECONDITION", ""),  # one may be at work
    "CheckpointService.SaveCheckpoint": ("FAILED_PRECONDITION", "does not hold the session"),
    "CredentialProxyService.Call": ("NOT_FOUND", "the session has no MCP server"),
    "CredentialProxyService.ListTools": ("NOT_FOUND", "the session has no MCP server"),
    "VaultCredentialService.ValidateCredential": ("INVALID_ARGUMENT", "of the type mcp_oauth"),
}
"""With which statuses, and words, it is answered that is the caller's own, and was found."""
