"""Checks certificates and keys in PEM form, and says in words what is wrong with them. No error shows any part of a key.

Import this module only where TLS is used: the import takes 30 ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from bk_spark.errors import ConfigError


def check_certificates(what: str, path: str, content: bytes) -> list[x509.Certificate]:
    """All certificates in a file, at least one. Raises ConfigError about setting ``what``, the file at ``path``."""
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as problem:
        remedy = "there is no certificate in PEM form in it (-----BEGIN CERTIFICATE-----), or a broken one"
        raise ConfigError(what, path, remedy) from problem


def check_key(what: str, path: str, key: bytes, certificate: bytes) -> None:
    """Raise ConfigError unless ``key`` is the private key of the first certificate, without a passphrase."""
    try:
        found = load_pem_private_key(key, None)
    except TypeError as problem:
        remedy = "it is encrypted, and nobody is there to type its passphrase: give one without, readable by its owner alone"
        raise ConfigError(what, path, remedy) from problem
    except (ValueError, UnsupportedAlgorithm) as problem:
        raise ConfigError(what, path, "there is no private key in PEM form in it, or a broken one") from problem
    if _encoded(found.public_key()) != _encoded(x509.load_pem_x509_certificates(certificate)[0].public_key()):
        raise ConfigError(what, path, "it is not the key of the certificate that is given with it: give the two that fit")


def describe_own(certificate: bytes) -> str:
    """For a client whose certificate was refused: that it is out of date, else who signed it."""
    first = x509.load_pem_x509_certificates(certificate)[0]
    now = datetime.now(UTC)
    if now > first.not_valid_after_utc:
        return f"expired on {first.not_valid_after_utc:%Y-%m-%d}"
    if now < first.not_valid_before_utc:
        return f"not valid before {first.not_valid_before_utc:%Y-%m-%d}"
    return f"signed by {first.issuer.rfc4514_string()}"


@dataclass(frozen=True, slots=True)
class Expiry:
    """When a certificate ends."""

    subject: str
    serial: str
    """In hexadecimal: with the subject it tells the certificate from the one that replaces it."""
    ends_s: float
    """Seconds since 1970."""


def expiries(content: bytes) -> list[Expiry]:
    """Of each certificate in a good file, each once, in the order of the file; none of an empty one."""
    found = x509.load_pem_x509_certificates(content) if content else []
    named = {(one.subject.rfc4514_string(), f"{one.serial_number:x}"): one.not_valid_after_utc.timestamp() for one in found}
    return [Expiry(subject, serial, ends_s) for (subject, serial), ends_s in named.items()]


def _encoded(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
