"""Two gateway processes on fixed ports, each of which lives, is killed, and begins again."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from tests.checkout import ROOT

CALLS = 300
"""Of a gateway until it dies by itself: some appends."""
LONGEST_S = 6.0
"""Until one is killed from outside."""
PATIENCE_S = 30.0
"""For one that is to die at a call, and gets few of them."""


PORTS = range(20_000, 30_000)
"""Below those that the kernel gives to connections: a port is still free when the next life begins."""


def free_port(chance: random.Random) -> int:
    while True:
        port = chance.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class GatewayLives:
    """One gateway, from life to life. ``told``: called with each difference."""

    def __init__(self, uri: str, bug: str, seed: int, told: Callable[[str], None]) -> None:
        self.killed = self.died = 0
        """From outside, and by itself at a call."""
        self._uri = uri
        self._bug = bug
        self._chance = random.Random(seed)
        self.port = free_port(self._chance)
        self._told = told
        self._process: subprocess.Popen[str] | None = None

    def be_killed(self, kills: int, over: threading.Event) -> None:
        """Live so many lives, each to its sudden end."""
        for _ in range(kills):
            if over.is_set():
                return
            call = self._chance.randint(1, CALLS) if self._chance.random() < 0.5 else 0
            if not self._begin(call):
                continue
            assert self._process is not None
            try:
                self._process.wait(PATIENCE_S if call else self._chance.uniform(0.1, LONGEST_S))
                self.died += 1
            except subprocess.TimeoutExpired:
                self._process.kill()
                self.killed += 1
            self._end(self._process)

    def live_on(self) -> None:
        """Begin a life that nobody ends but ``stop``."""
        if not self._begin(0):
            self._told("a gateway does not start")

    def stop(self) -> None:
        """Ask it to end, and wait until its open calls have ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            if self._process.wait(PATIENCE_S) != 0:
                self._told(f"a gateway that was told to end ended with {self._process.returncode}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _begin(self, call: int) -> bool:
        """Whether it came as far as to serve."""
        words = ["gateway", "--metadata", self._uri, "--open", "--port", str(self.port), "--json"]
        command = [sys.executable, "-m", "tests.soak.gateway.agent", str(call), self._bug, *words]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            return bool(json.loads(line)["url"])
        self.died += 1
        self._end(self._process)
        return False

    def _end(self, process: subprocess.Popen[str]) -> None:
        if process.wait() != -signal.SIGKILL:
            self._told(f"a gateway ended by itself with {process.returncode}")
        assert process.stdout is not None
        process.stdout.close()
