"""TLS for a local cluster: its own authority, one certificate for ZooKeeper and all its bookies, and one for all
its clients.

::

    <data_dir>/tls/ca.pem  bookie.pem  client.pem      certificates; the .key beside each is readable by its owner alone

They are made at the first use of the directory, and are valid for ten years. This is for local clusters and tests only: the
key of a real authority is kept away from the machines that it signs for (docs/guide/secure.md).
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

from bk_spark.config import BOOKIE_AUTH_VARIABLE, TLS_NAMES, ZOOKEEPER_AUTH_VARIABLE, ClientConfig
from bk_spark.local.ports import HOST
from bk_spark.tls.files import TlsFiles

DAYS = 3650
_CLOCK_SKEW = timedelta(days=1)
"""Certificates are valid from a day ago on, so that machines with a late clock accept them."""


class Authority:
    """Signs certificates with a key that only this object holds. ``certificate`` is the authority's own."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = _builder(self._name, self._name, self._key, DAYS).add_extension(x509.BasicConstraints(True, None), True)
        self.certificate = builder.sign(self._key, hashes.SHA256())

    def save(self, path: Path) -> None:
        """Write its certificate. Its key is never written."""
        path.write_bytes(self.certificate.public_bytes(Encoding.PEM))

    def issue(self, path: Path, *, hosts: Sequence[str] = (), days: int = DAYS) -> None:
        """Write ``path``.pem and ``path``.key, valid for ``days``: a bookie's with ``hosts``, else a client's."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(path.name), self._name, key, days)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), False)
        _write_key(path.with_suffix(".key"), key)
        path.with_suffix(".pem").write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))


@dataclass(frozen=True, slots=True)
class LocalTls:
    """Files of a local cluster."""

    server: TlsFiles
    """Of ZooKeeper and of all bookies."""
    client: TlsFiles


def local_tls(directory: Path) -> LocalTls:
    """The files in ``directory``. If it does not exist it is made, with all files at once."""
    if not directory.exists():
        making = directory.with_suffix(".making")
        making.mkdir(parents=True, exist_ok=True)
        authority = Authority("bk_spark local cluster")
        authority.save(making / "ca.pem")
        authority.issue(making / "bookie", hosts=[HOST, "localhost"])
        authority.issue(making / "client")
        making.rename(directory)
    bookie, client = ([str(directory / f"{side}{suffix}") for suffix in (".pem", ".key")] for side in ("bookie", "client"))
    ca = str(directory / "ca.pem")
    return LocalTls(TlsFiles(ca, *bookie), TlsFiles(ca, *client))


def command_options(config: ClientConfig) -> list[str]:
    """The options with which a command connects as ``config`` says. Use them together with ``command_environment``."""
    given = {name: getattr(config, name) for name in TLS_NAMES}
    return [part for name, value in given.items() if value for part in ("--" + name.replace("_", "-"), value)]


def command_environment(config: ClientConfig) -> dict[str, str]:
    """The environment of such a command. It holds the secrets, because arguments are visible to others; empty for none."""
    return {ZOOKEEPER_AUTH_VARIABLE: config.zookeeper_auth, BOOKIE_AUTH_VARIABLE: config.bookie_auth}


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
    write_secret(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that its owner alone can read."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
