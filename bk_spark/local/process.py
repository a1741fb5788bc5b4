"""Child processes that never outlive their owner, the process that started them.

The first child is a small *keeper* process. It leads a process group that every other child joins, and it holds the read end
of a pipe whose write end only the owner has. When the owner is gone, whatever ended it, SIGKILL included, the pipe ends, and
the keeper kills the group with SIGKILL, suspended processes too. A process that the owner forked may keep the pipe open, so
the keeper also checks once a second whether its parent is still the owner.

Linux's PR_SET_PDEATHSIG is not used: it follows the *thread* that forked, so children started from a worker thread would die
with that thread; it needs code between fork and exec; and other systems lack it. A list of pids is not used because a pid may
be given to another process meanwhile.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from bk_spark.errors import ConfigError, ProcessFailedError, State
from bk_spark.local.place import ClusterDirectory, storage_errors
from bk_spark.local.ports import HOST

START_S = 60.0
"""How long a process may take until it serves. ZooKeeper takes half a second, a bookie one or two; more on a busy machine."""

STOP_S = 15.0
"""How long a process may take to end after SIGTERM before it is killed."""

_POLL_S = 0.02
_LOG_TAIL_BYTES = 4096
_LOG_TAIL_LINES = 20

_KEEPER = """\
import os, select, shutil, signal, sys, time
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
owner, temporary, inode, group = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), os.getpgrp()
while os.getppid() == owner and not select.select([0], [], [], 1.0)[0]:
    pass
if os.fork() == 0:
    os.setpgid(0, 0)
    os.killpg(group, signal.SIGKILL)
    for _ in range(200):
        try:
            os.killpg(group, 0)
        except OSError:
            break
        time.sleep(0.05)
    if temporary and os.path.exists(temporary) and os.stat(temporary).st_ino == inode:
        shutil.rmtree(temporary, ignore_errors=True)
"""
"""The keeper's program. Arguments: the owner's pid, the directory to remove or "", and its inode. Standard input: the pipe.

The end of the owner orphans the group. If a member is suspended, the kernel then sends SIGHUP to the whole group: the keeper
ignores it. The keeper's fork leaves the group, kills it, and removes files only after all its members have ended.
"""

logger = logging.getLogger(__name__)


class Keeper:
    """The keeper process: kills the other children when this process is gone, and holds the locks of the data directory.

    Only the keeper holds the locks. So they are free once the last process that could write to the directory has ended, and no
    process that the owner forked keeps them.
    """

    def __init__(self, data_dir: Path, temporary: bool) -> None:
        self.place = ClusterDirectory(data_dir)
        try:
            locks = self.place.lock()
        except BaseException:
            self.place.close()
            raise
        removed = str(data_dir) if temporary else ""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _KEEPER, str(os.getpid()), removed, str(self.place.inode[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=locks,
            process_group=0,
        )
        for lock in locks:
            os.close(lock)

    def spawn(self, command: Sequence[str], log: BinaryIO, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a child in the keeper's group, with ``environment`` added to this process's own.

        Its working directory is the data directory: it follows that, and imports no module of the user's.
        """
        self.check_alive()
        package = str(Path(__file__).resolve().parents[2])
        python_path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
        return subprocess.Popen(
            command,
            cwd=self.place.inside,
            env={**os.environ, **environment, "PYTHONPATH": python_path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=self._process.pid,
        )

    def check_alive(self) -> None:
        """Raise ConfigError without the keeper: nobody keeps others out of the directory any more."""
        if self._process.poll() is not None:
            raise ConfigError(
                "the local cluster", State("closed"), "nothing can be started in it any more: make a new LocalCluster"
            )

    def kill_all(self) -> None:
        """SIGKILL to every child at once, and to the keeper."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        # All children have ended. The keeper is killed before its pipe ends, for it has nothing left to do.
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self.place.close()


class LocalProcess:
    """One child process, with its log."""

    _host = HOST
    """Where it listens."""

    def __init__(self, keeper: Keeper, directory: Path, port: int) -> None:
        self.port = port
        self.log = directory / "log" / f"{directory.name}.log"
        self._name = directory.name
        self._directory = directory
        self._keeper = keeper
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        """Where the log of the last start begins."""

    @property
    def _inside(self) -> Path:
        """Its directory, for what this process writes there."""
        return self._keeper.place.here(self._directory)

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        child = self._child
        return child.pid if child is not None and child.poll() is None else None

    @property
    def exit_status(self) -> int | None:
        """How it ended, -N for signal N; None if it runs, or never did."""
        return self._child.poll() if self._child is not None else None

    @property
    def is_port_taken(self) -> bool:
        """Whether another program listens on the port of this process, which does not run."""
        return self.pid is None and self._accepts()

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        child = self._running()
        child.kill()
        child.wait()

    def stop(self) -> None:
        """SIGTERM, and wait for the end. If it lives on for ``STOP_S``, kill it and raise ProcessFailedError."""
        self._running()
        if not self.end(time.monotonic() + STOP_S):
            raise self._failure(f"did not end within {STOP_S:g} s after SIGTERM and was killed")

    def suspend(self) -> None:
        """SIGSTOP, and wait until all its threads stand still. It keeps its connections, and does nothing until ``resume``."""
        child = self._running()
        child.send_signal(signal.SIGSTOP)
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT."""
        self._running().send_signal(signal.SIGCONT)

    def ask_to_end(self) -> None:
        """Send SIGTERM, and resume it if it is suspended; nothing if it does not run."""
        if self.pid is not None and self._child is not None:
            self._child.terminate()
            self._child.send_signal(signal.SIGCONT)

    def end(self, deadline: float) -> bool:
        """Ask it to end, and kill it at ``deadline``. Returns whether it ended by itself."""
        self.ask_to_end()
        if self._child is None:
            return True
        try:
            self._child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
            return False
        return True

    def check_stopped(self) -> None:
        """Raise ConfigError if it runs."""
        if self.pid is not None:
            raise ConfigError(self._name, State(f"running as process {self.pid}"), "stop() or kill() it first")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            raise ConfigError(self._name, State("not running"), "start() it first")
        return self._child

    def _launch(self, command: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})) -> None:
        self.check_stopped()
        with storage_errors(self.log):
            (self._inside / "log").mkdir(parents=True, exist_ok=True)
            log = (self._inside / "log" / self.log.name).open("ab")
        with log:
            self._log_start = log.tell()
            self._child = self._keeper.spawn(_shown(command, self._directory), log, environment)

    def _await(self, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_S
        while not is_ready():
            if self.pid is None and self._child is not None:
                raise self._failure(f"ended with exit status {self._child.returncode} before it was ready")
            if time.monotonic() >= deadline:
                raise self._failure(f"was not ready within {START_S:g} s")
            time.sleep(_POLL_S)

    def _accepts(self) -> bool:
        try:
            socket.create_connection((self._host, self.port), timeout=1.0).close()
        except OSError:
            return False
        return True

    def _failure(self, problem: str) -> ProcessFailedError:
        tail: list[str] = []
        with suppress(OSError), (self._inside / "log" / self.log.name).open("rb") as log:
            log.seek(max(self._log_start, os.fstat(log.fileno()).st_size - _LOG_TAIL_BYTES))
            tail = log.read().decode(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        return ProcessFailedError(self._name, problem, str(self.log), "\n".join(tail))


def end_all(processes: Sequence[LocalProcess]) -> None:
    """End them all at once, and wait for all of them. Logs those that had to be killed."""
    for process in processes:
        process.ask_to_end()
    deadline = time.monotonic() + STOP_S
    for process in processes:
        if not process.end(deadline):
            text = "a process of the local cluster did not end within %g s after SIGTERM and was killed: %s"
            logger.warning(text, STOP_S, process.log)


def _shown(command: Sequence[str], directory: Path) -> list[str]:
    """The command, with the directory for ``ps``: the paths that the process gets are relative."""
    at = command.index("-m") if "-m" in command else len(command)
    return [*command[:at], *(["-X", f"bk_spark={directory}"] if "-m" in command else []), *command[at:]]
