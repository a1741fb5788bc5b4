"""How a command begins and ends as a process: its standard streams, the signals that end it, and its exit code."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""That end a command."""

REPEAT_S = 1.0
"""A signal that follows another so soon is the same wish: a shell, 'timeout' and a terminal may each send one. A later one is
somebody who does not want to wait."""

LOOK_S = 0.1
"""How often a server looks whether it is to stop."""

SIGNALLED = 128
"""Added to the number of a signal in the exit code, as shells do."""


class SignalledError(KeyboardInterrupt):
    """A signal came: the command ends, and leaves nothing half done. An interrupt to all that knows of interrupts."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """The signals that end a command. Before ``begin`` and after ``end`` they end the process at once.

    In between they raise SignalledError on the main thread. What is ignored, as 'nohup' leaves it, stays ignored.
    """

    def __init__(self) -> None:
        self.taken: int | None = None
        """The first that came while the command ran."""
        self.exit_code = 0
        """Of the command. That of a signal ends the process by the signal (``end_process``)."""
        self._is_running = False
        self._taken_s = 0.0
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                known = signal.getsignal(number)
                if known is not signal.SIG_IGN:
                    self._before[number] = known
                    signal.signal(number, signal.SIG_DFL)

    def begin(self) -> None:
        self._is_running = True
        for number in self._before:
            signal.signal(number, self._take)

    def end(self) -> None:
        """The command is over, whatever it has done to the handlers."""
        self._is_running = False
        for number in self._before:
            signal.signal(number, signal.SIG_DFL)

    def restore(self) -> None:
        for number, known in self._before.items():
            signal.signal(number, known)

    def end_process(self) -> None:
        """For ``atexit``: after all else that the interpreter's exit does, so register it first."""
        if self.exit_code > SIGNALLED:
            end_by(self.exit_code - SIGNALLED)

    def _take(self, number: int, _: FrameType | None) -> None:
        now_s = time.monotonic()
        if self._is_running and self.taken is None:
            self.taken, self._taken_s = number, now_s
            raise SignalledError(number)
        if not self._is_running or now_s - self._taken_s > REPEAT_S:
            end_by(number)


def end_by(number: int) -> None:
    """End this process as the signal does that nobody handles: who waits for it sees the signal."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


class StopSignal:
    """What SIGINT, SIGTERM and SIGHUP set from now on, in place of ending the process: for servers, which then end with 0."""

    def __init__(self) -> None:
        self._is_set = False
        for number in SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as 'nohup' leaves it
                signal.signal(number, self._take)

    def set(self) -> None:
        self._is_set = True

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is set, ``timeout`` seconds at most. An Event could block: the handler interrupts the thread that waits."""
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while not self._is_set:
            left_s = LOOK_S if deadline_s is None else min(LOOK_S, deadline_s - time.monotonic())
            if left_s <= 0:
                break
            time.sleep(left_s)
        return self._is_set

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        self._is_set = True


def open_streams() -> None:
    """Make the standard streams usable whatever the caller left of them.

    A closed one is /dev/null, so that no file and no connection of the command gets its number. What an encoding cannot write
    is escaped (``\\xfc``).
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, _null(number, mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _null(number: int, mode: str) -> Any:
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        os.set_inheritable(number, True)
        return open(number, mode, closefd=False)
    return open(os.devnull, mode)  # somebody else has the number by now


def give_up(stream: Any) -> None:
    """Nothing more can be written to ``stream``: the interpreter is not to try it again at its exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
