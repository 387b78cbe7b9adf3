"""Whether a tool call may run: the agent's permission policies (SEMANTICS §3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from drover.agent.v1.tool_pb2 import (
    PERMISSION_POLICY_TYPE_ALWAYS_ALLOW,
    PERMISSION_POLICY_TYPE_ALWAYS_ASK,
    PERMISSION_POLICY_TYPE_AUTO,
    PERMISSION_POLICY_TYPE_UNSPECIFIED,
)
from drover.event.v1.agent_event_pb2 import (
    AlwaysAllowEvaluation,
    AlwaysAskEvaluation,
    AutoAsk,
    AutoEvaluation,
    AutoPermission,
    ToolEvaluation,
)
from services.brain.domain.context import HISTORY_TOOL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drover.agent.v1.tool_pb2 import AgentToolset, PermissionPolicy, Tool

SANDBOX_TOOLS: Final = ("bash", "read", "write", "edit", "glob", "grep")
"""The built-in tools that run in a hand, in the order in which the model is told of them."""

WEB_TOOLS: Final = ("web_fetch", "web_search")
"""The built-in tools that show the web: no sandbox runs them, and no worker."""

BUILT_IN: Final = (*SANDBOX_TOOLS, *WEB_TOOLS, HISTORY_TOOL)
"""Names that mean a tool of the harness, whether the agent has it or not."""

INDETERMINATE: Final = "indeterminate"
"""The reason code of a call that could not be judged either way (EVENTS §3.1)."""


class Permission(Enum):
    """What the agent's definition says of a tool that the model called."""

    ALLOW = "allow"
    ASK = "ask"
    # The harness judges each call; until it has, a person is asked.
    AUTO = "auto"
    # The client runs it; no policy applies.
    CUSTOM = "custom"
    # Known, but not enabled.
    DISABLED = "disabled"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Remote:
    """A tool of an MCP server, by the server's own name of it."""

    server: str
    tool: str


@dataclass(frozen=True, slots=True)
class Permissions:
    """The permission of every tool that an agent has.

    `remote` says which of the names are those of an MCP server's tools.
    """

    by_name: dict[str, Permission]
    remote: dict[str, Remote] = field(default_factory=dict)

    def of(self, name: str) -> Permission:
        """The permission of a call to `name`, whatever the model meant by it."""
        permission = self.by_name.get(name)
        if permission is not None:
            return permission
        if name in SANDBOX_TOOLS or name in WEB_TOOLS:
            return Permission.DISABLED
        return Permission.UNKNOWN

    @property
    def offered(self) -> tuple[str, ...]:
        """The sandbox tools that the model is told of."""
        runnable = (Permission.ALLOW, Permission.ASK, Permission.AUTO)
        return tuple(name for name in SANDBOX_TOOLS if self.by_name.get(name) in runnable)

    @property
    def web(self) -> tuple[str, ...]:
        """The web tools that the model is told of."""
        runnable = (Permission.ALLOW, Permission.ASK, Permission.AUTO)
        return tuple(name for name in WEB_TOOLS if self.by_name.get(name) in runnable)

    @property
    def history(self) -> bool:
        """Whether the model may look into the session's log."""
        return self.by_name.get(HISTORY_TOOL) is Permission.ALLOW


def evaluate(tools: Iterable[Tool], *, history: bool = False) -> Permissions:
    """The permissions that an agent's `tools` give; with `history` it may look into its log."""
    by_name: dict[str, Permission] = {}
    for tool in tools:
        match tool.WhichOneof("tool"):
            case "agent_toolset":
                by_name.update(_toolset(tool.agent_toolset))
            case "custom":
                by_name[tool.custom.name] = Permission.CUSTOM
            case _:
                pass
    if history:
        by_name.setdefault(HISTORY_TOOL, Permission.ALLOW)
    return Permissions(by_name)


def evaluation(permission: Permission) -> ToolEvaluation | None:
    """The policy that decided, for the call's event; None where none was reached (EVENTS §3.1)."""
    match permission:
        case Permission.ALLOW:
            return ToolEvaluation(always_allow=AlwaysAllowEvaluation())
        case Permission.ASK:
            return ToolEvaluation(always_ask=AlwaysAskEvaluation())
        case Permission.AUTO:
            undecided = AutoPermission(ask=AutoAsk(reason_code=INDETERMINATE))
            return ToolEvaluation(auto=AutoEvaluation(evaluated_permission=undecided))
        case _:
            return None


def _toolset(toolset: AgentToolset) -> dict[str, Permission]:
    defaults = toolset.default_config
    enabled = defaults.enabled if defaults.HasField("enabled") else True
    default = of_policy(defaults.permission_policy, Permission.ALLOW)
    by_name = dict.fromkeys(SANDBOX_TOOLS, default if enabled else Permission.DISABLED)
    # Settled with the session's copy of its agent: those that are not enabled are not among them.
    by_name.update((name, default) for name in WEB_TOOLS if name in toolset.web_tools)
    for config in toolset.configs:
        if config.name not in by_name:
            continue
        if config.enabled if config.HasField("enabled") else enabled:
            by_name[config.name] = of_policy(config.permission_policy, default)
        else:
            by_name[config.name] = Permission.DISABLED
    return by_name


def of_policy(policy: PermissionPolicy, default: Permission) -> Permission:
    """What a policy comes to; `default` where it says nothing."""
    match policy.type:
        case t if t == PERMISSION_POLICY_TYPE_ALWAYS_ALLOW:
            return Permission.ALLOW
        case t if t == PERMISSION_POLICY_TYPE_ALWAYS_ASK:
            return Permission.ASK
        case t if t == PERMISSION_POLICY_TYPE_AUTO:
            return Permission.AUTO
        case t if t == PERMISSION_POLICY_TYPE_UNSPECIFIED:
            return default
        case _:
            # A policy that this release does not know must not let a call through.
            return Permission.ASK
