"""The agent's loop: one thread that serves calls from the host over its standard input.

bash runs one command at a time, which the host sees to; reading, writing and editing are done at
once; searching, reading large files, cloning and installing, in a forked child that can be killed.
Everything has a deadline.

Frames from the host: `hello` once, then `call`, `cancel`, `follow` and `variables`. Frames to the
host: `ready` once, then one `result` for each call, and while a command is followed `output` before
it.
"""

from __future__ import annotations

import posix
import resource
import select
import time

from services.hands.runner import files, limits
from services.hands.runner.codec import decode, encode
from services.hands.runner.failure import ToolFailure, ignoring
from services.hands.runner.forwarder import Forwarder
from services.hands.runner.frames import Connection
from services.hands.runner.output import clean, spill
from services.hands.runner.paths import WORKDIR
from services.hands.runner.shell import Shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

IN_FD, OUT_FD = 0, 1
_START_ATTEMPTS = 100
_START_PAUSE = 0.01
_LOOK_SECONDS = 0.05
_SIGKILL = 9  # `signal` imports `enum`
_CHUNK = 1024 * 1024
_CLONE, _PROGRAM = "clone", "program"  # the hands' own: no model can ask for them
_GROUPS = {_CLONE, _PROGRAM}
_FORKED = {"glob", "grep", *_GROUPS}
_MOST_DESCRIPTORS = 1024


class _Call:
    """A call that is running."""

    def __init__(self, message: dict[str, Any], timeout: float) -> None:
        self.id: int = message["id"]
        self.tool: str = message["tool"]
        self.input: dict[str, Any] = message["input"]
        self.spill: str = message["spill"]
        self.timeout = timeout
        self.started = time.monotonic()
        self.deadline = self.started + timeout
        self.retried = False
        self.pid = 0
        self.answer = bytearray()
        self.followed = False
        self.tell_at = 0.0
        self.told = 0


class Agent:
    """Serves one connection until it ends."""

    def __init__(
        self, connection: Connection, shell: Shell, forwarder: Forwarder | None = None
    ) -> None:
        self._connection = connection
        self._shell = shell
        self._forwarder = forwarder
        self._variables: dict[str, str] = {}
        self._poll = select.poll()
        self._command: _Call | None = None
        self._children: dict[int, _Call] = {}  # by the descriptor that their answer comes from

    def serve(self) -> None:
        """Runs until the host closes the connection."""
        self._poll.register(self._connection.fd, select.POLLIN)
        self._prepare_shell()
        if self._forwarder is not None:
            self._forwarder.start()  # while the shell starts
        while True:
            ready = self._poll.poll(self._wait())
            if self._shell.alive and self._shell.pidfd < 0:
                self._shell_ended()
            for fd, _ in ready:
                self._handle(fd)
            self._expire()
            if self._command is not None and self._command.followed:
                self._tell(self._command)

    def _wait(self) -> float | None:
        running = [call.deadline for call in self._children.values()]
        if self._command is not None:
            running.append(self._command.deadline)
            if self._shell.pidfd < 0:
                running.append(time.monotonic() + _LOOK_SECONDS)
            if self._command.followed and self._shell.output.untold:
                running.append(self._command.tell_at)
        # Rounded up: a poll that ends too early would only be repeated.
        return max(0.0, min(running) - time.monotonic()) * 1000 + 1 if running else None

    def _handle(self, fd: int) -> None:
        if fd == self._connection.fd:
            for message in self._connection.receive():
                self._receive(message)
        elif fd in self._children:
            self._read_child(fd)
        elif fd == self._shell.output_fd:
            if not self._shell.read_output():
                self._poll.unregister(fd)
        elif fd == self._shell.status_fd:
            status = self._shell.read_status()
            if status is not None and self._command is not None:
                self._end_command(self._take_output(), status)
        elif fd == self._shell.pidfd:
            self._shell_ended()

    def _receive(self, message: dict[str, Any]) -> None:
        if message["type"] == "cancel":
            self._cancel(message["id"])
            return
        if message["type"] == "follow":
            if self._command is not None and self._command.id == message["id"]:
                self._command.followed = message["on"]
            return
        if message["type"] == "variables":
            self._change_variables(message["values"])
            return
        if self._forwarder is not None:
            self._forwarder.start()
        call = _Call(message, message["timeout"])
        try:
            if call.tool == "bash":
                self._bash(call)
            elif call.tool in _FORKED or (
                call.tool == "read" and files.is_large(call.input["file_path"])
            ):
                self._fork(call)
            else:
                self._answer(call, _run(call))
        except OSError as error:
            text = f"{call.tool}: the sandbox could not run it: {error.strerror}"
            self._answer(call, {"text": text, "error": True})

    def _change_variables(self, values: dict[str, str]) -> None:
        """Has later commands find these, and no longer those that were told before."""
        gone = self._variables.keys() - values.keys()
        self._variables = values
        with ignoring(OSError):  # the next shell finds them
            self._shell.change(values, gone)

    # bash

    def _start_shell(self) -> None:
        self._shell.start()
        for fd in (self._shell.output_fd, self._shell.status_fd, self._shell.pidfd):
            if fd >= 0:
                self._poll.register(fd, select.POLLIN)

    def _prepare_shell(self) -> None:
        """Starts the next command's shell ahead of it."""
        with ignoring(OSError):  # that command tries again, and says what is wrong
            self._start_shell()

    def _force_shell(self) -> None:
        """Starts a shell, in the place of all that earlier commands left if there is no other.

        What was killed counts as a process until the kernel has cleared it away. Raises `OSError`.
        """
        for _ in range(_START_ATTEMPTS):
            try:
                self._start_shell()
            except OSError:
                self._kill_all()
                time.sleep(_START_PAUSE)
            else:
                return
        self._start_shell()

    def _bash(self, call: _Call) -> None:
        command: str = call.input.get("command", "")
        if call.input.get("restart"):
            self._kill_all()
            self._force_shell()
            if not command:
                self._answer(call, {"text": "bash session restarted"})
                return
        if not self._shell.alive:
            self._force_shell()
        self._command = call
        self._shell.submit(command, call.spill)

    def _end_command(self, output: str, status: int, note: str = "", ended: str = "") -> None:
        call, self._command = self._command, None
        if call is None:
            return
        if status and not note:
            note = f"[exit code {status}]"
        text = "\n".join(filter(None, (output, note)))
        self._answer(call, {"text": text, "error": bool(status), "ended": ended or "completed"})

    def _stop_command(self, note: str, ended: str) -> None:
        output = self._kill_all()
        self._end_command(output, 1, note, ended)
        self._prepare_shell()

    def _shell_ended(self) -> None:
        """The command ended the shell itself: `exit`, `exec`, `set -e`, a signal."""
        status = self._shell.reap(wait=False)
        if status is None:
            return  # the event was of an earlier shell with the same descriptor
        output = self._take_output()
        self._close_shell()
        if self._command is not None:
            code = f"[exit code {status}: the shell ended; the next command gets a new one]"
            self._end_command(output, status, code if status else "")
            self._prepare_shell()

    def _take_output(self) -> str:
        """What the command printed, whose last is told to whoever follows it."""
        self._shell.drain()
        if self._command is not None and self._command.followed:
            self._tell(self._command, last=True)
        return self._shell.output.finish()

    def _tell(self, call: _Call, *, last: bool = False) -> None:
        """Sends what a command that is followed has printed, if there is any and it is time."""
        now = time.monotonic()
        if not self._shell.output.untold or (now < call.tell_at and not last):
            return
        room = limits.FOLLOW_TOTAL - call.told
        if not room and not last:
            call.tell_at = call.deadline  # only how much is left out is still to be told
            return
        data, dropped = self._shell.output.tell(min(limits.FOLLOW_BYTES, room))
        call.told += len(data)
        call.tell_at = now + limits.FOLLOW_SECONDS
        text = data.decode("latin-1")  # a character for each byte: the host reads it as it came
        output = {"type": "output", "id": call.id, "text": text, "dropped": dropped}
        self._connection.send(output)

    def _close_shell(self) -> None:
        for fd in (self._shell.output_fd, self._shell.status_fd, self._shell.pidfd):
            with ignoring(KeyError, ValueError):  # its output had ended before, or there is none
                self._poll.unregister(fd)
        self._shell.close()

    def _kill_all(self) -> str:
        """Kills every process of the sandbox but this one and PID 1; what the command printed.

        Not the process group alone: what calls `setsid` must go too. The kernel does it in one
        step, so that a fork bomb cannot outrun it.
        """
        with ignoring(ProcessLookupError):
            posix.kill(-1, _SIGKILL)
        if not self._shell.alive:
            return ""
        output = self._take_output()
        self._shell.reap(wait=True)
        self._close_shell()
        return output

    # file tools in a child

    def _fork(self, call: _Call) -> None:
        read_end, write_end = posix.pipe2(posix.O_CLOEXEC)
        try:
            call.pid = posix.fork()
        except OSError:
            posix.close(read_end)
            posix.close(write_end)
            raise
        if call.pid == 0:
            _serve_child(call, write_end)
        posix.close(write_end)
        posix.set_blocking(read_end, False)
        call.answer.clear()
        self._children[read_end] = call
        self._poll.register(read_end, select.POLLIN)

    def _read_child(self, fd: int) -> None:
        call = self._children[fd]
        try:
            data = posix.read(fd, _CHUNK)
        except BlockingIOError:
            return  # the event was of an earlier child with the same descriptor
        if data:
            call.answer += data
            return
        _, status = posix.waitpid(call.pid, 0)
        self._forget_child(fd)
        if status == 0:
            self._answer(call, decode(call.answer))
        elif not call.retried:
            # Most likely it was killed together with a command that ran too long. It only reads.
            call.retried = True
            self._fork(call)
        else:
            text = f"{call.tool}: ended by the system; it may have needed too much memory"
            self._answer(call, {"text": text, "error": True})

    def _stop_child(self, fd: int, body: dict[str, Any]) -> None:
        call = self._children[fd]
        if call.tool in _GROUPS:
            with ignoring(ProcessLookupError):  # it has not come so far as to have a group
                posix.killpg(call.pid, _SIGKILL)
        posix.kill(call.pid, _SIGKILL)
        posix.waitpid(call.pid, 0)
        self._forget_child(fd)
        self._answer(call, body)

    def _forget_child(self, fd: int) -> None:
        del self._children[fd]
        self._poll.unregister(fd)
        posix.close(fd)

    # ends

    def _cancel(self, call_id: int) -> None:
        if self._command is not None and self._command.id == call_id:
            self._stop_command("[cancelled: its processes were killed]", "cancelled")
            return
        for fd, call in self._children.items():
            if call.id == call_id:
                self._stop_child(fd, {"text": "[cancelled]", "error": True, "ended": "cancelled"})
                return

    def _expire(self) -> None:
        now = time.monotonic()
        call = self._command
        if call is not None and now >= call.deadline:
            note = (
                f"bash: command timed out after {call.timeout:g}s; it and every process it started "
                "were killed, and the next command gets a new shell"
            )
            self._stop_command(note, "timeout")
        for fd, child in list(self._children.items()):
            if now >= child.deadline:
                text = f"{child.tool}: timed out after {child.timeout:g}s"
                self._stop_child(fd, {"text": text, "error": True, "ended": "timeout"})

    def _answer(self, call: _Call, body: dict[str, Any]) -> None:
        if "text" in body:
            # A command's output is bounded already, a read's names the file that it is from.
            text = body["text"]
            if call.tool not in {"bash", "read"}:
                text = spill(text, call.spill)
            body["text"] = clean(text)
        milliseconds = round((time.monotonic() - call.started) * 1000, 3)
        answer = {"type": "result", "id": call.id, "ended": "completed", "error": False}
        self._connection.send({**answer, "milliseconds": milliseconds, **body})


def _tool(name: str) -> Callable[..., dict[str, Any]]:
    if name in {"glob", "grep"}:
        from services.hands.runner import search  # noqa: PLC0415  # slow to import

        return {"glob": search.glob, "grep": search.grep}[name]
    if name == _CLONE:
        from services.hands.runner.clone import clone  # noqa: PLC0415  # slow to import

        return clone
    if name == _PROGRAM:
        from services.hands.runner.program import program  # noqa: PLC0415  # slow to import

        return program
    tools: dict[str, Callable[..., dict[str, Any]]]
    tools = {"read": files.read, "write": files.write, "edit": files.edit}
    return tools[name]


def _run(call: _Call) -> dict[str, Any]:
    try:
        return _tool(call.tool)(**call.input)
    except ToolFailure as failure:
        return {"text": str(failure), "error": True}
    except Exception as error:  # noqa: BLE001  # a tool that fails must not end the agent
        return {"text": f"{call.tool}: {type(error).__name__}: {error}", "error": True}


def _serve_child(call: _Call, write_end: int) -> None:
    """The forked child's whole life; never returns."""
    status = 1
    try:
        if call.tool in _GROUPS:
            posix.setsid()
        null = posix.open("/dev/null", posix.O_RDWR)
        for fd in (0, 1, 2):
            posix.dup2(null, fd)
        # Connections that are forwarded must not stay open because this process has them, too.
        posix.closerange(3, write_end)
        posix.closerange(write_end + 1, _MOST_DESCRIPTORS)
        view = memoryview(encode(_run(call)).encode("ascii"))
        while view:
            view = view[posix.write(write_end, view) :]
        status = 0
    finally:
        posix._exit(status)  # noqa: SLF001  # it has no other name


def _limit(values: dict[str, int]) -> None:
    for name, value in values.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)  # noqa: PLW2901
        resource.setrlimit(kind, (value, value))


def main() -> None:
    """What the main file runs, which has sent `ready`."""
    if posix.getppid() != 1 or not __file__.startswith("/run/agent/"):
        raise SystemExit("not in a sandbox: ending a command ends every process there is")
    run()
    posix._exit(0)  # noqa: SLF001  # the host is gone, and so is the sandbox


def run() -> None:
    """Waits for the host's `hello` and serves it, in a sandbox. Returns when the host is gone."""
    connection = Connection(IN_FD, OUT_FD)
    # Nothing runs before this: until then the host may set limits.
    messages: list[dict[str, Any]] = []
    while not messages:
        messages = connection.receive()
    hello = messages[0]
    _limit(hello["rlimits"])
    posix.chdir(WORKDIR)
    forward = hello["forward"]
    agent = Agent(
        connection,
        Shell(hello["directory"], hello["environment"]),
        Forwarder(forward["port"], forward["path"]) if forward else None,
    )
    connection.send({"type": "serving"})
    with ignoring(EOFError, BrokenPipeError, ConnectionResetError):
        agent.serve()
