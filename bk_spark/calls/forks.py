"""Whether this process was forked from one that used a client. None of the client's threads is in it, so nothing would answer.

Ref: DESIGN.md, "Protocol": gRPC ends such a process, or hangs in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet

from bk_spark.errors import ConfigError, State


class EndsInChild(Protocol):
    def forked(self) -> None:
        """This is a forked process: fail what waits. No other thread runs."""


_in_use: WeakSet[EndsInChild] = WeakSet()
_used_by: int | None = None
_forked_from: int | None = None


def used_here() -> None:
    """From here on a fork of this process cannot use a client. Raises as ``check_process``."""
    global _used_by
    check_process()
    _used_by = os.getpid()


def end_in_child(waiting: EndsInChild) -> None:
    """Have ``waiting`` told in every process that is forked while it is in use."""
    _in_use.add(waiting)


def check_process() -> None:
    """Raise ConfigError in a process that was forked from one with a client."""
    if _forked_from is not None:
        raise refusal()


def is_forked() -> bool:
    return _forked_from is not None


def refusal() -> ConfigError:
    """Why nothing of a client works here."""
    what = f"a call of the client, in a process forked from process {_forked_from}, which has used one,"
    return ConfigError(what, State("not possible"), "start the process with multiprocessing's method spawn or forkserver")


def _after_fork_in_child() -> None:
    global _forked_from
    if _used_by is None:
        return
    _forked_from = _used_by
    for waiting in list(_in_use):
        _quietly(waiting.forked)


def _quietly(call: Callable[[], None]) -> None:
    """What one of them raises, such as for memory, must not keep it from the others."""
    try:
        call()
    except Exception:
        return


os.register_at_fork(after_in_child=_after_fork_in_child)
