"""Files of sessions: what a store in memory notes of them, and a registry that has some."""

from __future__ import annotations

import dataclasses

from chassis.context import current_call
from chassis.errors import DroverError, Reason
from drover.file.v1 import file_pb2, file_service_pb2, file_service_pb2_grpc
from drover.memory.v1 import (
    memory_pb2,
    memory_store_service_pb2,
    memory_store_service_pb2_grpc,
)
from services.session.domain.file_ports import FORESEEN_MICROS, FileRelease, too_late


@dataclasses.dataclass(frozen=True)
class KeptDeletion:
    release: FileRelease
    foreseen: bool
    due_at: int


class MemoryFiles:
    """The part of a transaction in memory that is about files."""

    def _note(self, ref, file_id, *, foreseen, due_at):
        release = FileRelease(next(self._ids), ref, file_id)
        self._tables.files[release.id] = KeptDeletion(release, foreseen, due_at)

    def foresee_files(self, ref, file_id=""):
        self._note(ref, file_id, foreseen=True, due_at=self._now + FORESEEN_MICROS)

    def _foreseen(self, ref, file_id):
        for number, kept in self._tables.files.items():
            if kept.foreseen and (kept.release.ref, kept.release.file_id) == (ref, file_id):
                return number
        return None

    def keep_files(self, ref, file_id=""):
        if (number := self._foreseen(ref, file_id)) is None:
            raise too_late(ref)
        del self._tables.files[number]

    def hasten_files(self, ref, file_id=""):
        if (number := self._foreseen(ref, file_id)) is None:
            return False
        kept = self._tables.files[number]
        self._tables.files[number] = dataclasses.replace(kept, due_at=self._now)
        return True

    def release_files(self, ref, file_id=""):
        self._note(ref, file_id, foreseen=False, due_at=self._now)

    def lease_file_releases(self, limit, lease_micros):
        due = [kept for kept in self._tables.files.values() if kept.due_at <= self._now][:limit]
        for kept in due:
            leased = KeptDeletion(kept.release, foreseen=False, due_at=self._now + lease_micros)
            self._tables.files[kept.release.id] = leased
        return [kept.release for kept in due]

    def finish_file_releases(self, release_ids):
        for number in release_ids:
            self._tables.files.pop(number, None)

    def postpone_file_release(self, release_id, delay_micros):
        if release_id in self._tables.files:
            kept = self._tables.files[release_id]
            again = dataclasses.replace(kept.release, attempts=kept.release.attempts + 1)
            later = KeptDeletion(again, foreseen=False, due_at=self._now + delay_micros)
            self._tables.files[release_id] = later


class FakeFiles(file_service_pb2_grpc.FileServiceServicer):
    """A registry's files, by workspace and id. Away, it answers nothing."""

    def __init__(self):
        self.files = {}
        self.asked = []
        self.away = False
        self.ended = set()

    def add(self, file_id, mime_type="text/plain", *, workspace="wrkspc_default", scope=None):
        file = file_pb2.File(id=file_id, filename=file_id, mime_type=mime_type)
        if scope is not None:
            file.scope.id = scope
        self.files[workspace, file_id] = file
        return file

    def of(self, session_id):
        """The ids of a session's files."""
        return {file.id for file in self.files.values() if file.scope.id == session_id}

    def _heard(self, name):
        self.asked.append(name)
        if self.away:
            raise DroverError(Reason.UNAVAILABLE, "away")
        return current_call().workspace_id

    async def ListFiles(self, request, _context):
        workspace = self._heard("ListFiles")
        found = [self.files.get((workspace, one)) for one in request.ids]
        return file_service_pb2.ListFilesResponse(data=filter(None, found))

    async def CopyFiles(self, request, _context):
        workspace = self._heard("CopyFiles")
        if request.session_id in self.ended:
            raise DroverError(Reason.NOT_FOUND, f"{request.session_id} was deleted")
        for copy in request.copies:
            file = self.files.get((workspace, copy.file_id))
            if file is None or file.HasField("expires_at"):  # which is past in every test
                raise DroverError(Reason.NOT_FOUND, f"file {copy.file_id} not found")
        answer = file_service_pb2.CopyFilesResponse()
        for copy in request.copies:
            kind = self.files[workspace, copy.file_id].mime_type
            made = self.add(copy.copy_id, kind, workspace=workspace, scope=request.session_id)
            answer.files.append(made)
        return answer

    async def DeleteFile(self, request, _context):
        workspace = self._heard("DeleteFile")
        if self.files.pop((workspace, request.file_id), None) is None:
            raise DroverError(Reason.NOT_FOUND, f"file {request.file_id} not found")
        return file_service_pb2.DeleteFileResponse(id=request.file_id)

    async def DeleteSessionFiles(self, request, _context):
        workspace = self._heard("DeleteSessionFiles")
        self.ended.add(request.session_id)
        for key, file in list(self.files.items()):
            if key[0] == workspace and file.scope.id == request.session_id:
                del self.files[key]
        return file_service_pb2.DeleteSessionFilesResponse()

    async def ReopenSessionFiles(self, request, _context):
        self._heard("ReopenSessionFiles")
        self.ended.discard(request.session_id)
        return file_service_pb2.ReopenSessionFilesResponse()


class FakeMemoryStores(memory_store_service_pb2_grpc.MemoryStoreServiceServicer):
    """A registry's memory stores, by id."""

    def __init__(self):
        self.stores = {}
        self.asked = 0

    def add(self, store_id, name="Notes", description="", *, archived=False):
        store = memory_pb2.MemoryStore(id=store_id, name=name, description=description)
        if archived:
            store.archived_at.GetCurrentTime()
        self.stores[store_id] = store
        return store

    async def GetMemoryStore(self, request, _context):
        self.asked += 1
        store = self.stores.get(request.memory_store_id)
        if store is None:
            raise DroverError(Reason.NOT_FOUND, f"{request.memory_store_id} not found")
        return memory_store_service_pb2.GetMemoryStoreResponse(memory_store=store)
