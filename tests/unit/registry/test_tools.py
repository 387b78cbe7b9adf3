from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from drover.agent.v1.tool_pb2 import (
    PERMISSION_POLICY_TYPE_ALWAYS_ALLOW,
    PERMISSION_POLICY_TYPE_ALWAYS_ASK,
    AgentToolConfig,
    McpToolConfig,
    McpToolset,
    PermissionPolicy,
    Tool,
    ToolDefaults,
)
from services.registry.domain.tools import offers, settle_tools
from tests.unit.registry.definitions import custom, mcp, toolset

ASK = PermissionPolicy(type=PERMISSION_POLICY_TYPE_ALWAYS_ASK)
ALLOW = PermissionPolicy(type=PERMISSION_POLICY_TYPE_ALWAYS_ALLOW)


def refusal(*tools: Tool) -> str:
    with pytest.raises(DroverError) as refused:
        settle_tools(tools, "tools")
    assert refused.value.reason is Reason.INVALID_ARGUMENT
    return refused.value.message


def test_built_in_tools_are_enabled_and_allowed_by_default() -> None:
    tool = toolset()
    settle_tools([tool], "tools")
    assert tool.agent_toolset.default_config == ToolDefaults(enabled=True, permission_policy=ALLOW)


def test_mcp_tools_are_enabled_and_ask_by_default() -> None:
    tool = mcp("files")
    settle_tools([tool], "tools")
    assert tool.mcp_toolset.default_config == ToolDefaults(enabled=True, permission_policy=ASK)


def test_a_config_takes_what_it_leaves_out_from_the_toolsets_defaults() -> None:
    tool = toolset(
        AgentToolConfig(name="bash"),
        AgentToolConfig(name="read", enabled=True, permission_policy=ALLOW),
        defaults=ToolDefaults(enabled=False, permission_policy=ASK),
    )
    settle_tools([tool], "tools")
    bash, read = tool.agent_toolset.configs
    assert bash == AgentToolConfig(name="bash", type="bash", enabled=False, permission_policy=ASK)
    assert read == AgentToolConfig(name="read", type="read", enabled=True, permission_policy=ALLOW)


def test_settling_twice_changes_nothing() -> None:
    tools = [toolset(AgentToolConfig(name="bash")), custom("look_up"), mcp("files")]
    settle_tools(tools, "tools")
    before = [tool.SerializeToString() for tool in tools]
    settle_tools(tools, "tools")
    assert [tool.SerializeToString() for tool in tools] == before


def test_a_tool_is_offered_by_its_config_or_else_by_the_defaults() -> None:
    tools = [
        custom("look_up"),
        toolset(AgentToolConfig(name="read", enabled=False)),
    ]
    settle_tools(tools, "tools")
    assert not offers(tools, "read")
    assert offers(tools, "bash")
    assert not offers([custom("look_up")], "bash")


def test_toolsets_are_listed_once() -> None:
    assert refusal(toolset(), toolset()).startswith("tools.1: only one agent_toolset_20260401")
    assert refusal(mcp("a"), mcp("b"), mcp("a")).startswith("tools.2.mcp_server_name: ")


def test_configs_name_a_tool_once() -> None:
    twice = toolset(AgentToolConfig(name="bash"), AgentToolConfig(name="bash"))
    assert refusal(custom("x"), twice).startswith("tools.1.configs.1.name: 'bash'")
    named = [McpToolConfig(name="find"), McpToolConfig(name="find")]
    twice = Tool(mcp_toolset=McpToolset(mcp_server_name="files", configs=named))
    assert refusal(twice).startswith("tools.0.configs.1.name: 'find'")


def test_a_configs_type_is_its_name() -> None:
    wrong = toolset(AgentToolConfig(name="bash", type="read"))
    assert refusal(wrong) == "tools.0.configs.0.type: must be 'bash', the tool's name"
    settle_tools([toolset(AgentToolConfig(name="bash", type="bash"))], "tools")


def test_custom_names_are_unique_and_free_of_reserved_ones() -> None:
    assert refusal(custom("a"), custom("b"), custom("a")).startswith("tools.2.name: 'a'")
    assert refusal(custom("bash")).startswith("tools.0.name: 'bash' is the name of a built-in")
    assert refusal(custom("web_search")).startswith("tools.0.name: ")
    assert refusal(custom("mcp__files")).startswith("tools.0.name: must not start with 'mcp__'")
    assert refusal(custom("ant__x")).startswith("tools.0.name: must not start with 'ant__'")
    assert refusal(custom("session_history")).startswith(
        "tools.0.name: 'session_history' is reserved"
    )


def test_a_custom_tools_schema_is_checked_and_kept_byte_for_byte() -> None:
    odd = '{ "type" : "object",\n "x": 1.0 }'
    tool = custom("a", odd)
    settle_tools([tool], "tools")
    assert tool.custom.input_schema == odd
    assert refusal(custom("a", '{"type": "array"}')).startswith("tools.0.input_schema.type: ")


@pytest.mark.parametrize(
    ("config", "setting"),
    [
        (AgentToolConfig(name="bash", allowed_domains=["a.example"]), "allowed_domains"),
        (AgentToolConfig(name="read", blocked_domains=["a.example"]), "blocked_domains"),
        (AgentToolConfig(name="web_search", max_content_tokens=1), "max_content_tokens"),
        (AgentToolConfig(name="web_fetch", user_location={}), "user_location"),
    ],
)
def test_a_setting_of_another_tool_is_refused(config: AgentToolConfig, setting: str) -> None:
    assert refusal(toolset(config)).startswith(f"tools.0.configs.0.{setting}: is a setting of ")


def test_at_most_256_tools_are_offered_after_expansion() -> None:
    named = [McpToolConfig(name=f"tool{number}") for number in range(248)]
    many = Tool(mcp_toolset=McpToolset(mcp_server_name="files", configs=named))
    settle_tools([toolset(), many], "tools")
    assert refusal(toolset(), many, custom("one_more")).startswith("tools: at most 256 tools")
