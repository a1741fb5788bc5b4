"""TLS of a local cluster: an authority of its own, and one certificate each for its bookies and for its clients.

::

    <data_dir>/tls/ca.pem  bookie.pem  client.pem      certificates; the .key beside each is readable by its owner alone

They are made once, with the first use of the directory, and hold for ten years. For clusters of one's own machine and for
tests: who runs an authority keeps its key apart from the machines that it signs for (docs/guide/secure.md).
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from bk_spark.config import TLS_NAMES, ZOOKEEPER_AUTH_VARIABLE, ClientConfig
from bk_spark.local.process import HOST
from bk_spark.tls.files import TlsFiles

DAYS = 3650
_CLOCK_SKEW = timedelta(days=1)
"""What is made now is valid on a machine whose clock is behind."""


@dataclass(frozen=True, slots=True)
class LocalTls:
    """The files of a local cluster's two sides."""

    bookie: TlsFiles
    client: TlsFiles


class Authority:
    """Signs certificates, with a key that lives in this object. ``certificate`` is its own."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = _builder(self._name, self._name, self._key, DAYS).add_extension(x509.BasicConstraints(True, None), True)
        self.certificate = builder.sign(self._key, hashes.SHA256())

    def save(self, path: Path) -> None:
        """Its certificate; its key is kept nowhere."""
        path.write_bytes(self.certificate.public_bytes(Encoding.PEM))

    def issue(self, path: Path, *, hosts: Sequence[str] = (), days: int = DAYS) -> None:
        """Write ``path`` .pem and .key, for a client, or for a bookie at ``hosts``. It expires ``days`` from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(path.name), self._name, key, days)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), False)
        _write_key(path.with_suffix(".key"), key)
        path.with_suffix(".pem").write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))


def local_tls(directory: Path) -> LocalTls:
    """The files in ``directory``; made, all at once, where there are none."""
    if not directory.exists():
        making = directory.with_suffix(".making")
        making.mkdir(parents=True, exist_ok=True)
        authority = Authority("bk_spark local cluster")
        authority.save(making / "ca.pem")
        authority.issue(making / "bookie", hosts=[HOST, "localhost"])
        authority.issue(making / "client")
        making.rename(directory)
    ca = str(directory / "ca.pem")
    bookie, client = (
        TlsFiles(ca, str(directory / f"{side}.pem"), str(directory / f"{side}.key")) for side in ("bookie", "client")
    )
    return LocalTls(bookie, client)


def command_options(config: ClientConfig) -> list[str]:
    """What a command is given to connect as ``config`` says; ``command_environment`` belongs to it."""
    given = {name: getattr(config, name) for name in TLS_NAMES}
    return [part for name, value in given.items() if value for part in ("--" + name.replace("_", "-"), value)]


def command_environment(config: ClientConfig) -> dict[str, str]:
    """What such a command finds in its environment: the secret, which no argument may hold, or that there is none."""
    return {ZOOKEEPER_AUTH_VARIABLE: config.zookeeper_auth}


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    end = now + timedelta(days=days)
    return builder.not_valid_before(min(now, end) - _CLOCK_SKEW).not_valid_after(end)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
