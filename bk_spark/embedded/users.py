"""Who uses the cluster of ``embedded:DIR``: connections, and processes that they named."""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable

from bk_spark.embedded.join import FULL, MAX_USERS

MAX_WORDS_BYTES = 4096
"""Of what a user says at a time: the ids of a few processes."""

MAX_PROCESSES = 2 * MAX_USERS
"""Users name one process each, and newcomers are refused while MAX_USERS are watched."""

_POLL_S = 0.1


class Users:
    """The connections of users, and the processes for which they use the cluster."""

    def __init__(self, listener: socket.socket, token: str, prepare: Callable[[], bool]) -> None:
        """``prepare`` is called before a user is greeted, who then finds the whole cluster serving; False takes nobody in."""
        self._listener = listener
        self._token = token
        self._prepare = prepare
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._welcome)
        self.connections: set[socket.socket] = set()
        self.processes: dict[int, int] = {}
        """The descriptor of each process, which is readable once it has ended."""

    def __bool__(self) -> bool:
        return bool(self.connections or self.processes)

    def look(self) -> None:
        """Take in who came and who went, for a moment."""
        for key, _ in self._selector.select(_POLL_S):
            key.data()

    def _welcome(self) -> None:
        try:
            user, _ = self._listener.accept()
        except OSError:
            return
        is_full = max(len(self.connections), len(self.processes)) >= MAX_USERS
        greeting = f"{self._token}{FULL}\n" if is_full else f"{self._token}\n"
        try:
            if not is_full and not self._prepare():
                user.close()
                return
            user.sendall(greeting.encode())
        except OSError:
            is_full = True
        if is_full:
            user.close()
            return
        user.setblocking(False)
        self.connections.add(user)
        self._selector.register(user, selectors.EVENT_READ, lambda: self._hear(user))

    def _hear(self, user: socket.socket) -> None:
        try:
            words = user.recv(MAX_WORDS_BYTES)
        except OSError:
            words = b""
        for word in words.split():
            if word.isdigit():
                self._watch(int(word))
        if not words:
            self._selector.unregister(user)
            self.connections.remove(user)
            user.close()

    def _watch(self, pid: int) -> None:
        if pid in self.processes or len(self.processes) >= MAX_PROCESSES or not hasattr(os, "pidfd_open"):
            return
        try:
            self.processes[pid] = os.pidfd_open(pid)
        except (OSError, OverflowError):
            return
        self._selector.register(self.processes[pid], selectors.EVENT_READ, lambda: self._ended(pid))

    def _ended(self, pid: int) -> None:
        descriptor = self.processes.pop(pid)
        self._selector.unregister(descriptor)
        os.close(descriptor)
