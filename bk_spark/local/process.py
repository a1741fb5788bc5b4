"""Child processes that never outlive their owner.

**Nothing outlives the owner.** Before anything else a small *keeper* process is started. It leads a process group that
every other child joins, and holds the read end of a pipe whose write end only the owner has. When the owner is gone, by
whatever way, SIGKILL included, the pipe ends, and the keeper kills the group with SIGKILL, suspended processes too. Linux's
PR_SET_PDEATHSIG was not taken: it follows the *thread* that forked, so children started from a worker thread would die
with that thread; it needs code between fork and exec; and other systems lack it. A group instead of a list of pids
cannot name a pid that was given to somebody else meanwhile. Children that the owner has merely forked keep the pipe open:
therefore the keeper also looks once a second whether it still has its parent.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from bk_spark.errors import ConfigError, ProcessFailedError

HOST = "127.0.0.1"

START_S = 60.0
"""How long a process may take until it serves. ZooKeeper takes half a second, a bookie one or two, busy machines more."""

STOP_S = 15.0
"""How long a process may take to end after SIGTERM before it is killed."""

_POLL_S = 0.02
_LOG_TAIL_BYTES = 4096
_LOG_TAIL_LINES = 20

_KEEPER = """\
import os, select, shutil, signal, sys, time
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
owner, temporary, group = int(sys.argv[1]), sys.argv[2], os.getpgrp()
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
    if temporary:
        shutil.rmtree(temporary, ignore_errors=True)
"""
"""The keeper's program: owner's pid and the directory to remove (or "") as arguments, the pipe as standard input.

The end of the owner orphans the group, and where a member is suspended the kernel then sends SIGHUP to all of it: the
keeper must live on. Its fork leaves the group before it kills it, and waits for the end of all before it removes files.
"""

logger = logging.getLogger(__name__)


class Keeper:
    """The process that ends all others when this one is gone (see above), and holds the lock of the data directory.

    The lock is the keeper's alone: it is free only when the last process that could write to the directory has ended, and
    not kept by children that the owner has forked.
    """

    def __init__(self, data_dir: Path, temporary: bool) -> None:
        lock = _lock(data_dir)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _KEEPER, str(os.getpid()), str(data_dir) if temporary else ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(lock,),
            process_group=0,
        )
        os.close(lock)

    def spawn(
        self, command: Sequence[str], directory: Path, log: BinaryIO, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """A child in the keeper's group. It starts in ``directory``, so that no module of the user's directory is imported.

        ``environment`` is added to this process's own.
        """
        if self._process.poll() is not None:
            raise ConfigError("the local cluster", "closed", "nothing can be started in it any more: make a new LocalCluster")
        package = str(Path(__file__).resolve().parent.parent)
        python_path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
        return subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, **environment, "PYTHONPATH": python_path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=self._process.pid,
        )

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        # Killed before its pipe ends: there is nothing left to do for it.
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


class LocalProcess:
    """One child process: its signals, its end, its log."""

    def __init__(self, keeper: Keeper, directory: Path, port: int) -> None:
        self.port = port
        self.log = directory / "log" / f"{directory.name}.log"
        self._name = directory.name
        self._directory = directory
        self._keeper = keeper
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id; None while it does not run."""
        child = self._child
        return child.pid if child is not None and child.poll() is None else None

    @property
    def address(self) -> str:
        """``host:port`` that it listens on."""
        return f"{HOST}:{self.port}"

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        child = self._running()
        child.kill()
        child.wait()

    def stop(self) -> None:
        """SIGTERM, and wait for the end. Raises ProcessFailedError if it had to be killed after ``STOP_S``."""
        self._running()
        if not self.end(time.monotonic() + STOP_S):
            raise self._failure(f"did not end within {STOP_S:g} s after SIGTERM and was killed")

    def suspend(self) -> None:
        """SIGSTOP: it lives, keeps its connections, and does nothing until ``resume``."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._running().send_signal(signal.SIGCONT)

    def ask_to_end(self) -> None:
        """SIGTERM, to a suspended process too; nothing if it does not run."""
        if self.pid is not None and self._child is not None:
            self._child.terminate()
            self._child.send_signal(signal.SIGCONT)

    def end(self, deadline: float) -> bool:
        """Ask, wait until ``deadline``, then kill. Whether it ended by itself."""
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
            raise ConfigError(f"the state of {self._name}", f"running as process {self.pid}", "stop() or kill() it first")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            raise ConfigError(f"the state of {self._name}", "not running", "start() it first")
        return self._child

    def _launch(self, command: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})) -> None:
        self.check_stopped()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._child = self._keeper.spawn(command, self._directory, log, environment)

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
            socket.create_connection((HOST, self.port), timeout=1.0).close()
        except OSError:
            return False
        return True

    def _failure(self, problem: str) -> ProcessFailedError:
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - _LOG_TAIL_BYTES))
            tail = log.read().decode(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        return ProcessFailedError(self._name, problem, str(self.log), "\n".join(tail))


def end_all(processes: Sequence[LocalProcess]) -> None:
    for process in processes:
        process.ask_to_end()
    deadline = time.monotonic() + STOP_S
    for process in processes:
        if not process.end(deadline):
            logger.warning(
                "a process of the local cluster did not end within %g s after SIGTERM and was killed: %s", STOP_S, process.log
            )


@contextlib.contextmanager
def reserved_port(wanted: int | None) -> Iterator[int]:
    """A port for a child: ``wanted`` if it is free, otherwise any.

    On Linux a socket stays bound to it without listening, which lets the child bind (both set SO_REUSEADDR) and keeps
    everybody who asks for *any* port away, also while the child is down. Elsewhere that would keep the child out too.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind((HOST, wanted or 0))
        except OSError:
            holder.bind((HOST, 0))
        port = int(holder.getsockname()[1])
        if sys.platform != "linux":
            holder.close()
        yield port


def _lock(data_dir: Path) -> int:
    descriptor = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        os.close(descriptor)
        raise ConfigError("data_dir", str(data_dir), "another local cluster uses it: close that one first") from problem
    return descriptor
