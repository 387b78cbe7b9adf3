"""The engine, spoken to through its SDK, which blocks: every call is in one of few threads.

Every call has a time-out of its own, and nothing of the SDK's or of the HTTP client's leaves this
module: an engine that is away, that dies in the middle or that refuses is `BackendUnavailable`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, TypeVar

import docker
import docker.errors
import requests
import urllib3

from services.hands.backends.docker.settings import SOCKET
from services.hands.backends.docker.stream import attach
from services.hands.backends.port import BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

T = TypeVar("T")

_NOT_FOUND: Final = 404
_NONE_BEHIND: Final = 503
"""What the engine proxy answers in the engine's place."""
_PAUSE: Final = 0.25
_REMOVE_ATTEMPTS: Final = 5
_REMOVE_PAUSE: Final = 0.2
_COMMIT_SECONDS: Final = 300.0


class EngineAway(BackendUnavailable):
    """The engine does not answer, or stopped in the middle."""


class EngineRefused(BackendUnavailable):
    """The engine answers, and does not do it."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Started:
    """A container that runs: `stream` is its standard input, output and error, multiplexed.

    `inspected` is what the engine says of it; `warnings` what it did not do of what it was told.
    """

    container_id: str
    stream: socket.socket
    inspected: Mapping[str, Any]
    warnings: Sequence[str]


class Engine:
    """The engine at `host`, a URL as in DOCKER_HOST. `seconds` bounds each call of its API."""

    def __init__(self, host: str, *, threads: int, seconds: float) -> None:
        self._host = host
        self._seconds = seconds
        self._client: docker.APIClient | None = None
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="docker")

    async def about(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """What the engine says of itself: its `info` and its `version`."""
        return await self._do(lambda client: (client.info(), client.version()))

    async def returns(self, seconds: float) -> bool:
        """Waits for so long until the engine answers; whether it does."""
        until = time.monotonic() + seconds
        while True:
            try:
                await self._do(lambda client: client.ping())
            except EngineAway:
                if time.monotonic() >= until:
                    return False
                await asyncio.sleep(_PAUSE)
            else:
                return True

    async def image(self, name: str) -> Mapping[str, Any] | None:
        """An image that the engine has; None if it has none of that name. Nothing is fetched."""
        try:
            return await self._do(lambda client: client.inspect_image(name))
        except EngineRefused as refusal:
            if refusal.status == _NOT_FOUND:
                return None
            raise

    async def volume(self, name: str) -> str:
        """Where a volume's files are on the engine's machine; empty if there is none."""
        try:
            found = await self._do(lambda client: client.inspect_volume(name))
        except EngineRefused as refusal:
            if refusal.status == _NOT_FOUND:
                return ""
            raise
        return str(found.get("Mountpoint") or "")

    async def run(self, name: str, config: Mapping[str, Any]) -> Started:
        """Creates a container and starts it. Whatever fails or is cancelled, none is left."""
        path = self._host.removeprefix(SOCKET)
        starting = asyncio.ensure_future(self._do(lambda client: _run(client, path, name, config)))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])  # bounded: each call has its time-out
            if not starting.cancelled() and starting.exception() is None:
                starting.result().stream.close()
                with suppress(BackendUnavailable):
                    await self.remove(name)
            raise

    async def inspect(self, name: str) -> Mapping[str, Any] | None:
        """What the engine says of a container; None if there is none."""
        try:
            return await self._do(lambda client: client.inspect_container(name))
        except EngineRefused as refusal:
            if refusal.status == _NOT_FOUND:
                return None
            raise

    async def stopped(self, name: str) -> None:
        """Waits until a container does not run."""
        await self._do(lambda client: client.wait(name, timeout=self._seconds))

    async def ran_out_of_memory(self, name: str, since: float) -> bool:
        """Whether the kernel ended a process of a container for want of memory."""
        told = {"container": name, "event": "oom"}

        def ask(client: docker.APIClient) -> bool:
            until = (
                f"{time.time():.9f}"  # those that it remembers: a later time would be waited for
            )
            events = client.events(since=int(since), until=until, filters=told)
            return any(b'"oom"' in line for line in events)

        return await self._do(ask)

    async def remove(self, name: str) -> None:
        """Kills a container and removes it; there is none afterwards."""
        await self._do(lambda client: _remove(client, name))

    async def labelled(self, label: str) -> Sequence[tuple[str, Mapping[str, str]]]:
        """Ids and labels of all containers with a label, `name=value`, that run or not."""
        found = await self._do(lambda client: client.containers(all=True, filters={"label": label}))
        return [(container["Id"], container.get("Labels") or {}) for container in found]

    async def images(self, label: str) -> Sequence[tuple[str, Mapping[str, str], Sequence[str]]]:
        """Ids, labels and names of all images with a label, `name=value`."""
        found = await self._do(lambda client: client.images(filters={"label": label}))
        return [
            (image["Id"], image.get("Labels") or {}, image.get("RepoTags") or ()) for image in found
        ]

    async def remove_image(self, name: str) -> None:
        """Removes an image, unless a container has it."""
        await self._do(lambda client: client.remove_image(name))

    async def written(self, name: str) -> int:
        """Bytes that a container has written to its own layer; 0 if there is none."""
        told = {"name": f"^/{name}$"}
        found = await self._do(lambda client: client.containers(all=True, size=True, filters=told))
        return sum(int(container.get("SizeRw") or 0) for container in found)

    async def commit(self, name: str, repository: str, tag: str, labels: Mapping[str, str]) -> None:
        """Makes an image of what a container has written. It is whole, or there is none.

        It may take longer than other calls, and who is cancelled does not wait for its end: the
        engine holds on to what it copies, though the container be removed meanwhile, and names an
        image once it is whole.
        """

        def work() -> None:
            seconds = max(self._seconds, _COMMIT_SECONDS)
            client = docker.APIClient(base_url=self._host, version="auto", timeout=seconds)
            with closing(client):
                client.commit(name, repository, tag, conf={"Labels": dict(labels)})

        await _apart(partial(self._called, work))

    async def close(self) -> None:
        """Ends the threads."""
        await asyncio.to_thread(self._threads.shutdown)
        if self._client is not None:
            self._client.close()

    async def _do(self, work: Callable[[docker.APIClient], T]) -> T:
        def with_client() -> T:
            if self._client is None:
                self._client = docker.APIClient(
                    base_url=self._host, version="auto", timeout=self._seconds
                )
            return work(self._client)

        called = partial(self._called, with_client)
        return await asyncio.get_running_loop().run_in_executor(self._threads, called)

    def _called(self, work: Callable[[], T]) -> T:
        with self._translated():
            _knock(self._host.removeprefix(SOCKET), self._seconds)
            return work()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except docker.errors.APIError as error:
            status = error.response.status_code if error.response is not None else 0
            text = error.explanation or str(error)
            if status == _NONE_BEHIND:
                text = f"no container engine answers behind {self._host}: {text}"
                raise EngineAway(text) from error
            raise EngineRefused(f"the container engine refuses: {text}", status) from error
        except (
            docker.errors.DockerException,
            requests.exceptions.RequestException,
            urllib3.exceptions.HTTPError,
            json.JSONDecodeError,
            OSError,
        ) as error:
            # Not the error's text: it is an HTTP client's, and says less than this.
            text = f"no container engine answers at {self._host}: start it, or set DOCKER_HOST"
            if _timed_out(error):
                text = f"the container engine at {self._host} did not answer in {self._seconds:g} s"
            raise EngineAway(text) from error


async def _apart(work: Callable[[], None]) -> None:
    """Has work done in a thread of its own, which holds up neither who is cancelled nor the end of
    this process.
    """
    done: Future[None] = Future()
    done.set_running_or_notify_cancel()  # from here on its end is set, whether anyone waits or not

    def called() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # it is raised where it is waited for
            done.set_exception(error)
        else:
            done.set_result(None)

    Thread(target=called, name="docker commit", daemon=True).start()
    await asyncio.wrap_future(done)


def _timed_out(error: BaseException | None) -> bool:
    """Whether a time-out is behind an error: the SDK wraps some."""
    kinds = (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError, TimeoutError)
    while error is not None:
        if isinstance(error, kinds):
            return True
        error = error.__cause__ or error.__context__
    return False


def _knock(path: str, seconds: float) -> None:
    """Connects and leaves. Raises `OSError`.

    The SDK's HTTP client leaves the socket of a connection open that was refused.
    """
    with socket.socket(socket.AF_UNIX) as visitor:
        visitor.settimeout(seconds)
        visitor.connect(path)


def _run(client: docker.APIClient, path: str, name: str, config: Mapping[str, Any]) -> Started:
    created = client.create_container_from_config(dict(config), name)
    container_id = created["Id"]
    try:
        # Before it starts: nothing that it says is missed, nor read together with the headers.
        stream = attach(path, client.api_version, container_id, seconds=client.timeout)
        try:
            client.start(container_id)
            inspected = client.inspect_container(container_id)
        except BaseException:
            stream.close()
            raise
    except BaseException:
        with suppress(Exception):  # whatever it was is raised; the next start finds what is left
            _remove(client, container_id)
        raise
    return Started(container_id, stream, inspected, created.get("Warnings") or ())


def _remove(client: docker.APIClient, name: str) -> None:
    for attempt in range(_REMOVE_ATTEMPTS):
        try:
            client.remove_container(name, force=True, v=True)
        except docker.errors.APIError as error:
            status = error.response.status_code if error.response is not None else 0
            if status == _NOT_FOUND:
                return
            if attempt == _REMOVE_ATTEMPTS - 1:
                raise
            time.sleep(_REMOVE_PAUSE)  # it is being removed already, or its files are still busy
        else:
            return
