"""What one sandbox may use."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The size of a sandbox. Where control groups are writable they enforce the first three for the
    sandbox as a whole; resource limits bound each process always. `workspace_bytes` is for the disk
    watcher to enforce; 0 is the installation's default.
    """

    memory_bytes: int = 4096 * MIB
    processes: int = 512
    cpus: float = 1.0
    file_bytes: int = 4096 * MIB
    open_files: int = 4096
    tmp_bytes: int = 512 * MIB
    workspace_bytes: int = 0

    def resource_limits(self, *, grouped: bool) -> dict[str, int]:
        """Values of RLIMIT_…, by their names. `grouped`: a control group bounds the memory.

        Address space is only a stand-in for memory: runtimes that reserve much more than they use
        run into it, so it is generous where a group does the work.
        """
        return {
            "AS": self.memory_bytes * (16 if grouped else 1),
            "NPROC": self.processes,
            "FSIZE": self.file_bytes,
            "NOFILE": self.open_files,
            "CORE": 0,
        }
