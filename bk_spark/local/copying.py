"""The supported copy of a local cluster's directory: of a moment at which no process of the cluster runs."""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bk_spark.embedded.owners import refusal_of_cluster
from bk_spark.errors import ConfigError, CorruptionError
from bk_spark.local.contents import bookies_in, check_zookeeper, whole_state
from bk_spark.local.place import ClusterDirectory, DataDirectoryInUseError, storage_errors
from bk_spark.local.state import STATE_FILE, ClusterState, read_state, write_state

UNKNOWN_MARK = "unknown"
"""Of the directory in which a cluster was whose state file is lost. No directory has it."""

WAIT_S = 15.0
"""For a cluster that is about to end: one of ``embedded:DIR`` waits 5 s for further users, and stops within seconds."""

_LEFT_OUT = ("lock", "embedded.json", "embedded.lock", "embedded.log", "*.creating", "remains-*", "log")
"""Of the running cluster alone. ``log`` is the folder of the logs of each process."""

_POLL_S = 0.1


def copy_cluster(source: Path, target: Path) -> None:
    """Make ``target`` a copy of the stopped cluster in ``source``: a cluster of its own, with the same rows.

    The name ``target`` appears when everything is there, durably. Raises ConfigError if there is no cluster, if it is in use,
    if it is itself a copy that was made in use, or if ``target`` exists; StorageError.
    """
    source, target = source.resolve(), target.resolve()
    if target.exists():
        raise ConfigError("the directory to copy to", str(target), "it exists: name a new one")
    if target.is_relative_to(source):
        raise ConfigError("the directory to copy to", str(target), f"it is inside of {source}: name one elsewhere")
    if refusal := refusal_of_cluster(target):
        raise ConfigError("the directory to copy to", str(target), refusal)
    making = target.with_name(f".{target.name}.copying-{secrets.token_hex(4)}")
    with _held(source) as place, storage_errors(target):
        state = whole_state(place)
        place.check_unshared()
        try:
            shutil.copytree(place.inside, making, ignore=shutil.ignore_patterns(*_LEFT_OUT))
            copy = ClusterDirectory(making)
            write_state(copy, dataclasses.replace(state, mark=f"copied from {place.mark}", in_use=False))
            copy.close()
            os.sync()
            making.rename(target)
        except shutil.Error as problem:
            raise OSError(0, str(problem.args[0][0][2])) from problem
        finally:
            shutil.rmtree(making, ignore_errors=True)


def accept_copy(directory: Path) -> bool:
    """Have a cluster start although confirmed rows may be missing in it.

    That is a copy that was made while the original was in use, and a directory whose state file is missing or damaged, which
    counts as a copy from then on. False for any other one, which is not changed. Raises ConfigError if there is no cluster, if
    it is in use, or if its ZooKeeper's data are missing; FormatVersionError; StorageError.
    """
    with _held(directory.resolve()) as place:
        check_zookeeper(place)
        state = None
        with suppress(CorruptionError):
            state = read_state(place) if (place.inside / STATE_FILE).exists() else None
        if state is None:
            numbers = [number for number, _ in bookies_in(place)]
            state = ClusterState(bookie_ports=(None,) * max(numbers, default=0), mark=UNKNOWN_MARK)
        elif not (state.in_use and state.is_copied(place.mark)):
            return False
        write_state(place, dataclasses.replace(state, in_use=False))
    return True


@contextmanager
def _held(directory: Path) -> Iterator[ClusterDirectory]:
    """The cluster's directory, in which nothing runs meanwhile."""
    place = ClusterDirectory(directory)
    deadline_s = time.monotonic() + WAIT_S
    try:
        if not (directory / STATE_FILE).exists() and not bookies_in(place):
            raise ConfigError("the directory", str(directory), "there is no local cluster in it")
        while True:
            try:
                locks = place.lock()
                break
            except DataDirectoryInUseError:
                if time.monotonic() >= deadline_s:
                    remedy = "its cluster is in use: end what uses it, and run this again"
                    raise ConfigError("the directory", str(directory), remedy) from None
                time.sleep(_POLL_S)
        try:
            yield place
        finally:
            for lock in locks:
                os.close(lock)
    finally:
        place.close()
