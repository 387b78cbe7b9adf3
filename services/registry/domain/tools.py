"""An agent's tools: the defaults of each entry, and what the entries may say together.

Settled tools are what is stored, answered and given to a session: every tool that has a config
says whether it is enabled and under which policy, so that nobody resolves defaults twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Never

from chassis.errors import DroverError, Reason
from drover.agent.v1.tool_pb2 import (
    PERMISSION_POLICY_TYPE_ALWAYS_ALLOW,
    PERMISSION_POLICY_TYPE_ALWAYS_ASK,
    AgentToolConfig,
    AgentToolset,
    CustomTool,
    McpToolConfig,
    McpToolset,
    PermissionPolicyType,
    Tool,
    ToolDefaults,
)
from services.registry.domain.input_schema import check_input_schema
from services.registry.domain.web_tools import FETCH, SEARCH, WEB_TOOLS, settle_web_config

BUILT_IN_TOOLS = ("bash", "read", "write", "edit", "glob", "grep", FETCH, SEARCH)
MAX_TOOLS = 256  # after expansion, SEMANTICS §4
_RESERVED_PREFIXES = ("mcp__", "ant__")
# What the harness offers by itself, to look back into the session's log.
_RESERVED = frozenset({"session_history"})
_TOOLSET = "agent_toolset_20260401"

# The tools that take each setting, SEMANTICS §2.
_SETTINGS = {
    "allowed_domains": WEB_TOOLS,
    "blocked_domains": WEB_TOOLS,
    "max_content_tokens": frozenset({"web_fetch"}),
    "url_sources": frozenset({"web_fetch"}),
    "user_location": frozenset({"web_search"}),
}


def settle_tools(tools: Iterable[Tool], path: str) -> None:
    """Fills in the defaults of every entry (SEMANTICS §1, §3) and checks the entries (§4).

    Raises INVALID_ARGUMENT naming a path below `path`.
    """
    tools = tuple(tools)
    customs = {tool.custom.name for tool in tools if tool.HasField("custom")}
    seen: set[tuple[str, str]] = set()
    count = 0
    for index, tool in enumerate(tools):
        here = f"{path}.{index}"
        kind = tool.WhichOneof("tool")
        if kind == "agent_toolset":
            _once(seen, ("toolset", ""), here, f"only one {_TOOLSET} is allowed")
            count += _settle_agent_toolset(tool.agent_toolset, customs, here)
        elif kind == "mcp_toolset":
            server = tool.mcp_toolset.mcp_server_name
            text = f"the tools of {server!r} are listed already"
            _once(seen, ("server", server), f"{here}.mcp_server_name", text)
            count += _settle_mcp_toolset(tool.mcp_toolset, here)
        else:
            name = tool.custom.name
            _once(seen, ("custom", name), f"{here}.name", f"{name!r} is the name of another tool")
            _check_custom(tool.custom, here)
            count += 1
    if count > MAX_TOOLS:
        _refuse(path, f"at most {MAX_TOOLS} tools are allowed, these are {count}")


def offers(tools: Iterable[Tool], name: str) -> bool:
    """Whether settled `tools` offer the built-in tool `name`."""
    for tool in tools:
        if tool.HasField("agent_toolset"):
            toolset = tool.agent_toolset
            of_its_own = [config.enabled for config in toolset.configs if config.name == name]
            return of_its_own[0] if of_its_own else toolset.default_config.enabled
    return False


def _settle_agent_toolset(toolset: AgentToolset, customs: Collection[str], path: str) -> int:
    """Settles the built-in tools; answers how many are enabled."""
    del toolset.web_tools[:]
    _settle_defaults(toolset.default_config, PERMISSION_POLICY_TYPE_ALWAYS_ALLOW)
    seen: set[tuple[str, str]] = set()
    for index, config in enumerate(toolset.configs):
        here = f"{path}.configs.{index}"
        _once(seen, ("name", config.name), f"{here}.name", f"{config.name!r} has a config already")
        if config.HasField("type") and config.type != config.name:
            _refuse(f"{here}.type", f"must be {config.name!r}, the tool's name")
        _check_settings(config, here)
        settle_web_config(config, customs, here)
        config.ClearField("given")
        config.type = config.name
        _settle_config(config, toolset.default_config)
    return sum(offers([Tool(agent_toolset=toolset)], name) for name in BUILT_IN_TOOLS)


def _settle_mcp_toolset(toolset: McpToolset, path: str) -> int:
    """Settles the tools of one server; answers how many are known to be enabled."""
    _settle_defaults(toolset.default_config, PERMISSION_POLICY_TYPE_ALWAYS_ASK)
    seen: set[tuple[str, str]] = set()
    for index, config in enumerate(toolset.configs):
        at = f"{path}.configs.{index}.name"
        _once(seen, ("name", config.name), at, f"{config.name!r} has a config already")
        _settle_config(config, toolset.default_config)
    return sum(config.enabled for config in toolset.configs)


def _settle_defaults(defaults: ToolDefaults, policy: PermissionPolicyType.ValueType) -> None:
    if not defaults.HasField("enabled"):
        defaults.enabled = True
    if not defaults.HasField("permission_policy"):
        defaults.permission_policy.type = policy


def _settle_config(config: AgentToolConfig | McpToolConfig, defaults: ToolDefaults) -> None:
    if not config.HasField("enabled"):
        config.enabled = defaults.enabled
    if not config.HasField("permission_policy"):
        config.permission_policy.CopyFrom(defaults.permission_policy)


def _check_settings(config: AgentToolConfig, path: str) -> None:
    for field, _ in config.ListFields():
        takers = _SETTINGS.get(field.name)
        if takers is not None and config.name not in takers:
            _refuse(f"{path}.{field.name}", f"is a setting of {' and '.join(sorted(takers))} only")


def _check_custom(tool: CustomTool, path: str) -> None:
    if tool.name in BUILT_IN_TOOLS:
        _refuse(f"{path}.name", f"{tool.name!r} is the name of a built-in tool")
    if tool.name in _RESERVED:
        _refuse(f"{path}.name", f"{tool.name!r} is reserved: it is a tool of the harness")
    for prefix in _RESERVED_PREFIXES:
        if tool.name.startswith(prefix):
            _refuse(f"{path}.name", f"must not start with {prefix!r}, which is reserved")
    check_input_schema(tool.input_schema, f"{path}.input_schema")


def _once(seen: set[tuple[str, str]], key: tuple[str, str], path: str, text: str) -> None:
    if key in seen:
        _refuse(path, text)
    seen.add(key)


def _refuse(path: str, text: str) -> Never:
    raise DroverError(Reason.INVALID_ARGUMENT, f"{path}: {text}")
