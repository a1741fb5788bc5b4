"""TLS between clients and bookies: the files of one side, held as they last were good, and gRPC's credentials of them.

Files are read again when they change, without a restart. A new connection takes what stands in them then; those that
stand already go on. Files that do not fit together (half written, or the key not yet replaced) leave what was there before in
use, are logged once, and are looked at again with their next change.

Bookies name no host: their certificate is checked by clients, against the host of the address that the bookie registered.

``time`` and ``threading`` are here, against the import table: gRPC asks for a server's files in threads of its own, once for
each handshake, and the disk is asked once a second at most.

Ref: gRPC's ``dynamic_ssl_server_credentials``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from bk_spark.config import TLS_NAMES, BookieConfig, ClientConfig
from bk_spark.errors import ConfigError

LOOK_S = 1.0
"""How often a bookie looks at its files at most: a rotation is seen by the handshakes that begin after so long."""

MAX_FILE_BYTES = 1024 * 1024
"""The largest of these files. The bundle of all public authorities has a fifth of that."""

_OTHERS = 0o007
"""The rights of those who are neither the owner of a file nor in its group."""

logger = logging.getLogger(__name__)
_told_of: set[str] = set()


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files; an empty text is none. With all three empty there is no TLS."""

    ca: str
    certificate: str
    key: str

    @classmethod
    def of(cls, config: ClientConfig | BookieConfig) -> TlsFiles | None:
        """Those that the settings name; None without TLS."""
        files = cls(config.tls_ca, config.tls_certificate, config.tls_key)
        return files if files.ca or files.certificate else None

    def paths(self) -> dict[str, Path]:
        """Of the files that are given, by the name of the setting."""
        named = {"tls_ca": self.ca, "tls_certificate": self.certificate, "tls_key": self.key}
        return {name: Path(path) for name, path in named.items() if path}


@dataclass(frozen=True, slots=True, eq=False)
class TlsContent:
    """What stood in the files when they fitted together. None where no file is given."""

    ca: bytes | None
    certificate: bytes | None
    key: bytes | None = field(repr=False)


class TlsSource:
    """The content of the files as it last was good. Any thread."""

    def __init__(self, files: TlsFiles, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Raises ConfigError, which names the setting and the path, where they cannot be used."""
        self.files = files
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._seen = _stamps(files)
        self._looked_s = clock_s()
        self._content = load(files)
        if files.key:
            warn_of_open_file(files.key)

    def content(self, look_s: float = 0.0) -> TlsContent:
        """As of now, or of a look at the disk that is no longer than ``look_s`` ago. The same object until it changes."""
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
    """Raise ConfigError where settings name files that cannot be used, before anything is connected."""
    files = TlsFiles.of(config)
    if files is not None:
        load(files)


def load(files: TlsFiles) -> TlsContent:
    """Read and check: an authority is a certificate, the key is the certificate's. Raises ConfigError."""
    from bk_spark.tls.certificates import check_certificates, check_key

    found = {name: _read(name, path) for name, path in files.paths().items()}
    for name in ("tls_ca", "tls_certificate"):
        if name in found:
            check_certificates(TLS_NAMES[name], str(files.paths()[name]), found[name])
    if "tls_key" in found:
        check_key(TLS_NAMES["tls_key"], files.key, found["tls_key"], found["tls_certificate"])
    return TlsContent(found.get("tls_ca"), found.get("tls_certificate"), found.get("tls_key"))


def server_credentials(source: TlsSource) -> grpc.ServerCredentials:
    """A bookie's. With authorities every client must show a certificate that one of them signed."""
    given: list[TlsContent] = [source.content()]

    def changed() -> grpc.ServerCertificateConfiguration | None:
        content = source.content(LOOK_S)
        if content is given[0]:
            return None
        given[0] = content
        return _server_configuration(content)

    return grpc.dynamic_ssl_server_credentials(
        _server_configuration(given[0]), changed, require_client_authentication=given[0].ca is not None
    )


def channel_credentials(content: TlsContent) -> grpc.ChannelCredentials:
    """A client's, for one channel."""
    return grpc.ssl_channel_credentials(content.ca, content.key, content.certificate)


def _server_configuration(content: TlsContent) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(content.key, content.certificate)], root_certificates=content.ca)


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
    return [_stamp(path) for path in files.paths().values()]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def warn_of_open_file(path: str) -> None:
    """Once in a process's life: what should be secret can be read by all."""
    if path not in _told_of and Path(path).stat().st_mode & _OTHERS:
        _told_of.add(path)
        logger.warning("%s can be read by everybody on this machine: chmod 600 it", path)
