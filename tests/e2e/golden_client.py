"""The golden path as a script of its own, so that any release of the SDK can run it (case A4).

Prints one JSON line: the SDK's version, the types of the stream and of the list, the answer.
"""

from __future__ import annotations

import json
import sys

import anthropic


def main(base_url: str, api_key: str) -> None:
    client = anthropic.Anthropic(base_url=base_url, api_key=api_key, timeout=60)
    agent = client.beta.agents.create(
        name="clerk", model="claude-opus-5-5", tools=[{"type": "agent_toolset_20260401"}]
    )
    agent = client.beta.agents.update(agent.id, version=agent.version, description="files things")
    environment = client.beta.environments.create(name=f"desk-{agent.id}")
    session = client.beta.sessions.create(agent=agent.id, environment_id=environment.id)
    message = {"type": "user.message", "content": [{"type": "text", "text": "go"}]}
    streamed = []
    answer = ""
    with client.beta.sessions.events.stream(session.id) as stream:
        client.beta.sessions.events.send(session.id, events=[message])
        for event in stream:
            if event.type != "user.message" or event.processed_at:
                streamed.append(event.type)
            if event.type == "agent.message":
                answer = event.content[0].text
            if event.type == "session.status_idle":
                break
    listed = [event.type for event in client.beta.sessions.events.list(session.id)]
    threads = [thread.status for thread in client.beta.sessions.threads.list(session.id)]
    archived = client.beta.sessions.archive(session.id).status
    client.beta.sessions.delete(session.id)
    client.beta.environments.delete(environment.id)
    print(  # noqa: T201 - its way to answer
        json.dumps(
            {
                "version": anthropic.__version__,
                "agent_version": agent.version,
                "streamed": streamed,
                "listed": listed,
                "threads": threads,
                "answer": answer,
                "archived": archived,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
