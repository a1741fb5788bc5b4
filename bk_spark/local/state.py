"""What a local cluster keeps about itself: ``<data_dir>/cluster.json``.

``mark`` says in which directory it was written (place.py), and ``in_use`` whether processes of the cluster ran then. A copy of
a directory that was in use is no snapshot: its files are of different moments, so confirmed rows may be missing in it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bk_spark.errors import ConfigError, CorruptionError, FormatVersionError
from bk_spark.local.place import ClusterDirectory, storage_errors

STATE_FILE = "cluster.json"
STATE_VERSION = 1

MAX_FORMER_PORTS = 256
"""Ports of the directories of which this one is a copy: those of sixty generations of three bookies and ZooKeeper."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Of a new directory as it stands."""

    zookeeper_port: int | None = None
    bookie_ports: tuple[int | None, ...] = ()
    mark: str = ""
    """Of the directory in which this was written; "" if unknown."""
    in_use: bool = False
    renewal: str = ""
    """The instance id that a copy is about to get."""
    former_ports: tuple[int, ...] = ()
    """Never used again: clients of the original may look for its bookies there, which have the same ids."""
    tls: bool = False
    """Whether ZooKeeper spoke TLS when this was written."""

    def is_copied(self, mark: str) -> bool:
        return self.mark not in ("", mark)

    def of_a_copy(self, renewal: str) -> ClusterState:
        """Without the ports of the original."""
        ports = (port for port in (self.zookeeper_port, *self.bookie_ports) if port is not None)
        former = tuple(dict.fromkeys((*self.former_ports, *ports)))[-MAX_FORMER_PORTS:]
        nothing = (None,) * len(self.bookie_ports)
        return dataclasses.replace(
            self, zookeeper_port=None, bookie_ports=nothing, former_ports=former, renewal=self.renewal or renewal
        )


def check_snapshot(state: ClusterState, place: ClusterDirectory) -> None:
    """Raise ConfigError for a copy that was made while the original was in use."""
    if state.in_use and state.is_copied(place.mark):
        remedy = (
            "it is a copy that was made while the original was in use, or had not ended properly, so confirmed rows may be "
            "missing: make one of the original with 'bk-spark local copy FROM TO', or take it as it is with "
            f"{accept_command(place)}"
        )
        raise ConfigError("data_dir", str(place.path), remedy)


def accept_command(place: ClusterDirectory) -> str:
    return f"'bk-spark local accept-copy {shlex.quote(str(place.path))}'"


def read_state(place: ClusterDirectory) -> ClusterState:
    """As of a new directory if there is no file (parts.py says where that is no new one).

    Raises CorruptionError, FormatVersionError, ConfigError.
    """
    shown = place.path / STATE_FILE
    try:
        return _read(place, shown)
    except CorruptionError as problem:
        remedy = f"put back the directory as a whole, from one backup, or take it as it is with {accept_command(place)}"
        raise CorruptionError(problem.what, f"{problem.problem}: {remedy}") from problem


def _read(place: ClusterDirectory, shown: Path) -> ClusterState:
    try:
        text = (place.inside / STATE_FILE).read_text()
    except FileNotFoundError:
        return ClusterState()
    except UnicodeDecodeError as problem:
        raise CorruptionError(str(shown), "it is not UTF-8 text") from problem
    except OSError as problem:
        raise ConfigError("data_dir", str(place.path), f"{STATE_FILE} cannot be read ({problem.strerror})") from problem
    try:
        fields = json.loads(text)
    except ValueError as problem:
        raise CorruptionError(str(shown), f"it is not JSON ({problem})") from problem
    if not isinstance(fields, dict) or not isinstance(fields.get("version"), int):
        raise CorruptionError(str(shown), "it has no version")
    if fields["version"] > STATE_VERSION:
        raise FormatVersionError(str(shown), fields["version"], STATE_VERSION)
    return _state(fields, shown)


def write_state(place: ClusterDirectory, state: ClusterState) -> None:
    """Durable when it returns. Raises StorageError."""
    write_json(place, STATE_FILE, {"version": STATE_VERSION, **dataclasses.asdict(state)})


def write_json(place: ClusterDirectory, name: str, value: Mapping[str, object], mode: int = 0o600) -> None:
    """Replace a small file of the directory, durably: it has the old content, or the new. Raises StorageError."""
    path = place.inside / name
    temporary = path.with_suffix(".creating")
    with storage_errors(place.path / name):
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        os.fsync(place.descriptor)


def _state(fields: Mapping[str, Any], shown: Path) -> ClusterState:
    ports = fields.get("bookie_ports", [])
    former = fields.get("former_ports", [])
    texts = {name: fields.get(name, "") for name in ("mark", "renewal")}
    if not isinstance(ports, list) or not isinstance(former, list) or not all(isinstance(one, str) for one in texts.values()):
        raise CorruptionError(str(shown), "a field of it has the wrong type")
    zookeeper = fields.get("zookeeper_port")
    if not all(one is None or (isinstance(one, int) and 0 < one < 65536) for one in (zookeeper, *ports, *former)):
        raise CorruptionError(str(shown), "it names a port that there is not")
    in_use, tls = (fields.get(name) is True for name in ("in_use", "tls"))
    return ClusterState(zookeeper, tuple(ports), in_use=in_use, former_ports=tuple(former), tls=tls, **texts)
