"""Whether what web tools are to show is within the environment's networking (SEMANTICS §2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalogue.host_list import HostList
from catalogue.hosts import Host
from services.session.domain.admission import refuse

if TYPE_CHECKING:
    from drover.agent.v1 import agent_pb2
    from drover.environment.v1 import environment_pb2


def check_web_domains(
    agent: agent_pb2.SessionAgent, recipe: environment_pb2.EnvironmentConfig
) -> None:
    """Raises INVALID_ARGUMENT where an enabled web tool's domain is outside a limited environment.

    What is below a domain is judged when it is asked for.
    """
    networking = recipe.cloud.networking
    if not networking.HasField("limited"):
        return
    hosts = HostList(networking.limited.allowed_hosts)
    for number, tool in enumerate(agent.tools):
        for place, config in enumerate(tool.agent_toolset.configs):
            if not config.enabled:
                continue
            for index, domain in enumerate(config.allowed_domains):
                if Host(domain.partition("/")[0]) not in hosts:
                    raise refuse(
                        f"agent.tools.{number}.configs.{place}.allowed_domains.{index}",
                        f"{domain} is not within the allowed_hosts of the session's environment, "
                        "whose networking is limited",
                    )
