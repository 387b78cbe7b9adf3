"""One of everything that a workspace can have, and two of what lists show page by page."""

from __future__ import annotations

import base64
import json
import secrets
from typing import TYPE_CHECKING, Any, Final

from tests.adversarial.tenancy import requests
from tests.adversarial.tenancy.asking import Ask, Ids, Services
from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import user_message

if TYPE_CHECKING:
    from tests.e2e.stack import Stack

LEAVE: Final = "mkdir -p /mnt/session/outputs; echo made > /mnt/session/outputs/made.txt"


class Tenant:
    """A workspace that has one of everything, by `ids`, and who calls for it, by `keys`."""

    def __init__(self, stack: Stack, services: Services, workspace: str) -> None:
        self.stack = stack
        self.services = services
        self.workspace = workspace
        self.ids: Ids = {}
        self.keys: dict[str, str] = {}

    def must(self, method: str, body: Any = None, **more: Any) -> Any:
        """What a method answers, which must not refuse."""
        told = self.services.ask(self.workspace, Ask(method, body, **more), self.ids)
        assert told.status == "OK", (method, told)
        return told.message

    def make(self) -> None:
        """Makes everything."""
        for _ in range(2):
            self._make_definitions()
            self._make_memories()
            self._make_vaults()
        self._make_session()
        self._make_work()

    def _make_definitions(self) -> None:
        ids, must = self.ids, self.must
        key = must("ApiKeyService.CreateApiKey", {"scopes": ["write"]}).api_key
        ids["api_key_id"], self.keys["api"] = key.id, key.key
        ids["skill_id"] = must("SkillService.CreateSkill", pieces=requests.SUMS).skill.id
        made = must("SkillVersionService.CreateSkillVersion", pieces=requests.SUMS)
        ids["version"] = made.version.id
        agent = {**requests.AGENT, "skills": [requests.CUSTOM]}
        ids["agent_id"] = must("AgentService.CreateAgent", agent).agent.id
        for name, config in (("environment_id", "cloud"), ("farm_id", "self_hosted")):
            body = {"name": secrets.token_hex(8), "config": {"type": config}}
            ids[name] = must("EnvironmentService.CreateEnvironment", body).environment.id
        for _ in range(2):
            made = must("EnvironmentKeyService.CreateEnvironmentKey", {}, at=requests.FARM)
        ids["key_id"], self.keys["environment"] = made.environment_key.id, made.environment_key.key
        ids["file_id"] = must("FileService.UploadFile", pieces=requests.FILE).file.id
        ids["copy_id"] = invented("file_01" + "0" * 20)

    def _make_memories(self) -> None:
        ids, must = self.ids, self.must
        store = must("MemoryStoreService.CreateMemoryStore", {"name": "Notes"}).memory_store
        ids["memory_store_id"] = store.id
        for path in ("/a.md", "/b.md"):
            written = {"path": path, "content": requests.PRIVATE}
            ids["memory_id"] = must("MemoryService.CreateMemory", written).memory.id
        must("MemoryService.UpdateMemory", {"content": f"more that is {requests.PRIVATE}"})
        of_it = "memory_id={memory_id}"
        versions = must("MemoryVersionService.ListMemoryVersions", query=of_it).data
        ids["memory_version_id"] = versions[-1].id

    def _make_vaults(self) -> None:
        ids, must = self.ids, self.must
        ids["vault_id"] = must("VaultService.CreateVault", {"display_name": "Ada"}).vault.id
        for host in ("a", "b"):
            auth = requests.BEARER | {"mcp_server_url": f"https://{host}.example"}
            made = must("VaultCredentialService.CreateCredential", {"auth": auth})
            ids["credential_id"] = made.credential.id

    def _make_session(self) -> None:
        ids, must = self.ids, self.must
        resources = [
            {"type": "file", "file_id": "{file_id}"},
            {"type": "memory_store", "memory_store_id": "{memory_store_id}"},
            requests.REPOSITORY,
        ]
        body = {**requests.SESSION, "vault_ids": ["{vault_id}"], "resources": resources}
        session = must("SessionService.CreateSession", body).session
        ids["session_id"] = session.id
        kinds = {one.WhichOneof("resource"): one for one in session.resources}
        ids["resource_id"] = kinds["file"].file.id
        ids["repository_id"] = kinds["github_repository"].github_repository.id
        must("HandsService.Provision", {"sessionId": "{session_id}", "hand": "build"})
        self.turn(LEAVE)
        ids["thread_id"] = must("SessionService.ListThreads").data[0].id
        ids["event_id"] = must("SessionService.GetEvents").data[-1].id

        def output() -> str:
            listed = must("FileService.ListFiles", query="scope_id={session_id}").data
            return next((file.id for file in listed if file.filename == "made.txt"), "")

        self.stack.wait_for(output, "the session's output")
        ids["output_id"] = output()
        self.open_grant()

    def _make_work(self) -> None:
        """Two items of work, of which a worker holds one."""
        ids, must = self.ids, self.must
        farm = {**requests.SESSION, "environment_id": "{farm_id}"}
        self.stack.model.script(*(tools(ToolUse("bash", {"command": "true"})) for _ in range(2)))
        for _ in range(2):
            ids["farm_session_id"] = must("SessionService.CreateSession", farm).session.id
            where = {"session_id": "farm_session_id"}
            must("SessionService.EmitEvents", {"events": [user_message("work")]}, at=where)

        must("HandsService.Provision", {"sessionId": "{farm_session_id}", "hand": "build"})

        def both() -> bool:
            return len(must("WorkService.ListWork", at=requests.FARM).data) == 2

        self.stack.wait_for(both, "two items of work")
        # The next script is for others.
        self.stack.wait_for(lambda: not self.stack.model.pending, "the calls of both")
        work = must("WorkService.PollWork", at=requests.FARM).work
        ids["work_id"] = work.id
        secret = base64.urlsafe_b64decode(work.secret + "=" * (-len(work.secret) % 4))
        self.keys["work"] = json.loads(secret)["sessions_token"]

    def open_grant(self) -> None:
        """What the session's hand shows the vault proxy."""
        asked = {"sessionId": "{session_id}", "handId": "h"}
        self.ids["grant"] = self.must("CredentialProxyService.OpenGrant", asked).grant

    def let_go(self) -> None:
        """Ends its sandboxes."""
        for name in ("session_id", "farm_session_id"):
            self.must("HandsService.Release", {"sessionId": f"{{{name}}}"})

    def turn(self, command: str) -> str:
        """What a command prints that the session runs in one turn."""
        self.stack.model.script(tools(ToolUse("bash", {"command": command})), text("done"))
        events = {"events": [user_message("work")]}
        sent = self.must("SessionService.EmitEvents", events).data[0].id
        log: list[Any] = []

        def over() -> bool:
            log[:] = self.must("SessionService.GetEvents").data
            ended = log[-1].WhichOneof("payload") == "session_status_idle"
            return ended and sent in {event.id for event in log}

        self.stack.wait_for(over, "the end of the turn")
        results = [one.agent_tool_result for one in log if one.HasField("agent_tool_result")]
        return "".join(block.text.text for block in results[-1].content)


def invented(known: str) -> str:
    """An id, or what else one is known by, of the same form and of nothing that is there."""
    size = min(12, len(known) // 2)
    return known[:-size] + secrets.token_hex(size)[:size]
