"""The TLS files of a client or a bookie, and their last good content.

Files are reloaded when they change, without a restart. New connections use the new content; open ones go on. If the files do
not fit together (half written, or the key not replaced yet), the former content stays in use, the problem is logged once, and
the files are read again at their next change.

Bookies need no host name in their settings: clients check a bookie's certificate against the host that it registered.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bk_spark.config import TLS_NAMES, BookieConfig, ClientConfig
from bk_spark.errors import ConfigError

LOOK_S = 1.0
"""The shortest time between two looks of a bookie at its files: later handshakes see a rotation after at most this."""

MAX_FILE_BYTES = 1024 * 1024
"""The largest size of a file. The bundle of all public authorities has a fifth of that."""

_OTHERS = 0o007
"""The permission bits of users who are neither the owner of a file nor in its group."""

logger = logging.getLogger(__name__)
_warned_of: set[str] = set()


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files; an empty string is none. If all three are empty there is no TLS."""

    ca: str
    certificate: str
    key: str

    @classmethod
    def of(cls, config: ClientConfig | BookieConfig) -> TlsFiles | None:
        """The files that the settings name; None without TLS."""
        files = cls(config.tls_ca, config.tls_certificate, config.tls_key)
        return files if files.ca or files.certificate else None

    def paths(self) -> dict[str, Path]:
        """The given files by the name of their setting."""
        named = {"tls_ca": self.ca, "tls_certificate": self.certificate, "tls_key": self.key}
        return {name: Path(path) for name, path in named.items() if path}


@dataclass(frozen=True, slots=True, eq=False)
class TlsContent:
    """The content of the files when they last fitted together. None for a file that is not given."""

    ca: bytes | None
    certificate: bytes | None
    key: bytes | None = field(repr=False)


class TlsSource:
    """The last good content of the files. Safe for any thread."""

    def __init__(self, files: TlsFiles, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Raises ConfigError with the setting and the path if the files cannot be used."""
        self.files = files
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._seen = _stamps(files)
        self._looked_s = clock_s()
        self._content = load(files)
        if files.key:
            warn_of_open_file(files.key)

    def content(self, look_s: float = 0.0) -> TlsContent:
        """The content at most ``look_s`` ago. The same object until it changes."""
        with self._lock:
            if self._clock_s() - self._looked_s >= look_s:
                self._look()
            return self._content

    def _look(self) -> None:
        self._looked_s = self._clock_s()
        stamps = _stamps(self.files)
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            self._content = load(self.files)
        except ConfigError as problem:
            logger.warning("TLS files changed and cannot be used yet, the former ones stay in use: %s", problem)
        else:
            logger.info("TLS files changed: new connections use them (%s)", ", ".join(map(str, self.files.paths().values())))


def check_files(config: ClientConfig | BookieConfig) -> None:
    """Raise ConfigError if the settings name files that cannot be used. To be called before connecting."""
    files = TlsFiles.of(config)
    if files is not None:
        load(files)


def load(files: TlsFiles) -> TlsContent:
    """Read the files and check that the key belongs to the certificate. Raises ConfigError."""
    from bk_spark.tls.certificates import check_certificates, check_key

    found = {name: _read(name, path) for name, path in files.paths().items()}
    for name in ("tls_ca", "tls_certificate"):
        if name in found:
            check_certificates(TLS_NAMES[name], str(files.paths()[name]), found[name])
    if "tls_key" in found:
        check_key(TLS_NAMES["tls_key"], files.key, found["tls_key"], found["tls_certificate"])
    return TlsContent(found.get("tls_ca"), found.get("tls_certificate"), found.get("tls_key"))


def _read(name: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            found = file.read(MAX_FILE_BYTES + 1)
    except OSError as problem:
        raise ConfigError(TLS_NAMES[name], str(path), f"it cannot be read ({problem.strerror}): name a PEM file") from problem
    if len(found) > MAX_FILE_BYTES:
        raise ConfigError(TLS_NAMES[name], str(path), f"it has more than {MAX_FILE_BYTES} bytes: name a PEM file")
    return found


def _stamps(files: TlsFiles) -> list[tuple[int, int, int] | None]:
    """What changes with each file; None for a missing one."""
    return [stamp(path) for path in files.paths().values()]


def stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes with a file; None while there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def warn_of_open_file(path: str) -> None:
    """Warn, once in a process's life, if everybody can read a file that should be secret."""
    if path not in _warned_of and Path(path).stat().st_mode & _OTHERS:
        _warned_of.add(path)
        logger.warning("%s can be read by everybody on this machine: chmod 600 it", path)
