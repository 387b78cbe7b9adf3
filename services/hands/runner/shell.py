"""One persistent bash.

The shell reads its script from a FIFO, one line per command: it sources the file that holds the
command, then writes the exit status to a second FIFO. So a command has no descriptors but 0 to 2,
cannot break the protocol by printing, and may be any text, syntax errors included. What the
foreground printed is in the pipe by the time the status arrives; what runs in the background does
not delay it.
"""

from __future__ import annotations

import errno
import fcntl
import posix

from services.hands.runner.failure import ignoring
from services.hands.runner.output import Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_BASH = "/bin/bash"
_READ = 256 * 1024
_SIGPIPE, _SIGXFSZ = 13, 25  # `signal` imports `enum`
_F_SETPIPE_SZ = 1031  # fcntl names it from Python 3.10 on
_FIONREAD = 0x541B  # on the machines named here; `termios` is slow to import
_MACHINES = {"x86_64", "aarch64", "riscv64", "s390x"}
_PIPE_SIZE = 1024 * 1024
_STATUS_BYTES = 4096
# The kernel should end what a command started before it ends the agent.
_OOM_SCORE = b"500"


class Shell:
    """Starts bash, feeds it commands and collects what they print.

    `directory` is a private one for the FIFOs. The caller polls `output_fd`, `status_fd` and
    `pidfd`, and calls `read_output`, `read_status` and `reap` when they are readable. Where the
    kernel knows no `pidfd` it is -1, and `reap` is to be called from time to time.
    """

    def __init__(self, directory: str, environment: Mapping[str, str]) -> None:
        self._script_path = f"{directory}/shell"
        self._status_path = f"{directory}/status"
        self._command_path = f"{directory}/command"
        self._variables_path = f"{directory}/variables"
        self._environment = dict(environment)
        self._number = 0
        self._pid = 0
        self._script_fd = -1
        self.output = Output()
        self.output_fd = -1
        self.status_fd = -1
        self.pidfd = -1

    @property
    def alive(self) -> bool:
        """Whether a shell is running, as far as `reap` knows."""
        return self._pid > 0

    def start(self) -> None:
        """Starts a new bash in the working directory. Raises `OSError`."""
        try:
            self._start()
        except OSError:
            self.close()
            raise
        self._feed("BASH_ARGV0=bash")

    def _start(self) -> None:
        # Read and write: opening neither waits for the other end, nor ends when bash goes.
        self._script_fd = _fifo(self._script_path, 0)
        self.status_fd = _fifo(self._status_path, posix.O_NONBLOCK)
        self.output_fd, write_end = posix.pipe2(posix.O_CLOEXEC)
        posix.set_blocking(self.output_fd, False)
        with ignoring(OSError):  # fewer bytes at a time do as well
            fcntl.fcntl(self.output_fd, _F_SETPIPE_SZ, _PIPE_SIZE)
        try:
            self._pid = posix.posix_spawn(
                _BASH,
                ["bash", "--noprofile", "--norc", self._script_path],
                self._environment,
                file_actions=[
                    (posix.POSIX_SPAWN_OPEN, 0, "/dev/null", posix.O_RDONLY, 0),
                    (posix.POSIX_SPAWN_DUP2, write_end, 1),
                    (posix.POSIX_SPAWN_DUP2, write_end, 2),
                ],
                setsid=True,
                setsigmask=[],
                # Python ignores these; commands expect them to work.
                setsigdef=[_SIGPIPE, _SIGXFSZ],
            )
        finally:
            posix.close(write_end)
        try:
            self.pidfd = posix.pidfd_open(self._pid)
        except OSError as error:
            if error.errno != errno.ENOSYS:  # older gVisor has no such call: then look by `reap`
                raise
        with ignoring(OSError):  # it only makes the better choice likelier
            _write(f"/proc/{self._pid}/oom_score_adj", _OOM_SCORE)

    def submit(self, command: str, spill_path: str) -> None:
        """Runs a command; `read_status` tells its end. Raises `OSError`."""
        self.output.begin(spill_path)
        self._number += 1
        _write(self._command_path, command.encode() + b"\n")
        # In a group whose errors go nowhere: `set -x` then traces the command only.
        self._feed(
            # The status is on a line of its own, too: a command may write to that FIFO as well.
            f". {self._command_path}; {{ builtin printf "
            f'"\\n%d %d\\n" "$?" {self._number} >{self._status_path}; }} 2>/dev/null'
        )

    def change(self, variables: Mapping[str, str], gone: Iterable[str]) -> None:
        """Sets variables of the shell that runs and of all later ones, and takes others away.

        The shell does so before its next command. Raises `OSError`.
        """
        lines = [f"unset -v {name}\n" for name in gone]
        lines += [f"export {name}={_quoted(value)}\n" for name, value in variables.items()]
        for name in gone:
            self._environment.pop(name, None)
        self._environment.update(variables)
        if not self.alive:
            return
        _write(self._variables_path, "".join(lines).encode())
        # `|| :`, lest one that cannot be set end a shell that was told to end at errors.
        self._feed(f". {self._variables_path} >/dev/null 2>&1 || :")

    def _feed(self, line: str) -> None:
        # A line of its own, whatever a command may have written here.
        posix.write(self._script_fd, b"\n" + line.encode() + b"\n")

    def read_output(self) -> bool:
        """Takes what the commands printed; False once nothing can print any more."""
        try:
            data = posix.read(self.output_fd, _READ)
        except BlockingIOError:
            return True
        self.output.feed(data)
        return bool(data)

    def read_status(self) -> int | None:
        """The exit status of the command that was submitted last, once it ended."""
        try:
            lines = posix.read(self.status_fd, _STATUS_BYTES).split(b"\n")
        except BlockingIOError:
            return None
        for line in lines:
            status, _, number = line.partition(b" ")
            if number == b"%d" % self._number and status.isdigit():
                return int(status)
        return None

    def drain(self) -> None:
        """Takes what the command printed up to now, and nothing that is printed from now on."""
        waiting = fcntl.ioctl(self.output_fd, _fionread(), b"\0\0\0\0")
        left = int.from_bytes(waiting, "little")
        while left > 0:
            try:
                data = posix.read(self.output_fd, min(left, _READ))
            except BlockingIOError:
                break
            if not data:
                break
            self.output.feed(data)
            left -= len(data)

    def reap(self, *, wait: bool) -> int | None:
        """The exit status of the shell itself, 128 + n after signal n; None if it still runs."""
        pid, status = posix.waitpid(self._pid, 0 if wait else posix.WNOHANG)
        if pid == 0:
            return None
        self._pid = 0
        code = posix.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        """Closes what belonged to a shell that has ended."""
        for fd in (self._script_fd, self.output_fd, self.status_fd, self.pidfd):
            if fd >= 0:
                posix.close(fd)
        self._script_fd = self.output_fd = self.status_fd = self.pidfd = -1


def _fionread() -> int:
    if posix.uname().machine in _MACHINES:
        return _FIONREAD
    import termios  # noqa: PLC0415  # the number is another one on some

    return termios.FIONREAD


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


def _write(path: str, content: bytes) -> None:
    # Not by `open`, which imports a text's encoding, and has a buffer for what is written once.
    fd = posix.open(path, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_CLOEXEC, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[posix.write(fd, view) :]
    finally:
        posix.close(fd)


def _fifo(path: str, flags: int) -> int:
    with ignoring(FileNotFoundError):
        posix.unlink(path)
    posix.mkfifo(path, 0o600)
    return posix.open(path, posix.O_RDWR | posix.O_CLOEXEC | flags)
