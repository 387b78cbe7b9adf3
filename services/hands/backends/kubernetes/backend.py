"""Sandboxes as pods of a cluster that shares a volume with this process."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from services.hands.backends import agent_files, lock, seccomp, user_files
from services.hands.backends.bubblewrap import PYTHONS
from services.hands.backends.kubernetes import fitness, manifest, status
from services.hands.backends.kubernetes.api import ClusterApi
from services.hands.backends.kubernetes.errors import ClusterAway
from services.hands.backends.kubernetes.pods import Pods
from services.hands.backends.kubernetes.sandbox import KubernetesSandbox, removed
from services.hands.backends.kubernetes.strength import weaker
from services.hands.backends.port import BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from services.hands.backends.kubernetes.pods import Seen
    from services.hands.backends.kubernetes.settings import ClusterSettings
    from services.hands.backends.port import SandboxSpec

_NO_PYTHON: Final = "executable file not found"
_NO_FILE: Final = "not a directory"
"""A file that is not on a claim is made there, as a directory, and cannot be mounted over one."""

_log = structlog.get_logger("hands.kubernetes")


class KubernetesBackend:
    """Starts pods. `directory` is the hands' own, which must be on the volume claim.

    The pods are labelled with the installation, which is that directory on that claim.
    """

    name = "kubernetes"

    def __init__(self, directory: Path, settings: ClusterSettings) -> None:
        self._directory = directory.absolute() / "kubernetes"
        self._settings = settings
        self._hands = directory.absolute()
        self._claim = manifest.Claim(settings.claim, (settings.root or directory).absolute())
        place = os.path.relpath(self._hands, self._claim.root)
        whose = f"{settings.namespace}/{settings.claim}/{place}"
        self._installation = hashlib.sha256(os.fsencode(whose)).hexdigest()[:12]
        self._api = ClusterApi(settings)
        self._pods: Pods | None = None
        self._fit = False
        self._swept = False
        self._preparing = asyncio.Lock()
        self._live: set[str] = set()
        self._lock = -1

    async def start(self) -> None:
        """Removes what a dead process left, and prepares files."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock = await lock.hold(self._directory / "lock")
        await asyncio.to_thread(self._lay_out)
        try:
            await self._ready()
        except BackendUnavailable as error:
            _log.warning("pods_unavailable", reason=str(error))

    async def system(self, kind: str, image: str) -> str:  # noqa: ARG002  # of one kind only
        """The image, by its name."""
        return image

    async def layers(self, kind: str) -> None:
        """None: its system is another's."""

    async def launch(self, spec: SandboxSpec) -> KubernetesSandbox:
        """Starts a sandbox. Raises `BackendUnavailable`."""
        pods = await self._ready()
        await fitness.keep_apart(self._api, self._installation)
        user = os.getuid() if spec.volume.owner is None else spec.volume.owner
        image = spec.image or self._settings.image
        wanted = manifest.pod(
            spec,
            user=user,
            image=image,
            installation=self._installation,
            claim=self._claim,
            files=self._files(spec.hand_id, user),
            settings=self._settings,
        )
        self._live.add(spec.hand_id)
        try:
            await self._create(pods, wanted)
            return await self._begun(pods, spec, wanted)
        except BaseException:
            self._forget(spec.hand_id, gone=True)
            raise

    async def close(self) -> None:
        """Ends the threads."""
        if self._pods is not None:
            await self._pods.close()
        await self._api.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def _ready(self) -> Pods:
        """Finds out once that the cluster is fit. Raises `BackendUnavailable`."""
        async with self._preparing:
            if self._pods is None:
                self._pods = Pods(self._api, self._selector)
            if not self._hands.is_relative_to(self._claim.root):
                raise BackendUnavailable(
                    f"DROVER_KUBERNETES_VOLUME_ROOT is {self._claim.root}, and the hands' "
                    f"directory {self._hands} is not below it"
                )
            if not self._fit:
                await fitness.check(self._api, self._settings)
                await self._sweep(self._pods)
                self._fit = True
            return self._pods

    async def _sweep(self, pods: Pods) -> None:
        """Ends the installation's pods that no sandbox of this process is in.

        Those whose nodes do not say that they have ended are the cluster's to see to from then on.
        """
        left = [
            pod
            for pod in await self._api.pods(self._selector)
            if (pod["metadata"].get("labels") or {}).get(manifest.HAND) not in self._live
            # Waited for once, by the process that finds it: a node may be away for long.
            and not (self._swept and pod["metadata"].get("deletionTimestamp"))
        ]
        for pod in left:
            pods.expect(pod)
        await asyncio.gather(*(self._end_left(pods, pod) for pod in left))
        self._swept = True

    async def _end_left(self, pods: Pods, pod: Mapping[str, Any]) -> None:
        name = pod["metadata"]["name"]
        _log.warning("leftover_pod_removed", pod=name)
        try:
            await removed(self._api, pods, name)
        finally:
            pods.forget(name)

    async def _create(self, pods: Pods, wanted: Mapping[str, Any]) -> None:
        """Makes a pod. Whatever fails or is cancelled, none is left if the cluster is there."""
        name = wanted["metadata"]["name"]
        making = asyncio.ensure_future(self._api.create_pod(wanted))
        try:
            pods.expect(await asyncio.shield(making))
        except asyncio.CancelledError:
            await asyncio.wait([making])  # bounded: each call has its time-out
            if not making.cancelled() and making.exception() is None:
                pods.expect(making.result())
                await self._abandon(pods, name)
            raise
        except ClusterAway:
            # It may have been made all the same: the next start of a sandbox looks.
            self._fit = False
            raise

    async def _begun(
        self, pods: Pods, spec: SandboxSpec, wanted: Mapping[str, Any]
    ) -> KubernetesSandbox:
        """The sandbox in a pod that was made, which is ended if there is none."""
        name = wanted["metadata"]["name"]
        try:
            running = await self._running(pods, name, spec.image or self._settings.image)
            _check_strength(wanted, running)
            return await self._attached(pods, spec, name)
        except BaseException:
            await self._abandon(pods, name)
            raise

    async def _running(self, pods: Pods, name: str, image: str) -> Mapping[str, Any]:
        def begun(seen: Seen) -> Mapping[str, Any] | str | None:
            if seen.gone:
                return status.why_ended(seen.pod) or "its pod was removed before it ran"
            if status.running(seen.pod):
                return seen.pod
            return status.hopeless(seen.pod) or None

        seconds = self._settings.start_seconds
        try:
            async with asyncio.timeout(seconds):
                found = await pods.until(name, begun)
        except TimeoutError as error:
            noted = await self._noted(name)
            raise BackendUnavailable(
                f"the sandbox's pod did not run within {seconds:g} s: "
                f"{status.pending(pods.last(name).pod)}{noted}"
            ) from error
        if isinstance(found, dict):
            return found
        if _NO_FILE in found:
            raise BackendUnavailable(f"the sandbox's pod did not start: {manifest.OTHER_CLAIM}")
        if _NO_PYTHON in found:
            raise BackendUnavailable(
                f"the image {image} has no python3: a sandbox's image needs Python 3.9 or newer "
                "and bash"
            )
        raise BackendUnavailable(f"the sandbox's pod did not start: {found}")

    async def _noted(self, name: str) -> str:
        """What the cluster noted last of a pod, where that may be read."""
        try:
            events = await self._api.events(name)
        except BackendUnavailable:
            return ""
        return f" ({events[-1]})" if events else ""

    async def _attached(self, pods: Pods, spec: SandboxSpec, name: str) -> KubernetesSandbox:
        limits = dict(spec.limits.resource_limits(grouped=True))
        if spec.volume.owner is None:
            # It would count all processes of that user on the node, other sandboxes' too.
            limits.pop("NPROC")
        forget = partial(self._forget, spec.hand_id)
        sandbox = KubernetesSandbox(self._api, pods, name, limits, lambda gone: forget(gone=gone))
        await sandbox.open(seconds=self._settings.seconds)
        return sandbox

    async def _abandon(self, pods: Pods, name: str) -> None:
        """Ends a pod of which there will be no sandbox, also while this is being cancelled."""
        ending = asyncio.ensure_future(removed(self._api, pods, name))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await asyncio.wait([ending])  # bounded
            raise
        finally:
            if ending.done() and not ending.cancelled() and not ending.result():
                self._fit = False

    def _forget(self, hand_id: str, *, gone: bool) -> None:
        self._live.discard(hand_id)
        if self._pods is not None:
            self._pods.forget(manifest.pod_name(hand_id))
        if not gone:
            self._fit = False  # the next start looks what is left
        shutil.rmtree(self._directory / "users" / hand_id, ignore_errors=True)

    @property
    def _selector(self) -> str:
        return f"{manifest.INSTALLATION}={self._installation}"

    def _files(self, hand_id: str, user: int) -> manifest.Files:
        users = user_files.write(self._directory / "users" / hand_id, user)
        return manifest.Files(self._directory / "agent", users)

    def _lay_out(self) -> None:
        python = next((path for path in PYTHONS if os.access(path, os.X_OK)), "")
        shutil.rmtree(self._directory / "users", ignore_errors=True)
        agent_files.lay_out(self._directory / "agent", python, seccomp.program())


def _check_strength(wanted: Mapping[str, Any], has: Mapping[str, Any]) -> None:
    if differences := weaker(wanted, has):
        raise BackendUnavailable(
            f"the cluster gives less protection than it was told: {'; '.join(differences)}"
        )
