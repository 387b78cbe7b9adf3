"""A fleet in four networks, and what was seen of it while they were cut off from each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from anthropic import Anthropic

from tests.doubles.messages_api import Gate, ToolUse, says, text, tools
from tests.doubles.partition import Namespace, namespace
from tests.doubles.soak import share
from tests.doubles.tcp_proxy import TcpProxy
from tests.e2e.driving import new_session, send
from tests.e2e.replicas import Replicas
from tests.fault.fleet import running_fleet, serves

PARTS = ("registry", "session-1", "hands", "brain-1", "brain-2", "gateway-1", "gateway-2")
REQUEST_SECONDS = 3.0
"""The deadline of what the cut off gateway asks of the session service."""

CUT_SECONDS = 28.0
_TAKEN_OVER = 60.0
_WORK = "touch begun; while [ ! -e go ]; do sleep 0.05; done; echo ran >> count"


def port_of(address: str) -> int:
    """The port of `host:port`."""
    return int(address.rpartition(":")[2])


@dataclass(slots=True)
class Networks:
    """The fleet. The session service and the second brain are in the machine's own network."""

    fleet: Replicas
    brain: Namespace
    hands: Namespace
    gateway: Namespace
    to_session: TcpProxy
    """Between the first gateway and the session service."""

    def cut(self) -> None:
        """Cuts the first brain and the second gateway off the session service, and the hands off
        everybody. The brain reaches its model all the same."""
        session = port_of(self.fleet.address("session-1"))
        self.brain.cut(session, port_of(self.fleet.address("brain-1")))
        self.hands.cut()
        self.gateway.cut(session)

    def heal(self) -> None:
        """Connects all again."""
        for one in (self.brain, self.hands, self.gateway):
            one.heal()


@contextmanager
def running_networks(data: Path) -> Iterator[Networks]:
    """Runs the fleet for the length of the block, all of it but the second brain."""
    with ExitStack() as stack:
        brain, hands, gateway = (stack.enter_context(namespace()) for _ in range(3))
        proxies: list[TcpProxy] = []

        def proxied(port: int, host: str = "127.0.0.1", *, listen: str = "127.0.0.1") -> str:
            proxies.append(stack.enter_context(TcpProxy(port, host, listen=listen)))
            return proxies[-1].address

        def prepare(fleet: Replicas) -> None:
            def told(name: str, **environment: str) -> None:
                fleet.processes[name].environment |= environment

            session, registry = (port_of(fleet.address(name)) for name in ("session-1", "registry"))
            hands_port = port_of(fleet.address("hands"))
            brain_port = port_of(fleet.address("brain-1"))
            near = port_of(fleet.address("brain-2"))
            for process in fleet.processes.values():
                process.environment |= {
                    "DROVER_HANDS_ADDRESS": f"{hands.inside}:{hands_port}",
                    "DROVER_BRAIN_ADDRESSES": f"{brain.inside}:{brain_port},127.0.0.1:{near}",
                }
            fleet.certify()
            model = urlsplit(fleet.model.base_url)
            for name, where in (("brain-1", brain), ("hands", hands), ("gateway-2", gateway)):
                process = fleet.processes[name]
                process.network = where.name
                told(name, DROVER_LISTEN=f"{where.inside}:{port_of(process.address)}")
            everywhere = "0.0.0.0"  # noqa: S104
            told("session-1", DROVER_LISTEN=f"{everywhere}:{session}")
            told("registry", DROVER_LISTEN=f"{everywhere}:{registry}")
            told(
                "brain-1",
                DROVER_SESSION_ADDRESS=f"{brain.outside}:{session}",
                DROVER_HANDS_ADDRESS=proxied(hands_port, hands.inside, listen=brain.outside),
                ANTHROPIC_BASE_URL=f"http://{proxied(model.port or 0, listen=brain.outside)}",
                DROVER_MAX_SESSIONS="1",
            )
            told(
                "gateway-2",
                DROVER_SESSION_ADDRESS=f"{gateway.outside}:{session}",
                DROVER_REGISTRY_ADDRESS=f"{gateway.outside}:{registry}",
                DROVER_ALLOWED_HOSTS=gateway.inside,
                DROVER_REQUEST_SECONDS=f"{REQUEST_SECONDS}",
            )
            told("gateway-1", DROVER_SESSION_ADDRESS=proxied(session))

        fleet = stack.enter_context(running_fleet(data, None, *PARTS, prepare=prepare))
        fleet.kill("brain-2")
        yield Networks(fleet, brain, hands, gateway, proxies[-1])


@dataclass(slots=True)
class Seen:
    """What happened. Times are in seconds, from the cut or from its end on."""

    taken_over_after: float = 0.0
    deleted_after: float = 0.0
    refused: list[tuple[int, float]] = field(default_factory=list)
    answered_after: float = 0.0
    tool_done_after: float = 0.0
    shown_after: float = 0.0
    released_after: float = 0.0
    worked_after: float = 0.0
    abandoned: list[Any] = field(default_factory=list)
    worked: list[Any] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    runs: int = 0


class _Reader(threading.Thread):
    """Reads a session's stream at the second gateway."""

    def __init__(self, fleet: Replicas, session: str) -> None:
        super().__init__(daemon=True)
        self._fleet = fleet
        self._session = session
        self.ids: list[str] = []
        self.open = threading.Event()

    def run(self) -> None:
        path = f"{self._fleet.url('gateway-2')}/v1/sessions/{self._session}/events/stream"
        patience = httpx2.Timeout(30, read=60)
        headers = self._fleet.headers
        with httpx2.stream("GET", path, headers=headers, timeout=patience) as answer:
            self.open.set()
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    self.ids.append(line[4:])


def observed(networks: Networks) -> Seen:
    """Cuts a working fleet apart and puts it together again; answers what was seen meanwhile."""
    with networks.fleet.client() as client:
        story = _Story(networks, client)
        story.begin()
        networks.cut()
        story.while_cut()
        networks.heal()
        story.once_healed()
    return story.seen


class _Story:
    """What goes on before, during and after the cut."""

    def __init__(self, networks: Networks, client: Anthropic) -> None:
        self.seen = Seen()
        self._fleet = networks.fleet
        self._client = client
        self._thinking = Gate()
        self._fleet.model.default(lambda _: text("ok"))
        self._ended, self._worked = (new_session(client).id for _ in range(2))
        self._abandoned, self._followed = (new_session(client, tools=()).id for _ in range(2))
        self._reader = _Reader(self._fleet, self._followed)

    def begin(self) -> None:
        """Has everybody at work on something that the cut will break."""
        fleet, model, client = self._fleet, self._fleet.model, self._client
        model.on(says("leave a file"), tools(ToolUse("bash", {"command": "touch file"})), text("."))
        send(client, self._ended, "leave a file")
        fleet.until_idle(client, self._ended)
        # The first brain, alone and soon full, thinks about one session...
        model.on(says("think"), text("too late").stall(self._thinking), text("thought"))
        send(client, self._abandoned, "think")
        self._thinking.wait_reached()
        # ... the second has a tool run for another, and a reader is at the second gateway.
        fleet.start("brain-2")
        fleet.wait_for(lambda: serves(fleet, "brain-2"), "the second brain")
        model.on(says("work"), tools(ToolUse("bash", {"command": _WORK})), text("worked"))
        send(client, self._worked, "work")
        fleet.wait_for((fleet.workspace(self._worked) / "begun").exists, "the tool to begin")
        self._reader.start()
        assert self._reader.open.wait(30)

    def while_cut(self) -> None:
        """Goes on with what can go on, until the cut has lasted long enough."""
        fleet, seen, client, cut = self._fleet, self.seen, self._client, time.monotonic()
        self._thinking.release()
        (fleet.workspace(self._worked) / "go").touch()  # whose result finds no way
        client.beta.sessions.delete(self._ended)
        seen.deleted_after = time.monotonic() - cut
        send(client, self._followed, "one", "two", "three")
        seen.log = [event.id for event in fleet.until_idle(client, self._followed, answers=3)]
        seen.answered_after = time.monotonic() - cut
        seen.refused = [_asked(fleet, self._followed), _asked(fleet, self._followed)]
        fleet.until_idle(client, self._abandoned, deadline=_TAKEN_OVER)
        seen.taken_over_after = time.monotonic() - cut
        assert not _said(client, self._worked)
        time.sleep(max(0.0, share(CUT_SECONDS) - (time.monotonic() - cut)))

    def once_healed(self) -> None:
        """Waits for what was cut off, and looks at what became of it all."""
        fleet, seen, client, healed = self._fleet, self.seen, self._client, time.monotonic()
        awaited: dict[str, Callable[[], object]] = {
            "tool_done_after": lambda: _said(client, self._worked),
            "shown_after": lambda: self._reader.ids[-1:] == seen.log[-1:],
            "released_after": lambda: not fleet.workspace(self._ended).exists(),
        }
        while awaited:
            assert time.monotonic() - healed < _TAKEN_OVER, f"not yet: {list(awaited)}"
            for name in [name for name, condition in awaited.items() if condition()]:
                setattr(seen, name, time.monotonic() - healed)
                del awaited[name]
            time.sleep(0.02)
        # The first brain is alone again, and has nothing left to do.
        fleet.kill("brain-2")
        begun = time.monotonic()
        late = new_session(client, tools=()).id
        send(client, late, "hello")
        fleet.until_idle(client, late)
        seen.worked_after = time.monotonic() - begun
        seen.abandoned = list(client.beta.sessions.events.list(self._abandoned))
        seen.worked = list(client.beta.sessions.events.list(self._worked))
        seen.runs = len((fleet.workspace(self._worked) / "count").read_text().split())
        seen.shown = list(self._reader.ids)


def _said(client: Anthropic, session: str) -> bool:
    found = client.beta.sessions.events.list(session, types=["agent.message"])
    return bool(list(found))


def _asked(fleet: Replicas, session: str) -> tuple[int, float]:
    """What the second gateway answers about a session, and after what time."""
    begun = time.monotonic()
    path = f"{fleet.url('gateway-2')}/v1/sessions/{session}"
    answer = httpx2.get(path, headers=fleet.headers, timeout=30)
    return answer.status_code, time.monotonic() - begun
